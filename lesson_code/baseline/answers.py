"""Planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

INTERVAL = """
import numpy as np
from scipy import stats

def paired_interval(baseline, treated):
    {body}
"""


EVALUATE = """
import torch
import torch.nn.functional as F

def evaluate(model, batches):
    {body}
"""


TRAIN = """
import torch.nn.functional as F

def train_epoch(model, batches, optimizer):
    model.train()
    total = 0.0
    for images, targets in batches:
        {body}
    return total / len(batches)
"""


def _interval(half: str, difference: str = "np.asarray(treated) - np.asarray(baseline)") -> str:
    lines = (f"d = {difference}", "n = len(d)", f"half = {half}")
    return INTERVAL.format(body="\n    ".join((*lines, "return d.mean() - half, d.mean() + half")))


def _evaluate(*lines: str) -> str:
    return EVALUATE.format(body="\n    ".join(lines))


def _train(*lines: str) -> str:
    return TRAIN.format(body="\n        ".join(lines))


T = "stats.t.ppf(0.975, n - 1)"


LOOP = "for images, targets in batches:"


SUM = "    total += F.cross_entropy(model(images), targets, reduction='sum').item()"


COUNT = "    count += len(targets)"


START = "total, count, training = 0.0, 0, model.training"


FORWARD = "loss = F.cross_entropy(model(images), targets)"


WRONG_ANSWERS = {
    "measure_change": plant_experiments("measure_change"),
    "paired_interval": [
        (_interval("stats.t.ppf(0.995, n - 1) * d.std(ddof=1) / np.sqrt(n)"), "too wide"),
        (_interval(f"-{T} * d.std(ddof=1) / np.sqrt(n)"), "lower edge comes first"),
        (INTERVAL.format(body="pass"), "Return two numbers"),
        (_interval(f"{T} * d.std(ddof=1) / np.sqrt(n)", "np.asarray(baseline) - treated"),
         "sign"),
        (INTERVAL.format(body="return 1 / 0"), "stopped with ZeroDivisionError"),
        (INTERVAL.format(body="return 0.0, 1.0"), "middle"),
        (_interval(f"{T} * d.std(ddof=1) / np.sqrt(n)",
                   "np.subtract(treated, baseline, out=treated)"), "changes the arrays"),
    ],
    "evaluate": [
        (_evaluate("pass"), "is there a return"),
        (_evaluate(START, "model.eval()", LOOP, "    logits = model(images).softmax(1)",
                   "    total += F.cross_entropy(logits, targets, reduction='sum').item()", COUNT,
                   "model.train(training)", "return total / count"), "give it the logits"),
        (_evaluate(START, "model.eval()", "torch.set_grad_enabled(False)", LOOP, SUM, COUNT,
                   "model.train(training)", "return total / count"), "Gradients are off"),
        (_evaluate(START, LOOP, SUM, COUNT, "return total / count"), "BatchNorm"),
        (_evaluate(START, "model.eval()", LOOP, SUM, COUNT, "return total / count"), "mode"),
        (_evaluate(START, "model.eval()", LOOP, SUM, COUNT, "model.train()",
                   "return total / count"), "mode"),
        (_evaluate(START, "model.eval()", LOOP, SUM, COUNT, "model.train(training)",
                   "return torch.tensor(total / count)"), "plain Python float"),
        (_evaluate(START, "model.eval().requires_grad_(False)", LOOP, SUM, COUNT,
                   "model.train(training)", "return total / count"), "parameters are frozen now"),
        (_evaluate(START, "model.eval()", LOOP, f"    {FORWARD}", "    loss.backward()",
                   "    total += loss.item() * len(targets)", COUNT,
                   "model.train(training)", "return total / count"), "have gradients now"),
    ],
    "train_epoch": [
        (_train(FORWARD, "loss.backward()", "optimizer.step()", "total += loss.item()"),
         "gradient of its own batch"),
        (_train("optimizer.zero_grad()", "logits = model(images)",
                "loss = F.cross_entropy(logits.softmax(1), targets)", "loss.backward()",
                "optimizer.step()", "total += loss.item()"), "logits"),
        (_train("optimizer.zero_grad()", FORWARD, "loss.backward()", "optimizer.step()",
                "total += loss"), "history"),
        (TRAIN.replace("model.train()", "pass").format(body="\n        ".join(
            ("optimizer.zero_grad()", FORWARD, "loss.backward()", "optimizer.step()",
             "total += loss.item()"))), "eval mode"),
        (_train("optimizer.zero_grad()", FORWARD, "loss.backward()", "optimizer.step()",
                "total += F.cross_entropy(model(images), targets).item()"),
         "each before its step, is .*; yours is"),
        (_train("optimizer.zero_grad()", FORWARD, "(2 * loss).backward()", "optimizer.step()",
                "total += loss.item()"), "differ from those of a correct loop"),
        (_train(FORWARD, "loss.backward()", "optimizer.zero_grad()", "optimizer.step()",
                "total += loss.item()"), "No weight has changed"),
        (_train("optimizer.zero_grad()", FORWARD, "loss.backward()", "optimizer.step()",
                "total = 3 * loss.item()"), "is the last loss"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "measure_change": [
        # by hand, at other seeds
        """
