// The race once more: who is where after so many seconds. `data.rivals` have a label, and the curve
// of medians `[seconds, accuracy in %]`, a point for each epoch.

function draw(root, data) {
  const last = Math.max(...data.rivals.map(({ curve }) => curve.at(-1)[0]));
  const end = 100 * Math.ceil(last / 100);
  const ticks = [...Array(Math.floor(end / 200) + 1).keys()].map((i) => 200 * i);
  const axes = makeAxes(root, {
    x: { label: "seconds", domain: [0, end], ticks },
    y: { label: "validation accuracy (%)", domain: [0, 100], ticks: [0, 20, 40, 60, 80, 100] },
  });
  const say = makeSentence(root);
  const update = makeSliders(
    root,
    [{ label: "seconds", min: 0, max: end, step: 5, value: 100, say: (x) => `${x} s` }],
    (now) => {
      const places = data.rivals.map(({ label, curve }, number) => {
        const passed = curve.filter(([seconds]) => seconds <= now);
        const ended = passed.length === curve.length;
        return { label, number, passed, ended, accuracy: passed.length ? passed.at(-1)[1] : null };
      });
      axes.clear();
      for (const { passed, number } of places) {
        const colour = data.colours[number];
        const drawn = colour === "#000000" ? "currentColor" : colour; // black: also in the dark
        axes.line([[0, 0], ...passed], drawn);
        if (passed.length) axes.dot(...passed.at(-1), drawn);
      }
      places.sort((a, b) => (b.accuracy ?? -1) - (a.accuracy ?? -1));
      const [first] = places;
      say(
        first.accuracy === null
          ? "Nobody has finished an epoch."
          : `After ${now} s first is ${first.label}, with ${first.accuracy.toFixed(1)} %.`,
      );
      fill(
        places.map(({ label, accuracy, ended }) => [
          label,
          accuracy === null ? "–" : accuracy.toFixed(1),
          ended ? "has ended" : "",
        ]),
      );
    },
  );
  const fill = makeTable(root, ["rival", "accuracy (%)", ""]);
  update();
}
