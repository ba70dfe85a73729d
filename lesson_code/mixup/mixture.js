// Two photographs mixed with λ, their target, and the distribution that λ is drawn from.

// The density of Beta(α, α) at the places, and the share of λ between 0.1 and 0.9. It is the same on
// both sides of 1/2, and with v = λ^α the integral below 1/2 has no infinite end.
function beta(alpha, places) {
  const count = 2000;
  const integrate = (low, high) => {
    const [from, to] = [low ** alpha, high ** alpha];
    let sum = 0;
    for (let i = 0; i < count; i++) {
      const v = from + ((to - from) * (i + 0.5)) / count;
      sum += (1 - v ** (1 / alpha)) ** (alpha - 1) / alpha;
    }
    return (sum * (to - from)) / count;
  };
  const half = integrate(0, 0.5);
  const density = places.map((lam) => (lam * (1 - lam)) ** (alpha - 1) / (2 * half));
  return [density, integrate(0.1, 0.5) / half];
}

// A square photograph on a canvas, from its channels, pixel by pixel, 0 to 255.
function paint(canvas, pixels) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  for (let i = 0; i < pixels.length / 3; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = pixels[3 * i + c];
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

function draw(root, data) {
  const side = data.side;
  const row = make("div");
  const [mixup, cutmix] = ["mixup", "CutMix"].map((name) => {
    const canvas = make("canvas", { width: side, height: side, role: "img", "aria-label": name });
    row.append(make("span", { style: "display: inline-block" }, canvas, make("div", {}, name)));
    return canvas;
  });
  root.append(row);
  const axes = makeAxes(root, {
    height: 200,
    x: { label: "λ, share of the first image", domain: [0, 1], ticks: [0, 0.2, 0.4, 0.6, 0.8, 1] },
    y: { label: "density", domain: [0, 4], ticks: [0, 1, 2, 3, 4] },
  });
  const say = makeSentence(root);
  const update = makeSliders(
    root,
    [
      { label: "λ", min: 0, max: 1, step: 0.05, value: 0.8, say: (x) => x.toFixed(2) },
      {
        label: "α, the strength of mixing",
        ...{ min: 0.1, max: 3, step: 0.1, value: 1 },
        say: (x) => x.toFixed(1),
      },
    ],
    (lam, alpha) => {
      const { first, second } = data;
      paint(mixup, first.map((value, i) => lam * value + (1 - lam) * second[i]));
      const start = side - Math.round(Math.sqrt(1 - lam) * side);
      const pasted = (i) => Math.floor(i / 3 / side) >= start && Math.floor(i / 3) % side >= start;
      paint(cutmix, first.map((value, i) => (pasted(i) ? second[i] : value)));
      const places = [...Array(199).keys()].map((i) => (i + 1) / 200);
      const [density, inside] = beta(alpha, places);
      axes.clear();
      axes.line([[lam, 0], [lam, 4]], "currentColor", "5 4");
      axes.line(places.map((place, i) => [place, Math.min(density[i], 4)]), data.colours[0]);
      say(`With α = ${alpha.toFixed(1)}, ${Math.round(100 * inside)} % of λ lie between 0.1 and 0.9.`);
      fill([data.names.map((name, i) => `${name}: ${(i ? 1 - lam : lam).toFixed(2)}`)]);
    },
  );
  const fill = makeTable(root, ["target", ""]);
  update();
}
