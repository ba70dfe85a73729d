// Workers that prepare batches, and the training that waits for them. Each has a core of its own.

const BATCHES = 12;
const AHEAD = 2; // batches that each worker may prepare in advance: PyTorch's `prefetch_factor`

// Bars {lane, batch, start, end} in ms; lane 0 is the training process. A worker gets a new batch
// when the training takes one, and the batches are dealt in turn.
function simulateLoader(workers, prepare, step) {
  const bars = [];
  const free = Array(workers + 1).fill(0); // when each lane is free
  const taken = []; // when the training took each batch
  const ready = []; // when each batch is prepared
  const add = (lane, kind, batch, earliest, length) => {
    const start = Math.max(free[lane], earliest);
    free[lane] = start + length;
    bars.push({ lane, kind, batch, start, end: free[lane] });
    return start;
  };
  const ahead = workers * AHEAD;
  for (let batch = 0; batch < BATCHES; batch++) {
    const lane = workers ? 1 + (batch % workers) : 0;
    const asked = batch < ahead || !workers ? 0 : taken[batch - ahead];
    ready[batch] = add(lane, "prepare", batch, asked, prepare) + prepare;
    taken[batch] = add(0, "step", batch, ready[batch], step);
  }
  return bars;
}

function draw(root, data) {
  const axes = makeAxes(root, {
    x: { label: `time that ${BATCHES} batches take (%)`, domain: [0, 100], ticks: [0, 25, 50, 75, 100] },
    y: { label: "", domain: [0, 1], ticks: [] },
    height: 230,
  });
  const say = makeSentence(root);
  const update = makeSliders(
    root,
    [
      { label: "workers", min: 0, max: 6, step: 1, value: data.start[0] },
      { label: "to prepare a batch", min: 1, max: 30, step: 1, value: data.start[1], say: (x) => `${x} ms` },
      { label: "training step", min: 1, max: 30, step: 1, value: data.start[2], say: (x) => `${x} ms` },
    ],
    (workers, prepare, step) => {
      const bars = simulateLoader(workers, prepare, step);
      const total = bars.at(-1).end;
      const lanes = workers + 1;
      axes.clear();
      for (const { lane, kind, start, end } of bars) {
        const bottom = 1 - (lane + 1) / lanes;
        const [left, right] = [(100 * start) / total, (100 * end) / total];
        const gap = Math.min(0.3, 0.2 * (right - left));
        const corners = [[left, bottom + 0.1 / lanes], [right - gap, bottom + 0.9 / lanes]];
        axes.box(...corners, data.colours[kind === "step" ? 0 : 4], 0.9);
      }
      const perBatch = workers ? Math.max(prepare / workers, step) : prepare + step;
      const stall = 1 - step / perBatch;
      const enough = Math.max(1, Math.ceil(prepare / step));
      const count = (n) => `${n} ${n === 1 ? "worker" : "workers"}`;
      const rest =
        workers >= enough
          ? "the training waits only for the first batch."
          : `a long training has a data stall of ${Math.round(100 * stall)} %; ${count(enough)} would be enough.`;
      say(`With ${count(workers)} ${rest}`);
      fill([
        ["first batch is there after (ms)", bars.find(({ kind }) => kind === "step").start.toFixed(0)],
        [`these ${BATCHES} batches (ms)`, total.toFixed(0)],
        ["each batch, in a long training (ms)", perBatch.toFixed(1)],
      ]);
    },
  );
  const legend =
    "The top lane is the training process, and blue its steps; in an orange bar a batch is prepared. " +
    `Each worker prepares at most ${AHEAD} batches ahead, as in PyTorch by default, and then waits.`;
  root.append(make("p", {}, legend));
  const fill = makeTable(root, ["", ""]);
  update();
}
