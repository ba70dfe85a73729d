"""Planted answers of lesson 04: each wrong one must be rejected, in words that name its fault.

Exercise (its ``grade_id``) to a list of ``(source, part of the expected sentence)``.
"""

FLAT = """
import math

def flat_cosine(step, peak_lr, min_lr, flat_steps, total_steps):
    if step {comparison} flat_steps:
        return peak_lr
    progress = {progress}
    return {value}
"""

WARMUP = """
from torch.optim import lr_scheduler as schedulers

def linear_warmup(optimizer, total_steps, warmup_steps):
    {body}
"""

TRAIN = """
import math
from torch import nn
from torch.optim import SGD
from course_utils.schedules import warmup_cosine

def train_with_schedule(model, dataset, loader, epochs, peak_lr):
    optimizer = SGD(model.parameters(), lr=peak_lr)
    total_steps = {total}
    schedule = warmup_cosine(optimizer, total_steps, warmup_steps={warmup})
    rates = []
    for _ in range(epochs):
        for images, targets in loader:
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), targets).backward()
            optimizer.step()
            {each_step}
        {each_epoch}
    return rates
"""

COSINE = "min_lr + (peak_lr - min_lr) * (1 + math.cos(math.pi * progress)) / 2"
RIGHT = {
    "comparison": "<=",
    "progress": "(step - flat_steps) / (total_steps - 1 - flat_steps)",
    "value": COSINE,
}
TRAINED = {
    "total": "epochs * len(loader)",
    "warmup": "total_steps // 10",
    "each_step": "schedule.step()",
    "each_epoch": "pass",
}


def _flat(**changed: str) -> str:
    return FLAT.format(**RIGHT | changed)


def _warmup(*lines: str) -> str:
    return WARMUP.format(body="\n    ".join(lines))


def _lambda(factor: str) -> str:
    return _warmup(f"return schedulers.LambdaLR(optimizer, lambda step: {factor})")


def _train(**changed: str) -> str:
    return TRAIN.format(**TRAINED | changed)


ALL_IMAGES = "epochs * math.ceil(len(dataset) / loader.batch_size)"

WRONG_ANSWERS = {
    "flat_cosine": [
        (_flat(progress="(step - flat_steps) / (total_steps - flat_steps)"), "many steps forward"),
        (_flat(value="peak_lr * (1 + math.cos(math.pi * progress)) / 2"), "has the rate 0"),
        (_flat(progress="step / (total_steps - 1)"), "The ends are right"),
        (_flat(value="min_lr + (peak_lr - min_lr) * (1 - progress)"), "half a cosine"),
        (_flat(value="peak_lr + (min_lr - peak_lr) * (1 + math.cos(math.pi * progress)) / 2"),
         "The last step"),
        (_flat(comparison="<", progress="(step + 1 - flat_steps) / (total_steps - flat_steps)"),
         "still has the peak|Step 0 has the peak"),
        (_flat(value="None"), "on every path"),
    ],
    "linear_warmup": [
        (_lambda("min(1, step / max(1, warmup_steps))"), "the rate 0"),
        (_lambda("min(1, (step + 1) / max(1, warmup_steps))"), "step 0 has 0.2 of the full rate"),
        (_lambda("(step + 1) / (warmup_steps + 1)"), "After warm-up the rate stays"),
        (_lambda("1"), "step 0 has 0.2 of the full rate, here it is 1"),
        (_lambda("min(1, (step + 1) / total_steps)"), "step 0 has 0.2"),
        (_warmup("s = schedulers.LambdaLR(optimizer, lambda n: min(1, (n + 1) / "
                 "(warmup_steps + 1)))", "for g in optimizer.param_groups:",
                 "    g['initial_lr'] = 0.3", "s.base_lrs = [0.3, 0.3]", "return s"),
         "lost their proportion"),
        (_warmup("pass"), "Return a scheduler"),
    ],
    "train_with_schedule": [
        (_train(total=ALL_IMAGES), "how many batches does the loader yield|A tenth of"),
        (_train(each_step="pass", each_epoch="schedule.step()"), "only once an epoch"),
        (_train(warmup="10"), "A tenth of 50 steps is 5"),
        (_train(total=ALL_IMAGES, warmup="epochs * len(loader) // 10"), "how many batches"),
        (_train(total=ALL_IMAGES, warmup="10", each_step="pass", each_epoch="schedule.step()"),
         "only once an epoch"),
        (_train(warmup="0"), "the peak comes at step 0"),
        (_train().replace("return rates", "return rates[1:]"), "rates came back"),
        (_train().replace("optimizer.zero_grad()", "pass"), "The weights are not those of SGD"),
        (_train().replace("nn.functional.cross_entropy(model(images), targets)",
                          "model(images).sum()"), "The weights are not those of SGD"),
        (_train(each_step="pass").replace("optimizer.step()", "schedule.step(); optimizer.step()"),
         "The weights are not those of SGD"),
        (_train().replace("return rates", "pass"), "Return the list"),
    ],
}  # fmt: skip

OTHER_RIGHT_ANSWERS = {
    "flat_cosine": (
        "import numpy as np\n"
        "def flat_cosine(step, peak_lr, min_lr, flat_steps, total_steps):\n"
        "    t = max(0, step - flat_steps) / (total_steps - 1 - flat_steps)\n"
        "    return np.asarray((peak_lr + min_lr) / 2 + (peak_lr - min_lr) / 2 * np.cos(np.pi * t))"
    ),
    "linear_warmup": _warmup(
        "if not warmup_steps:",
        "    return schedulers.ConstantLR(optimizer, 1.0)",
        "return schedulers.LinearLR(optimizer, 1 / (warmup_steps + 1), 1.0, warmup_steps)",
    ),
    "train_with_schedule": _train(total="sum(1 for _ in loader) * epochs"),
}
