// The learning rate of a cosine and of warmup-stable-decay at each of `data.steps` steps.

// Warm-up, then a cosine: learning rate of a step, counted from 0, in shares of the peak.
function cosineAt(step, minimum, warmup, total) {
  if (step <= warmup) return (step + 1) / (warmup + 1);
  const progress = (step - warmup) / (total - warmup);
  return minimum + ((1 - minimum) * (1 + Math.cos(Math.PI * progress))) / 2;
}

// Warm-up, then the peak, then a straight line that would reach 0 one step after the last.
function stableDecayAt(step, warmup, decay, total) {
  return Math.min((step + 1) / (warmup + 1), 1, (total - step) / decay);
}

function draw(root, data) {
  const total = data.steps;
  const axes = makeAxes(root, {
    x: { label: "optimizer step", domain: [0, total], ticks: [0, 20, 40, 60, 80, 100] },
    y: { label: "learning rate / peak", domain: [0, 1.05], ticks: [0, 0.25, 0.5, 0.75, 1] },
  });
  const say = makeSentence(root);
  const update = makeSliders(
    root,
    [
      { label: "steps of warm-up", min: 0, max: 50, step: 5, value: 10 },
      { label: "minimum of the cosine / peak", min: 0, max: 0.5, step: 0.05, value: 0 },
      { label: "steps of decay at the end", min: 5, max: 50, step: 5, value: 20 },
    ],
    (warmup, minimum, decay) => {
      const steps = [...Array(total).keys()];
      const curves = [
        steps.map((step) => cosineAt(step, minimum, warmup, total)),
        steps.map((step) => stableDecayAt(step, warmup, decay, total)),
      ];
      axes.clear();
      curves.forEach((curve, number) =>
        axes.line(steps.map((step) => [step, curve[step]]), data.colours[number], ["none", "7 4"][number]),
      );
      const mean = (curve) => curve.reduce((sum, rate) => sum + rate) / total;
      const [cosine, stable] = curves.map((curve) => `${Math.round(100 * mean(curve))} %`);
      say(`The mean learning rate is ${cosine} of the peak for the cosine, ${stable} for the other.`);
      fill(
        [0, 20, 50, 80, total - 1].map((step) => [step, ...curves.map((curve) => curve[step].toFixed(3))]),
      );
    },
  );
  const fill = makeTable(root, ["step", "cosine", "warmup-stable-decay (dashed)"]);
  update();
}
