"""Planted answers of lesson 06: `course_tools.publish.planted` says how to read them."""

FIT = "fit_temperature(logits[:half], targets[:half])"
SCALED = "logits[half:] / temperature, targets[half:]"
SMOOTHED = "calibration_error(logits[half:], targets[half:])"
EDGES = '"low": 100 * change.low, "high": 100 * change.high'
VERDICT = "change.verdict(more_is_better=False)"
PLAIN_TRAINING = 'train({"pretrained": True}'
PERCENT = "The errors are in percent: give them from 0 to 1."
SMOOTH = "(1 - smoothing) * hard + smoothing / num_classes"
GAP = "abs(right[g].mean() - confidence[g].mean())"
NO_ABSOLUTE = "Gaps of opposite sign cancel: take the absolute value of each."
DROPPED = "Predictions that are left over are dropped: the first groups take one more each."
SIZE = "len(targets) // num_bins"


def _interval_by_hand(half: str) -> tuple[str, ...]:
    points = "points = 100 * np.subtract(smoothed, scaled)\n    half = "
    edges = '"low": points.mean() - half, "high": points.mean() + half'
    return "answer |=", f"{points}{half}\n    answer |=", EDGES, edges


WRONG = {
    "smoothing_experiment": [
        (FIT, "fit_temperature(logits[half:], targets[half:])",
         "T is fitted on the half that is reported: fit it on the first half alone."),
        (FIT, "fit_temperature(logits, targets)",
         "T is fitted on all images, and half of them are reported: fit it on the first half "
         "alone."),
        (SCALED, "logits[:half] / temperature, targets[:half]",
         "The first half is reported, on which T was fitted: report the second half."),
        (SCALED, "logits / temperature, targets",
         "All images are reported, and T was fitted on half of them: report the second half."),
        (" / temperature", "", "The plain trainings are not scaled: divide the logits by T."),
        ("/ temperature", "* temperature", "The logits are multiplied by T: divide by it."),
        ("[half:] /", "[half:].softmax(dim=1) /",
         "The probabilities are divided by T: divide the logits, before the softmax."),
        (SCALED, "(logits[half:] / temperature).softmax(dim=1), targets[half:]",
         "calibration_error gets probabilities: it takes logits."),
        ("scaled.append(", "scaled.append(100 * ", PERCENT),
        (SMOOTHED, f"calibration_error(logits[half:] / {FIT}, targets[half:])",
         "The smoothed trainings are scaled too: report them as they were trained."),
        (SMOOTHED, "calibration_error(logits, targets)",
         "It has all images of the smoothed trainings: report the second half, as for the plain "
         "ones."),
        (SMOOTHED, "calibration_error(logits[:half], targets[:half])",
         "It has the first half of the smoothed trainings: report the second half of both."),
        ("smoothed.append(", "smoothed.append(100 * ", PERCENT),
        (EDGES, "\"low\": -100 * change.high, \"high\": -100 * change.low",
         "The interval has the wrong sign: it is of smoothed minus scaled."),
        ("answer |=", "from scipy.stats import ttest_ind\n    apart = ttest_ind(smoothed, scaled, "
         "equal_var=False).confidence_interval(0.95)\n    answer |=",
         EDGES, EDGES.replace("change", "apart"),
         "The interval is unpaired: take the differences seed by seed first."),
        (*_interval_by_hand("1.96 * points.std(ddof=1) / 2"),
         "The interval uses 1.96; with so few seeds take the t distribution, or "
         "paired_difference."),
        (*_interval_by_hand("3.1824463 * points.std() / 2"),
         "The interval takes the standard deviation with ddof=0: few seeds need ddof=1."),
        (EDGES, "\"low\": change.low, \"high\": change.high",
         "The interval is in units of 1, not in points: multiply by 100."),
        (EDGES, "\"low\": 100 * change.high, \"high\": 100 * change.low",
         "not the 95 % interval of smoothed minus scaled"),
        ("more_is_better=False", "", "a lower calibration error is better"),
        (VERDICT, f"\"equivalent\" if change.low < 0 < change.high else {VERDICT}",
         "equivalent needs the whole interval within ±1 point"),
        ("=False", "=False, margin=0", "an interval within ±1 point is equivalent"),
        (VERDICT, "\"equivalent\"", "is helps, not equivalent: a lower calibration error"),
        ("\"scaled\": scaled", "\"scaled\": scaled[0]", "give one calibration error per seed"),
        ("\"scaled\": scaled", "\"scaled\": [0.1] * 4", "does not hold the calibration errors"),
        ("\"loss\": loss}, seeds", "\"loss\": loss}, range(4, 8)", "pair them"),
        ("range(4)", "(0, 0, 1)", "A seed is there twice"),
        ("range(4)", "(0, 1)", "three seeds or more"),
        ("smoothing=0.1", "smoothing=0.0", "No training is smoothed"),
        (PLAIN_TRAINING, "train({\"loss\": partial(F.cross_entropy, label_smoothing=0.2)}",
         "No training is plain"),
        ("return answer", "answer", "Return a dictionary"),
        ("\"smoothed\": smoothed", "", "lacks smoothed"),
        (f"{PLAIN_TRAINING}, seeds)", "[]", "train({\"pretrained\": True, \"loss\": loss}, seeds)",
         "[]", "change = paired_difference(scaled, smoothed)",
         "change = paired_difference([0, 0], [0, 0])", "Nothing was trained"),
    ],
    "smooth_targets": [
        (SMOOTH, "(1 - smoothing) * hard + smoothing * (1 - hard) / (num_classes - 1)",
         "ε is spread over the C − 1 wrong classes; PyTorch spreads it over all C."),
        (SMOOTH, "torch.where(hard == 1, 1 - smoothing, smoothing / num_classes)",
         "The right class lacks its own share of ε, which all C classes get."),
        (SMOOTH, "smoothing * hard + (1 - smoothing) / num_classes",
         "ε is the share that is spread over all classes; here 1 − ε is spread."),
        ("(1 - smoothing) * hard", "hard",
         "one sums to 1.100. What all classes get must be taken from the right one."),
        (" / num_classes", "", "each row sums to 1, and here one sums to 1.300."),
        (" + smoothing / num_classes", "", "each row sums to 1, and here one sums to 0.900."),
        (SMOOTH, "hard", "the right class has 0.925 and each other one 0.025."),
        (SMOOTH, f"({SMOOTH}).long()", "cuts shares off to 0"),
        (SMOOTH, "targets.float()", "12 targets of 4 classes, ε = 0.1: the shape is"),
        ("return", "return targets if smoothing == 0 else", "ε = 0.0: the shape is"),
        ("targets, num_classes).", "targets).", "10 classes, ε = 0.5: the shape is"),
        (SMOOTH, f"({SMOOTH}).tolist()", "Return a tensor"),
    ],
    "equal_mass_error": [
        (GAP, "(right[g] - confidence[g]).abs().mean()",
         "The distance is taken prediction by prediction: average inside a group first."),
        ("* abs(", "* (", NO_ABSOLUTE),
        ("* abs(", "* -(", NO_ABSOLUTE),
        ("len(g) * ", "", "len(targets))", "len(gaps))",
         "The groups differ in size: weigh each gap by its number of predictions."),
        ("len(g) * ", "", "sum(gaps) / len(targets)", "max(gaps)",
         "That is the largest gap of a group: take the mean, weighted by size."),
        ("sum(gaps)", "100 * sum(gaps)",
         "That is a percentage: the error is a number from 0 to 1."),
        ("groups = confidence.argsort()", "confidence = confidence.sort().values\n    "
         "groups = torch.arange(len(targets))",
         "The confidences are sorted, but which answers are right keeps the old order."),
        ("confidence.argsort()", "torch.arange(len(targets))",
         "The predictions are grouped as they come: sort them by confidence first."),
        ("confidence.argsort().tensor_split(num_bins)", "[((confidence * num_bins).long() == "
         "number).nonzero()[:, 0] for number in range(num_bins)]",
         "The bins have equal width: they should hold equally many predictions."),
        ("split(num_bins)", "split(max(num_bins - 1, 1))", "There is one group too few."),
        ("tensor_split(num_bins)", f"split({SIZE})[:num_bins]", DROPPED),
        ("tensor_split(num_bins)", f"split({SIZE})[:num_bins]",
         "len(g) * ", "", "/ len(targets))", "/ len(gaps))", DROPPED),
        ("split(num_bins)", f"split([{SIZE} * number for number in range(1, num_bins)])",
         "The last group takes all that are left over: the first groups take one more each."),
        ("argsort()", "argsort(descending=True)",
         "The groups of the highest confidence take one more: those of the lowest should."),
        ("tensor_split", "chunk",
         "All groups but the last have ⌈N / groups⌉ predictions: sizes may differ by one only."),
        ("confidence.argsort()", "probabilities[:, 0].argsort()",
         "groups of equal size have the error"),
        ("probabilities.max(dim=1)", "probabilities[:, 1], targets",
         "groups of equal size have the error"),
        ("return float", "float", "Return one finite number"),
    ],
    "train_smoothed": [
        ("model(images)", "model(images).softmax(dim=1)",
         "There is a softmax before cross_entropy, which applies its own: give it logits."),
        (", label_smoothing=smoothing", "", "The training loss is not smoothed."),
        ("targets, label_smoothing=smoothing",
         "torch.where(F.one_hot(targets, 4) == 1, 1 - smoothing, smoothing / 3)",
         "In training ε is spread over the wrong classes; PyTorch spreads it over all."),
        ("        optimizer.zero_grad()\n", "",
         "Gradients of older batches count in a step: zero_grad is missing."),
        ("lr=lr", "lr=0.1", "The steps have the learning rate 0.1, not lr, which is 0.3 here."),
        ("val_targets)", "val_targets, label_smoothing=smoothing)",
         "The validation loss is smoothed: runs with another ε could not be compared with it."),
        ("entropy(logits", "entropy(logits.softmax(dim=1)",
         "The validation loss is that of probabilities: cross_entropy wants logits here too."),
        ("logits.softmax(dim=1)", "logits",
         "The mean of the largest logits is no confidence: take probabilities."),
        ("amax(dim=1)", "gather(1, val_targets[:, None])",
         "Confidence is the probability of the class that is named, not of the true one."),
        ("    model.eval()\n", "", "validate in eval mode"),
        ("    model.train()\n", "", "Train in train mode"),
        ("optimizer.step()", "optimizer.zero_grad()", "The weights never change"),
        ("(), confidence", "() - smoothing, confidence", "The validation loss is"),
        ("amax(dim=1)", "amin(dim=1)", "The mean confidence is"),
        ("zero_grad()", "zero_grad()\n        lr = 2 * lr", "lr=lr", "lr=2 * lr",
         "The weights are not those of SGD on the smoothed loss of each batch."),
        ("return F", "return confidence.item() #", "Return two numbers"),
    ],
}  # fmt: skip

