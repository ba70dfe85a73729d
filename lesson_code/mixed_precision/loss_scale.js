// Gradients under a loss scale, in the range of fp16. `data.counts[i]` gradients have a log₂ between
// `data.first + i` and the next integer.

const [ZERO, FADING, INFINITE] = [-25, -14, 16]; // log₂ of fp16's limits

function draw(root, data) {
  const { counts, first } = data;
  const total = counts.reduce((sum, count) => sum + count);
  const percent = (count) => (100 * count) / total;
  const highest = Math.ceil(percent(Math.max(...counts)) / 5) * 5;
  const axes = makeAxes(root, {
    x: { label: "log₂ of a gradient times the scale", domain: [-50, 30], ticks: [-40, -25, -14, 0, 16] },
    y: { label: "gradients (%)", domain: [0, highest], ticks: [0, highest / 2, highest] },
  });
  const say = makeSentence(root);
  const power = (x) => `2${[...`${x}`].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("")}`;
  const update = makeSliders(
    root,
    [{ label: "loss scale", min: 0, max: 32, step: 1, value: 0, say: power }],
    (scale) => {
      axes.clear();
      axes.box([ZERO, 0], [FADING, highest], "#999999", 0.35);
      axes.box([FADING, 0], [INFINITE, highest], "#999999", 0.12);
      axes.note((ZERO + FADING) / 2, 0.93 * highest, "digits fade", "currentColor", "middle");
      axes.note((FADING + INFINITE) / 2, 0.93 * highest, "all digits", "currentColor", "middle");
      axes.note(-49, 0.93 * highest, "0 in fp16", "currentColor");
      axes.note(INFINITE + 0.5, 0.93 * highest, "infinite", "currentColor");
      const shares = { zero: 0, fading: 0, whole: 0, infinite: 0 };
      counts.forEach((count, i) => {
        const place = first + i + scale;
        const kind = place < ZERO ? "zero" : place < FADING ? "fading" : place < INFINITE ? "whole" : "infinite";
        shares[kind] += percent(count);
        if (place < -50 || place > 29 || !count) return;
        const colour = { zero: 1, fading: 4, whole: 0, infinite: 1 }[kind];
        axes.box([place, 0], [place + 1, percent(count)], data.colours[colour], 0.9);
      });
      const lost = `${shares.zero.toFixed(1)} % of the gradients become 0`;
      say(`With a loss scale of ${power(scale)}, ${lost}, and ${shares.infinite.toFixed(1)} % infinite.`);
      fill([Object.values(shares).map((share) => share.toFixed(1))]);
    },
  );
  const fill = makeTable(root, ["0 (%)", "fewer digits (%)", "all digits (%)", "infinite (%)"]);
  update();
}
