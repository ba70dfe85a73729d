"""Label smoothing: a share of every target is spread evenly over all classes."""

from functools import partial

import torch
import torch.nn.functional as F

from tests.techniques.record import CLASSES, soften

SMOOTHING = 0.2
SEAM = {"loss": partial(F.cross_entropy, label_smoothing=SMOOTHING)}


def invariant(record):
    """The training loss is that of targets of which a share is spread over all C classes."""
    for logits, targets, loss in record.losses:
        smooth = (1 - SMOOTHING) * soften(targets) + SMOOTHING / CLASSES
        expected = -(smooth * logits.float().log_softmax(dim=1)).sum(dim=1).mean()
        torch.testing.assert_close(loss, expected, atol=1e-5, rtol=0)


def smooth_over_others(logits, targets):
    soft = soften(targets)
    return F.cross_entropy(logits, (1 - SMOOTHING) * soft + SMOOTHING * (1 - soft) / (CLASSES - 1))


def softmax_first(logits, targets):
    return F.cross_entropy(logits.softmax(dim=1), targets, label_smoothing=SMOOTHING)


def smooth_soft_targets_only(logits, targets):
    return F.cross_entropy(logits, targets, label_smoothing=SMOOTHING if targets.ndim > 1 else 0)


FAULTS = [("loss", smooth_over_others), ("loss", softmax_first)]
# Either of the two makes soft targets of all that there are.
MASKED_FAULTS = [("loss", smooth_soft_targets_only, ("cutmix", "mixup"))]


# Planted answers of the lesson's exercises.
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


def _smooth(value: str) -> str:
    return SMOOTH.format(value=value)


def _equal(**changed: str) -> str:
    return EQUAL.format(**RIGHT_EQUAL | changed)


def _train(**changed: str) -> str:
    return TRAIN.format(**RIGHT_TRAIN | changed)


WRONG_ANSWERS = {
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
