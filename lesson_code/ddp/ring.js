// The all-reduce in a ring: how many gradients are added in each part of each rank, step by step.

// `state[rank][part]` before the first step and after each one, and the part that each rank got.
function runRing(size) {
  const wrap = (index) => ((index % size) + size) % size;
  const states = [{ state: [...Array(size)].map(() => Array(size).fill(1)), received: [] }];
  for (let step = 0; step < 2 * (size - 1); step++) {
    const before = states.at(-1).state;
    const state = before.map((row) => [...row]);
    const received = [];
    for (let rank = 0; rank < size; rank++) {
      const [part, neighbour] = [wrap(rank - step), wrap(rank + 1)];
      const isSum = step < size - 1; // then the finished sums are passed on
      state[neighbour][part] = before[rank][part] + (isSum ? before[neighbour][part] : 0);
      received[neighbour] = part;
    }
    states.push({ state, received });
  }
  return states;
}

function draw(root, data) {
  const axes = makeAxes(root, {
    x: { label: "part of the gradient", domain: [0, 1], ticks: [] },
    y: { label: "rank", domain: [0, 1], ticks: [] },
    height: 300,
  });
  const say = makeSentence(root);
  const update = makeSliders(
    root,
    [
      { label: "ranks", min: 2, max: 8, step: 1, value: 4 },
      { label: "step", min: 0, max: 6, step: 1, value: 0 },
    ],
    (size, step) => {
      const states = runRing(size);
      const slider = root.querySelectorAll("input")[1];
      slider.max = states.length - 1; // the browser lowers the value
      if (slider.valueAsNumber < step) {
        slider.dispatchEvent(new Event("input"));
        return;
      }
      const { state, received } = states[step];
      axes.clear();
      state.forEach((row, rank) =>
        row.forEach((count, part) => {
          const [left, bottom] = [part / size, 1 - (rank + 1) / size];
          const [right, top] = [left + 1 / size, bottom + 1 / size];
          const corners = [[left + 0.004, bottom + 0.006], [right - 0.004, top - 0.006]];
          axes.box(...corners, data.colours[0], 0.1 + (0.5 * count) / size);
          const word = received[rank] === part ? `→ ${count}` : `${count}`;
          axes.note((left + right) / 2, (bottom + top) / 2 - 0.02, word, "currentColor", "middle");
        }),
      );
      const complete = state.flat().filter((count) => count === size).length;
      say(
        `After step ${step} of ${states.length - 1} each rank has sent ${step}/${size} of a gradient, ` +
          `and ${complete} of the ${size * size} cells hold a finished sum.`,
      );
      fill([
        ["finished sums on each rank", complete / size],
        ["sent by each rank (gradients)", `${step}/${size}`],
        ["sent at the end, 2 (n − 1) / n", `${states.length - 1}/${size}`],
      ]);
    },
  );
  root.append(make("p", {}, "Rank 0 is on top. An arrow marks what has just arrived."));
  const fill = makeTable(root, ["", ""]);
  update();
}