def measure_change(config, data):
    faster = config.replace(peak_lr=3 * config.peak_lr)
    columns = [
        [fit(setting, data, seed=seed).metrics["val_accuracy"] for seed in (5, 6, 7)]
        for setting in (config, faster)
    ]
    found = stats.ttest_rel(columns[1], columns[0]).confidence_interval(0.95)
    return columns[0], columns[1], found.low, found.high
""",
        """
def measure_change(config, data):
    small = {"config": config.replace(batch_size=48)}
    found = compare(config, data, {"baseline": {}, "large batches": small}, seeds=range(4))
    changed = found.difference("large batches")
    return [*map(found.values, found.arms), changed.low, changed.high]
""",
    ],
    "paired_interval": [
        """
def paired_interval(baseline, treated):
    return stats.ttest_rel(treated, baseline).confidence_interval(0.95)
""",
        """
def paired_interval(baseline, treated):
    pairs = [after - before for before, after in zip(baseline, treated, strict=True)]
    mean, error = sum(pairs) / len(pairs), stats.sem(pairs)
    return stats.t.interval(0.95, df=len(pairs) - 1, loc=mean, scale=error)
""",
    ],
    "evaluate": [
        """
@torch.inference_mode()
def evaluate(model, batches):
    before = model.training
    model.eval()
    images, targets = (torch.cat(parts) for parts in zip(*batches))
    found = np.float32(F.cross_entropy(model(images), targets).item())
    model.train(before)
    return found
""",
        # looks at a copy, so that there is nothing to restore
        """
def evaluate(model, batches):
    frozen = copy.deepcopy(model).eval().requires_grad_(False)
    losses = [F.cross_entropy(frozen(x), y, reduction="none") for x, y in batches]
    return torch.cat(losses).mean().item()
""",
    ],
    "train_epoch": [
        """
def train_epoch(model, batches, optimizer):
    model.train()
    losses = []
    for images, targets in batches:
        loss = F.cross_entropy(model(images), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return float(np.mean(losses))
""",
        # hands the optimizer a closure, and the model back in the mode in which it came
        """
def train_epoch(model, batches, optimizer):
    was_training = model.training
    model.train()

    def step(images, targets):
        optimizer.zero_grad()
        loss = torch.nn.CrossEntropyLoss()(model(images), targets)
        loss.backward()
        return loss.detach()

    losses = torch.stack([optimizer.step(partial(step, *batch)) for batch in batches])
    model.train(was_training)
    return losses.mean().item()
""",
    ],
}
