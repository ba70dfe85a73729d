// What the first seeds of a comparison say: their mean, its interval, and the verdict.

// The mean of paired differences and the edges of its 95 % interval; quantile of Student's t.
function findInterval(differences, quantile) {
  const count = differences.length;
  const mean = differences.reduce((sum, x) => sum + x) / count;
  const squares = differences.reduce((sum, x) => sum + (x - mean) ** 2, 0);
  const half = quantile * Math.sqrt(squares / (count - 1) / count);
  return [mean, mean - half, mean + half];
}

function judge(low, high, margin) {
  if (-margin <= low && high <= margin) return `equivalent (±${margin} point)`;
  if (low > 0) return "helps";
  return high < 0 ? "hurts" : "inconclusive";
}

function draw(root, data) {
  const { comparisons, quantiles, margin } = data; // quantiles: of 2 seeds, of 3, …
  const everything = comparisons.flatMap(({ differences }) => differences);
  const ends = [Math.floor(Math.min(...everything)) - 1, Math.ceil(Math.max(...everything)) + 1];
  const ticks = [...Array(ends[1] - ends[0] + 1).keys()].map((i) => ends[0] + i);
  const axes = makeAxes(root, {
    height: 170,
    x: { label: "difference (points)", domain: ends, ticks },
    y: { label: "", domain: [0, 3], ticks: [] },
  });
  const say = makeSentence(root);
  const signed = (x) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(2)}`;
  const inside = (x) => Math.min(Math.max(x, ends[0]), ends[1]);
  const limits = { min: 0, max: comparisons.length - 1, step: 1, value: 0 };
  const update = makeSliders(
    root,
    [
      { label: "comparison", ...limits, say: (place) => `${place + 1} of ${comparisons.length}` },
      { label: "seeds", min: 2, max: quantiles.length + 1, step: 1, value: 3 },
    ],
    (place, seeds) => {
      const { name, differences } = comparisons[place];
      const chosen = differences.slice(0, seeds);
      const [mean, low, high] = findInterval(chosen, quantiles[seeds - 2]);
      axes.clear();
      axes.box([-margin, 0], [margin, 3], data.colours[2]);
      axes.line([[0, 0], [0, 3]], "currentColor", "2 3");
      differences.forEach((x, i) => axes.dot(x, 2, i < seeds ? "#999999" : "#99999944"));
      axes.line([[inside(low), 1], [inside(high), 1]], data.colours[0]);
      axes.dot(mean, 1, data.colours[0], 6);
      const verdict = judge(low, high, margin);
      say(`${name}: the first ${seeds} seeds say: ${verdict}.`);
      fill([[seeds, signed(mean), `${signed(low)} to ${signed(high)}`, verdict]]);
    },
  );
  const fill = makeTable(root, ["seeds", "mean", "95 % interval", "verdict"]);
  update();
}
