// A pipeline of any size: who computes what, when, in two orders. A backward pass takes twice as
// long as a forward pass, and sending takes no time.

const [FORWARD, BACKWARD] = [1, 2];
const ORDERS = ["AFAB", "1F1B"];

// What a stage computes, as [is a forward pass, micro-batch].
function listOrder(name, stage, stages, batches) {
  const ahead = name === "AFAB" ? batches : Math.min(stages - stage - 1, batches);
  const order = [...Array(ahead).keys()].map((batch) => [true, batch]);
  for (let batch = 0; batch < batches; batch++) {
    if (batch + ahead < batches) order.push([true, batch + ahead]);
    order.push([false, batch]);
  }
  return order;
}

// Bars {stage, isForward, batch, start, end}: each stage begins as soon as its input is there.
function simulatePipeline(name, stages, batches) {
  const left = [...Array(stages).keys()].map((stage) => listOrder(name, stage, stages, batches));
  const clocks = Array(stages).fill(0);
  const ends = new Map();
  const key = (stage, isForward, batch) => `${stage} ${isForward} ${batch}`;
  const bars = [];
  while (left.some((order) => order.length)) {
    left.forEach((order, stage) => {
      if (!order.length) return;
      const [isForward, batch] = order[0];
      const isFirst = isForward && stage === 0;
      const before = isForward ? stage - 1 : stage + 1;
      const isTurn = !isForward && before === stages; // the last stage has the loss
      const needed = isTurn ? key(stage, true, batch) : key(before, isForward, batch);
      if (!isFirst && !ends.has(needed)) return;
      order.shift();
      const start = Math.max(clocks[stage], isFirst ? 0 : ends.get(needed));
      clocks[stage] = start + (isForward ? FORWARD : BACKWARD);
      ends.set(key(stage, isForward, batch), clocks[stage]);
      bars.push({ stage, isForward, batch, start, end: clocks[stage] });
    });
  }
  return bars;
}

// Of how many micro-batches each stage stores activations at most.
function countStored(bars, stages) {
  return [...Array(stages).keys()].map((stage) => {
    let [now, most] = [0, 0];
    for (const bar of bars) {
      if (bar.stage !== stage) continue;
      now += bar.isForward ? 1 : -1;
      most = Math.max(most, now);
    }
    return most;
  });
}

function draw(root, data) {
  const axes = makeAxes(root, {
    x: { label: "time of the step (%); numbers: micro-batches", domain: [0, 100], ticks: [0, 25, 50, 75, 100] },
    y: { label: "stage", domain: [0, 1], ticks: [] },
    height: 300,
  });
  const say = makeSentence(root);
  const update = makeSliders(
    root,
    [
      { label: "order", min: 0, max: 1, step: 1, value: 0, say: (x) => ORDERS[x] },
      { label: "stages", min: 2, max: 8, step: 1, value: 4 },
      { label: "micro-batches", min: 1, max: 16, step: 1, value: 8 },
    ],
    (order, stages, batches) => {
      const bars = simulatePipeline(ORDERS[order], stages, batches);
      const length = Math.max(...bars.map(({ end }) => end));
      const busy = bars.reduce((sum, { start, end }) => sum + end - start, 0);
      axes.clear();
      for (const { stage, isForward, batch, start, end } of bars) {
        const [left, right] = [(100 * start) / length, (100 * end) / length];
        const bottom = 1 - (stage + 1) / stages;
        const corners = [[left + 0.15, bottom + 0.08 / stages], [right - 0.15, bottom + 0.92 / stages]];
        axes.box(...corners, data.colours[isForward ? 0 : 1], 1);
        const middle = [(left + right) / 2, bottom + 0.5 / stages - 0.02];
        const ink = isForward ? "#ffffff" : "#000000";
        const room = 3 * `${batch}`.length; // of a number on a phone
        if (right - left > room) axes.note(...middle, `${batch}`, ink, "middle");
      }
      const bubble = Math.round(100 * (1 - busy / (stages * length)));
      const stored = countStored(bars, stages);
      say(
        `${ORDERS[order]}, ${stages} stages, ${batches} micro-batch${batches === 1 ? "" : "es"}: the bubble is ` +
          `${bubble} %, and a stage stores activations of at most ${Math.max(...stored)}.`,
      );
      const share = (count) => Math.round((100 * count) / batches);
      fill(stored.map((count, stage) => [`stage ${stage}`, count, share(count)]));
    },
  );
  const legend =
    "Stage 0 is on top; forward passes are blue, and backward passes, twice as long, are orange. " +
    "Sending takes no time. When does 1F1B store as much as AFAB?";
  root.append(make("p", {}, legend));
  const fill = makeTable(root, ["", "stored micro-batches", "of the batch (%)"]);
  update();
}
