// One network's reliability diagram when its logits are divided by T. `data.logits` are lists of
// hundredths, a list for each image, `data.targets` its classes, `data.fitted` the fitted T.

const BINS = 15; // of equal width, as in the lesson's calibration error
const FEW = 20; // answers: a bin with fewer has no dot

// The confidence of each answer, and whether it is right.
function answerAll(data, temperature) {
  return data.logits.map((hundredths, image) => {
    const z = hundredths.map((number) => number / 100 / temperature);
    const largest = Math.max(...z);
    const sum = z.reduce((total, number) => total + Math.exp(number - largest), 0);
    return { confidence: 1 / sum, right: z.indexOf(largest) === data.targets[image] };
  });
}

function mean(numbers) {
  return numbers.reduce((total, number) => total + Number(number), 0) / numbers.length;
}

// Of a list of answers: how many, their mean confidence, and the share that is right.
function describe(answers) {
  return {
    count: answers.length,
    confidence: mean(answers.map((x) => x.confidence)),
    accuracy: mean(answers.map((x) => x.right)),
  };
}

function sortIntoBins(answers) {
  const bins = [...Array(BINS + 1)].map(() => []); // the last one: a confidence of 1
  for (const x of answers) bins[Math.floor(x.confidence * BINS)].push(x);
  return bins.filter((bin) => bin.length).map(describe);
}

function draw(root, data) {
  const percent = (number) => `${(100 * number).toFixed(1)}`;
  const tenths = [0, 0.2, 0.4, 0.6, 0.8, 1];
  const axes = makeAxes(root, {
    x: { label: "confidence of the answers", domain: [0, 1.02], ticks: tenths },
    y: { label: "share that is right", domain: [0, 1.02], ticks: tenths },
    height: 300,
  });
  const say = makeSentence(root);
  const update = makeSliders(
    root,
    [{ label: "temperature T", min: 0.4, max: 5, step: 0.05, value: 1, say: (t) => t.toFixed(2) }],
    (temperature) => {
      const rows = [1, data.fitted, temperature].map((t) => {
        const answers = answerAll(data, t);
        const bins = sortIntoBins(answers);
        const gaps = bins.map((bin) => bin.count * Math.abs(bin.accuracy - bin.confidence));
        const error = gaps.reduce((total, gap) => total + gap, 0) / answers.length;
        const accepted = describe(answers.filter((x) => x.confidence >= 0.9));
        return { ...describe(answers), bins, accepted, error };
      });
      const chosen = rows[2];
      axes.clear();
      axes.line([[0, 0], [1, 1]], "currentColor", "4 4");
      const points = chosen.bins.filter((bin) => bin.count >= FEW);
      const places = points.map((bin) => [bin.confidence, bin.accuracy]);
      if (places.length) axes.line(places, data.colours[0]);
      for (const place of places) axes.dot(...place, data.colours[0], 5);
      say(
        `With T = ${temperature.toFixed(2)} the mean confidence is ${percent(chosen.confidence)} %, and ` +
          `${percent(chosen.accuracy)} % of the answers are right, as with every T. ` +
          `The calibration error is ${percent(chosen.error)} points.`,
      );
      const names = [
        "as trained, T = 1",
        `fitted, T = ${data.fitted.toFixed(2)}`,
        `yours, T = ${temperature.toFixed(2)}`,
      ];
      fill(
        rows.map(({ error, accepted }, place) => [
          names[place],
          percent(error),
          accepted.count,
          accepted.count ? percent(accepted.accuracy) : "–",
        ]),
      );
    },
  );
  const trap =
    "Some T has a smaller error here than the fitted one. But who chooses it by this error has chosen it " +
    "on the images that report it. T was fitted on other images, by the cross-entropy. " +
    `A bin of the error with fewer than ${FEW} answers has no point.`;
  root.append(make("p", {}, trap));
  const fill = makeTable(root, ["", "error (points)", "answers ≥ 90 %", "of these right (%)"]);
  update();
}
