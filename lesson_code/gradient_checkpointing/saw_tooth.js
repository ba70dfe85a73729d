// The memory of one step, by theory, for a number of segments.

function draw(root, data) {
  const [plain] = data.traces; // one segment: no checkpointing
  const last = Math.max(...data.traces.flatMap(({ points }) => points.map(([time]) => time)));
  const round = (number, step) => Math.ceil(number / step) * step;
  const ticks = (end, step) => [...Array(Math.floor(end / step) + 1).keys()].map((i) => i * step);
  const top = round(plain.peak, 5);
  const axes = makeAxes(root, {
    x: { label: "time (1: the forward pass of one block)", domain: [0, last], ticks: ticks(last, 20) },
    y: { label: "memory (MB)", domain: [0, top], ticks: ticks(top, top / 5) },
  });
  const say = makeSentence(root);
  const counts = data.traces.map(({ segments }) => segments);
  const limits = { min: 1, max: counts.length - 1, step: 1, value: counts.indexOf(data.start) };
  const update = makeSliders(
    root,
    [{ label: "segments", ...limits, say: (place) => `${counts[place]}` }],
    (place) => {
      const chosen = data.traces[place];
      axes.clear();
      axes.line(plain.points, "#999999");
      axes.line(chosen.points, data.colours[2]);
      const share = Math.round((100 * chosen.peak) / plain.peak);
      const longer = chosen.points.at(-1)[0] / plain.points.at(-1)[0];
      const peak = chosen.peak.toFixed(1);
      say(
        `With ${chosen.segments} segments the peak is ${peak} MB by theory, ${share} % of ` +
          `the ${plain.peak.toFixed(1)} MB without checkpointing (grey), in ${longer.toFixed(2)} times the time.`,
      );
      fill([
        ["no checkpointing", plain.peak.toFixed(2), plain.points.at(-1)[0]],
        [`${chosen.segments} segments`, chosen.peak.toFixed(2), chosen.points.at(-1)[0]],
      ]);
    },
  );
  const fill = makeTable(root, ["", "peak (MB)", "time"]);
  update();
}
