// Parts of figures that readers can change: axes with lines, sliders, a table of the numbers.
// `course_utils.explore` puts them before the script of a figure. No library, no network.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "line", "rect", "circle", "text"]);

// An element of HTML or SVG with its attributes and what is in it.
function make(tag, attributes = {}, ...children) {
  const node = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Axes with their ticks. `x` and `y` are {label, domain: [low, high], ticks: [numbers]}.
// `line`, `dot`, `box` (from one corner to the other) and `note` draw on them in the units of the
// axes, and `clear` removes what was drawn.
function makeAxes(root, { x, y, height = 260 }) {
  const width = root.clientWidth ? Math.min(Math.max(root.clientWidth, 320), 600) : 600; // as wide as a phone
  const [left, right, top, bottom] = [52, width - 20, 12, height - 40];
  const scale = ([low, high], start, end) => (value) =>
    start + ((value - low) / (high - low)) * (end - start);
  const [toX, toY] = [scale(x.domain, left, right), scale(y.domain, bottom, top)];
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  for (const tick of x.ticks) {
    const place = { x1: toX(tick), x2: toX(tick), y1: bottom, y2: bottom + 5 };
    const text = { x: toX(tick), y: bottom + 18, "text-anchor": "middle" };
    svg.append(make("line", { ...place, class: "axis" }), make("text", text, `${tick}`));
  }
  for (const tick of y.ticks) {
    const place = { x1: left, x2: right, y1: toY(tick), y2: toY(tick) };
    const text = { x: left - 8, y: toY(tick) + 4, "text-anchor": "end" };
    svg.append(make("line", { ...place, class: "grid" }), make("text", text, `${tick}`));
  }
  const middle = (top + bottom) / 2;
  const turned = { x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` };
  svg.append(
    make("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis" }),
    make("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, x.label),
    make("text", turned, y.label),
  );
  const drawn = make("g");
  svg.append(drawn);
  root.append(svg);
  return {
    clear: () => drawn.replaceChildren(),
    line(points, colour, dash = "none") {
      const corners = points.map(([a, b]) => `${toX(a).toFixed(1)},${toY(b).toFixed(1)}`);
      const style = { stroke: colour, "stroke-dasharray": dash, "stroke-width": 2.5, fill: "none" };
      drawn.append(make("path", { d: `M${corners.join("L")}`, ...style }));
    },
    dot(a, b, colour, radius = 4) {
      drawn.append(make("circle", { cx: toX(a), cy: toY(b), r: radius, fill: colour }));
    },
    box([a, b], [c, d], colour, opacity = 0.2) {
      const place = { x: toX(a), y: toY(d), width: toX(c) - toX(a), height: toY(b) - toY(d) };
      drawn.append(make("rect", { ...place, fill: colour, opacity }));
    },
    note(a, b, text, colour, anchor = "start") {
      const place = { x: toX(a), y: toY(b), "text-anchor": anchor };
      drawn.append(make("text", { ...place, style: `fill: ${colour}` }, text));
    },
  };
}

// JupyterLab binds the arrow keys and would take them from a slider; this attribute is Lumino's.
const JUPYTER_IGNORES_KEYS = { "data-lm-suppress-shortcuts": "true" };

// Sliders, each {label, min, max, step, value, say}, in which `say` turns its value into words.
// `update` is called with all of their values, now and whenever one of them moves.
function makeSliders(root, sliders, update) {
  const inputs = sliders.map(({ label, say = String, ...limits }) => {
    const input = make("input", { type: "range", ...JUPYTER_IGNORES_KEYS, ...limits });
    const output = make("output");
    const show = () => {
      output.value = say(input.valueAsNumber);
      input.setAttribute("aria-valuetext", output.value);
    };
    input.addEventListener("input", () => {
      show();
      change();
    });
    show();
    root.append(make("label", {}, make("span", {}, label), input, output));
    return input;
  });
  const change = () => update(...inputs.map((input) => input.valueAsNumber));
  return change;
}

// A table with a row for each list of numbers or words; returns the function that fills it.
function makeTable(root, heads) {
  const body = make("tbody");
  const cells = (tag, values) => make("tr", {}, ...values.map((value) => make(tag, {}, `${value}`)));
  root.append(make("table", {}, make("thead", {}, cells("th", heads)), body));
  return (rows) => body.replaceChildren(...rows.map((row) => cells("td", row)));
}

// A sentence that says what the figure shows; it is read aloud when it changes.
function makeSentence(root) {
  const sentence = make("p", { "aria-live": "polite" });
  root.append(sentence);
  return (text) => (sentence.textContent = text);
}
