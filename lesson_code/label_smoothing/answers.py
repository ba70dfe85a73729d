"""Planted answers of the lesson's exercises."""

EXPERIMENT = """
def smoothing_experiment(train, fit_temperature):
    plain = train({options}, {seeds})
    loss = partial(F.cross_entropy, label_smoothing={smoothing})
    smooth = train({{"pretrained": True, "loss": loss}}, {other_seeds})
    scaled, smoothed = [], []
    for logits, targets in plain:
        half = len(targets) // 2
        t = fit_temperature({fitted})
        scaled.append({scaled})
    for logits, targets in smooth:
        half = len(targets) // 2
        smoothed.append({smoothed})
    found = paired_difference(scaled, smoothed)
    low, high, verdict = 100 * found.low, 100 * found.high, found.verdict(more_is_better=False)
    {after}
    return {{"scaled": scaled, "smoothed": smoothed, "low": low, "high": high, "verdict": verdict}}
"""


RIGHT_EXPERIMENT = {
    "options": "{}",
    "seeds": "(0, 1, 2)",
    "other_seeds": "(0, 1, 2)",
    "smoothing": "0.1",
    "fitted": "logits[:half], targets[:half]",
    "scaled": "calibration_error(logits[half:] / t, targets[half:])",
    "smoothed": "calibration_error(logits[half:], targets[half:])",
    "after": "",
}


SMOOTH = """
import torch
import torch.nn.functional as F

def smooth_targets(targets, num_classes, smoothing):
    hard = F.one_hot(targets, num_classes).float()
    return {value}
"""


EQUAL = """
def equal_mass_error(probabilities, targets, num_bins):
    confidence, answers = probabilities.max(dim=1)
    right = (answers == targets).float()
    groups = {groups}
    gaps = [{gap} for g in groups if len(g)]
    return {value}
"""


TRAIN = """
import torch
import torch.nn.functional as F

def train_smoothed(model, train_batches, val_images, val_targets, smoothing, lr=0.1):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    model.train()
    for images, targets in train_batches:
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        logits = model(val_images)
    val_loss = {val_loss}
    confidence = {confidence}
    return val_loss.item(), confidence.item()
"""


RIGHT_EQUAL = {
    "groups": "confidence.argsort().tensor_split(num_bins)",
    "gap": "len(g) * abs(right[g].mean() - confidence[g].mean())",
    "value": "float(sum(gaps) / len(targets))",
}


RIGHT_TRAIN = {
    "loss": "F.cross_entropy(model(images), targets, label_smoothing=smoothing)",
    "val_loss": "F.cross_entropy(logits, val_targets)",
    "confidence": "logits.softmax(dim=1).amax(dim=1).mean()",
}


DOUBLE = "F.cross_entropy(model(images).softmax(dim=1), targets, label_smoothing=smoothing)"


SMOOTHED = "F.cross_entropy(logits, val_targets, label_smoothing=smoothing)"


def _experiment(**changed: str) -> str:
    return EXPERIMENT.format(**RIGHT_EXPERIMENT | changed)


def _smooth(value: str) -> str:
    return SMOOTH.format(value=value)


def _equal(**changed: str) -> str:
    return EQUAL.format(**RIGHT_EQUAL | changed)


def _train(**changed: str) -> str:
    return TRAIN.format(**RIGHT_TRAIN | changed)