RIGHT = {
    "smoothing_experiment": [
        ("range(4)", "[4, 9, 2, 7, 1]", "{\"pretrained\": True}", "{}",
         "partial(F.cross_entropy, label_smoothing=0.1)",
         "torch.nn.CrossEntropyLoss(label_smoothing=0.05)",
         *_interval_by_hand("2.7764451 * points.std(ddof=1) / 5**0.5")),
        # tries another strength too
        ("loss = p", "train({\"loss\": torch.nn.CrossEntropyLoss(label_smoothing=0.3)}, seeds)\n"
         "    loss = p", "{\"pretrained\": True}", "{\"loss\": F.cross_entropy}",
         SMOOTHED, "calibration_error(logits.chunk(2)[1], targets.chunk(2)[1])",
         "=False)", "=False, margin=0.01)"),
    ],
    "smooth_targets": [
        (SMOOTH, "torch.where(hard == 1, 1 - smoothing + smoothing / num_classes, "
         "smoothing / num_classes)"),
        (SMOOTH, "hard.lerp(torch.full_like(hard, 1 / num_classes), smoothing)"),
    ],
    "equal_mass_error": [
        (f"len(g) * {GAP} for g in groups if len(g)",
         "(right[g] - confidence[g]).sum().abs() for g in groups"),
        """
def equal_mass_error(probabilities, targets, num_bins):
    p = probabilities.numpy()
    order = np.argsort(p.max(axis=1))
    miss = p.max(axis=1)[order] - (p.argmax(axis=1) == targets.numpy())[order]
    return np.float32(sum(abs(part.sum()) for part in np.array_split(miss, num_bins)) / len(miss))
""",
    ],
    "train_smoothed": [
        # the smoothed loss as two sums
        ("F.cross_entropy(model(images), targets, label_smoothing=smoothing).backward()",
         "logs = model(images).log_softmax(dim=1)\n        ((1 - smoothing) * "
         "F.nll_loss(logs, targets) - smoothing * logs.mean()).backward()",
         "no_grad", "inference_mode", "val_targets).item(), confidence.item()",
         "val_targets), confidence"),
        # smoothed probabilities as targets
        ("targets, label_smoothing=smoothing",
         "F.one_hot(targets, 4).float().lerp(torch.tensor(0.25), smoothing)",
         "        optimizer.zero_grad()\n", "", "optimizer.step()\n",
         "optimizer.step()\n        model.zero_grad()\n"),
    ],
}  # fmt: skip
