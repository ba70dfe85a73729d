// Bytes on each GPU by the calculator: `data.gb[model][ranks][way]` has the parts in GB.

const TOP = 120; // GB: higher bars are cut

function draw(root, data) {
  const { models, ranks, ways, parts, limit, gb } = data;
  const axes = makeAxes(root, {
    x: { label: "", domain: [0, ways.length], ticks: [] },
    y: { label: "GB on each GPU", domain: [0, TOP], ticks: [0, 40, 80, 120] },
  });
  const say = makeSentence(root);
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
  const update = makeSliders(
    root,
    [
      { label: "parameters", min: 0, max: models.length - 1, step: 1, value: data.start[0], say: (i) => models[i] },
      { label: "GPUs", min: 0, max: ranks.length - 1, step: 1, value: data.start[1], say: (i) => `${ranks[i]}` },
    ],
    (model, count) => {
      axes.clear();
      ways.forEach((way, place) => {
        const sizes = gb[model][count][place];
        let low = 0;
        sizes.forEach((size, part) => {
          const high = Math.min(low + size, TOP);
          if (high > low) axes.box([place + 0.15, low], [place + 0.85, high], data.shades[part], 0.9);
          low = high;
        });
        axes.note(place + 0.5, TOP - 8, way, "currentColor", "middle");
      });
      axes.line([[0, limit], [ways.length, limit]], "#777777", "6 4");
      const fitting = ways.filter((_, place) => sum(gb[model][count][place]) <= limit);
      const gpus = ranks[count] === 1 ? "1 GPU" : `${ranks[count]} GPUs`;
      say(
        `${models[model]} parameters on ${gpus} with ${limit} GB: ` +
          (fitting.length ? `${fitting.join(", ")} fit${fitting.length === 1 ? "s" : ""}.` : "nothing fits."),
      );
      const shown = (numbers) => numbers.map((number) => number.toFixed(1));
      fill([
        ...parts.map((name, part) => [name, ...shown(gb[model][count].map((sizes) => sizes[part]))]),
        ["sum (GB)", ...shown(gb[model][count].map(sum))],
      ]);
    },
  );
  const fill = makeTable(root, ["", ...ways]);
  update();
}