WRONG_ANSWERS = {
    "smoothing_experiment": [
        # The check knows these too; a second source shows that each sentence is about its fault.
        (_experiment(fitted="logits, targets"), "T is fitted on all images"),
        (_experiment(fitted="logits[half:], targets[half:]"), "fitted on the half that is report"),
        (_experiment(scaled="calibration_error(logits[half:], targets[half:])"), "not scaled"),
        (_experiment(scaled="calibration_error(logits / t, targets)"), "All images are reported"),
        (_experiment(smoothed="calibration_error(logits, targets)"), "It has all images"),
        (_experiment(after="verdict = found.verdict()"), "a lower calibration error is better"),
        (_experiment(after="low, high = found.low, found.high"), "in units of 1, not in points"),
        (_experiment(after="low, high = high, low"), "not the 95 % interval of smoothed minus"),
        (_experiment(after="verdict = 'equivalent'"), "is helps, not equivalent"),
        (_experiment(after="scaled = scaled[0]"), "give one calibration error per seed"),
        (_experiment(after="scaled = [0.1, 0.1, 0.1]"), "does not hold the calibration errors"),
        (_experiment(smoothed="calibration_error(logits[half:] / t, targets[half:])"),
         "smoothed does not hold|smoothed: "),
        (_experiment(other_seeds="(3, 4, 5)"), "pair them"),
        (_experiment(seeds="(0, 0, 1)", other_seeds="(0, 0, 1)"), "A seed is there twice"),
        (_experiment(seeds="(0, 1)", other_seeds="(0, 1)"), "three seeds or more"),
        (_experiment(smoothing="0.0"), "No training is smoothed"),
        (_experiment(options="{'loss': partial(F.cross_entropy, label_smoothing=0.2)}"),
         "No training is plain"),
        (_experiment(after="return scaled, smoothed"), "Return a dictionary"),
        (_experiment(after="return {'scaled': scaled}"), "lacks high, low, smoothed, verdict"),
        ("def smoothing_experiment(train, fit_temperature):\n    return {'scaled': [0.1], "
         "'smoothed': [0.1], 'low': 0, 'high': 0, 'verdict': 'equivalent'}",
         "Nothing was trained"),
    ],
    "smooth_targets": [
        (_smooth("(1 - smoothing) * hard + smoothing * (1 - hard) / (num_classes - 1)"),
         "over the C − 1 wrong classes"),
        (_smooth("torch.where(hard == 1, 1 - smoothing, smoothing / num_classes)"),
         "lacks its own share"),
        (_smooth("hard + smoothing / num_classes"), "each row sums to 1.*1.100. What all classes"),
        (_smooth("(1 - smoothing) * hard + smoothing"), "each row sums to 1"),
        (_smooth("(1 - smoothing) * hard"), r"here one sums to 0.900.$"),
        (_smooth("smoothing * hard + (1 - smoothing) / num_classes"), "here 1 − ε is spread"),
        (_smooth("hard"), "the right class has"),
        (_smooth("((1 - smoothing) * hard + smoothing / num_classes).long()"), "cuts shares off"),
        (_smooth("targets.float()"), "the shape is"),
        (_smooth("targets if smoothing == 0 else (1 - smoothing) * hard + smoothing / num_classes"),
         "ε = 0.0: the shape is"),
        (_smooth("(1 - smoothing) * hard + smoothing / num_classes")
         .replace("hard = F.one_hot(targets, num_classes)", "hard = F.one_hot(targets)"),
         "classes, ε = .*: the shape is"),
        (_smooth("hard.tolist()"), "Return a tensor"),
    ],
    "equal_mass_error": [
        (_equal(groups="[((confidence * num_bins).floor() == b).nonzero()[:, 0] "
                       "for b in range(num_bins)]"), "bins have equal width"),
        (_equal(gap="len(g) * (right[g].mean() - confidence[g].mean())"), "opposite sign cancel"),
        (_equal(groups="probabilities[:, 0].argsort().tensor_split(num_bins)"),
         "groups of equal size have the error"),
        (_equal(value="None"), "Return one finite number"),
        (_equal().replace("probabilities.max(dim=1)", "probabilities[:, 1], targets"),
         "groups of equal size have the error|prediction by prediction"),
    ],
    "train_smoothed": [
        # The check knows these too; a second source shows that each sentence is about its fault.
        (_train(confidence="logits.max(dim=1).values.mean()"), "is no confidence"),
        (_train(confidence="logits.softmax(dim=1).gather(1, val_targets[:, None]).mean()"),
         "not of the true one"),
        (_train(loss=DOUBLE, val_loss=SMOOTHED, confidence="logits.max(dim=1).values.mean()"),
         "softmax before cross_entropy"),
        (_train().replace("model.eval()", "pass"), "eval mode"),
        (_train().replace("model.train()", "pass"), "Train in train mode"),
        (_train().replace("loss.backward()", "loss.backward(); optimizer.zero_grad()"),
         "never change"),
        (_train(val_loss="F.cross_entropy(logits.softmax(dim=1), val_targets)"),
         "that of probabilities"),
        (_train(val_loss=f"{SMOOTHED} - smoothing"), "The validation loss is"),
        (_train().replace("val_loss.item(), confidence", "confidence"), "Return two numbers"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "smoothing_experiment": [
        # the interval by hand, five seeds, a loss object
        """
def smoothing_experiment(train, fit_temperature):
    def errors(answered, is_plain):
        for logits, targets in answered:
            fitted, reported = logits.chunk(2)
            known, asked = targets.chunk(2)
            t = fit_temperature(fitted, known) if is_plain else 1
            yield calibration_error(reported / t, asked)

    seeds = [4, 9, 2, 7, 1]
    smooth = torch.nn.CrossEntropyLoss(label_smoothing=0.05)
    result = {
        "smoothed": np.array(list(errors(train({"loss": smooth}, seeds), False))),
        "scaled": np.array(list(errors(train({}, seeds), True))),
    }
    points = 100 * (result["smoothed"] - result["scaled"])
    half = 2.7764451051977987 * points.std(ddof=1) / math.sqrt(5)
    low, high = points.mean() - half, points.mean() + half
    verdict = "helps" if high < 0 else "hurts" if low > 0 else "inconclusive"
    if -1 <= low and high <= 1:
        verdict = "equivalent"
    return result | {"low": low, "high": high, "verdict": verdict}
""",
        # two strengths, and the better one is reported
        """
def smoothing_experiment(train, fit_temperature):
    seeds = (0, 1, 2)
    scaled = []
    for logits, targets in train({"pretrained": True, "loss": F.cross_entropy}, seeds):
        n = len(targets) // 2
        t = fit_temperature(logits[:n], targets[:n])
        scaled.append(calibration_error(logits[n:].div(t), targets[n:], 15))
    tried = []
    for eps in (0.3, 0.02):
        def loss(logits, targets, eps=eps):
            return F.cross_entropy(logits, targets, label_smoothing=eps)

        answered = train(dict(loss=loss, pretrained=True), seeds)
        tried.append([calibration_error(a[len(b) // 2:], b[len(b) // 2:]) for a, b in answered])
    best = min(tried, key=np.mean)
    gap = paired_difference(scaled, best)
    return dict(
        scaled=scaled,
        smoothed=best,
        low=gap.low * 100,
        high=gap.high * 100,
        verdict=gap.verdict(more_is_better=False, margin=0.01),
    )
""",
    ],
    "smooth_targets": [
        """
def smooth_targets(targets, num_classes, smoothing):
    soft = torch.full((len(targets), num_classes), smoothing / num_classes)
    soft[torch.arange(len(targets)), targets] += 1 - smoothing
    return soft
""",
        # chooses between two values
        """
def smooth_targets(targets, num_classes, smoothing):
    off = smoothing / num_classes
    right = targets.unsqueeze(1) == torch.arange(num_classes)
    return torch.where(right, 1 - smoothing + off, off)
""",
    ],
    "equal_mass_error": [
        """
def equal_mass_error(probabilities, targets, num_bins):
    p = probabilities.numpy()
    order = np.argsort(p.max(axis=1))
    miss = p.max(axis=1)[order] - (p.argmax(axis=1) == targets.numpy())[order]
    return np.float32(sum(abs(part.sum()) for part in np.array_split(miss, num_bins)) / len(miss))
""",
        # as a table
        """
def equal_mass_error(probabilities, targets, num_bins):
    confidence, answers = probabilities.max(dim=1)
    table = pd.DataFrame({"confidence": confidence, "right": answers == targets})
    table = table.sort_values("confidence", ignore_index=True)
    size, longer = divmod(len(table), num_bins)
    sizes = [size + (number < longer) for number in range(num_bins)]
    table["bin"] = np.repeat(np.arange(num_bins), sizes)
    bins = table.groupby("bin").mean()
    return np.average((bins.right - bins.confidence).abs(), weights=sizes)
""",
    ],
    "train_smoothed": [
        # the smoothed loss as two sums
        """
def train_smoothed(model, train_batches, val_images, val_targets, smoothing, lr=0.1):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for images, targets in train_batches:
        logs = model.train()(images).log_softmax(dim=1)
        loss = -(1 - smoothing) * logs.gather(1, targets[:, None]).mean() - smoothing * logs.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.inference_mode():
        logs = model.eval()(val_images).log_softmax(dim=1)
        return F.nll_loss(logs, val_targets), logs.exp().max(dim=1)[0].mean()
""",
        # smoothed probabilities as targets
        """
def train_smoothed(model, train_batches, val_images, val_targets, smoothing, lr=0.1):
    optimizer = torch.optim.SGD(model.parameters(), lr)
    model.train()
    criterion = torch.nn.CrossEntropyLoss()
    for images, targets in train_batches:
        logits = model(images)
        hard = F.one_hot(targets, logits.shape[1]).float()
        soft = hard.lerp(torch.full_like(hard, 1 / logits.shape[1]), smoothing)
        model.zero_grad()
        criterion(logits, soft).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        probabilities = model(val_images).softmax(dim=1).numpy()
    of_targets = probabilities[np.arange(len(val_targets)), val_targets]
    return float(-np.log(of_targets).mean()), float(probabilities.max(axis=1).mean())
""",
    ],
}
