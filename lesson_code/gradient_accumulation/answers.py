"""Planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

PLAN = """
def plan_batches(effective_batch_size, limit, devices=1):
    share, rest = divmod(effective_batch_size, devices)
    if {uneven}:
        raise ValueError("the devices cannot share the batch evenly")
    size = {size}
    return {value}
"""


TOKENS = """
import torch.nn.functional as F
from torch import nn

def step_over_tokens(model, optimizer, window, max_norm):
    tokens = sum((targets != -100).sum().item() for _, targets in window)
    {first}
    for inputs, targets in window:
        {inside}
        logits = model(inputs).flatten(0, 1)
        loss = {loss}
        loss.backward()
        {after}
    norm = {norm}
    optimizer.step()
    return {value}
"""


TRAIN = """
import itertools
import torch.nn.functional as F

def train_windows(model, optimizer, schedule, batches, size):
    {source}
    {before}
    while window := list(itertools.islice(batches, size)):
        {drop}
        count = sum(len(targets) for _, targets in window)
        {first}
        for images, targets in window:
            {inside}
            loss = F.cross_entropy(model(images), targets, reduction="sum")
            ({loss}).backward()
            {each}
        {step}
        steps += 1
    {end}
    return {value}
"""


# the function of the lesson that has four faults, with some of them put right
BUGGY = """
import torch.nn.functional as F

def train_windows(model, optimizer, schedule, batches, size):
    steps = 0
    {before}
    for number, (images, targets) in enumerate(batches):
        {inside}
        loss = F.cross_entropy(model(images), targets)
        {loss}.backward()
        {each}
        if {full}:
            {step}
            steps += 1
    return steps
"""


RIGHT_PLAN = {
    "uneven": "rest",
    "size": "max(n for n in range(1, min(limit, share) + 1) if share % n == 0)",
    "value": "size, share // size",
}


SUM = "F.cross_entropy(logits, targets.flatten(), reduction='sum')"


OWN_MEAN = (
    "-(logits.log_softmax(1).gather(1, targets.flatten().clamp(min=0)[:, None])[:, 0]"
    " * (targets.flatten() != -100)).sum() / (targets != -100).sum()"
)


RIGHT_TOKENS = {
    "first": "optimizer.zero_grad()",
    "inside": "pass",
    "loss": f"{SUM} / tokens",
    "after": "pass",
    "norm": "nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
    "value": "norm.item()",
}


RIGHT_TRAIN = {
    "source": "batches, steps = iter(batches), 0",
    "before": "pass",
    "drop": "pass",
    "first": "optimizer.zero_grad()",
    "inside": "pass",
    "loss": "loss / count",
    "each": "pass",
    "step": "optimizer.step(); schedule.step()",
    "end": "pass",
    "value": "steps",
}


LESSON = {
    "before": "pass",
    "inside": "optimizer.zero_grad()",
    "loss": "loss",
    "each": "schedule.step()",
    "full": "(number + 1) % size == 0",
    "step": "optimizer.step()",
}


KEPT = {"before": "optimizer.zero_grad()", "inside": "pass"}


CLEARED = "optimizer.step(); optimizer.zero_grad()"


MOVED = {"each": "pass", "step": f"{CLEARED}; schedule.step()"}


def _plan(**changed: str) -> str:
    return PLAN.format(**RIGHT_PLAN | changed)


def _tokens(**changed: str) -> str:
    return TOKENS.format(**RIGHT_TOKENS | changed)


def _train(**changed: str) -> str:
    return TRAIN.format(**RIGHT_TRAIN | changed)


def _buggy(**changed: str) -> str:
    return BUGGY.format(**LESSON | changed)


WRONG_ANSWERS = {
    "measure_accumulation": plant_experiments("measure_accumulation"),
    "plan_batches": [
        (_plan(size="min(limit, share)"), "the micro-batch must divide the 512 images"),
        (_plan(size="min(limit, share)", value="size, -(-share // size)"), "must divide"),
        (_plan(size="1"), "1 is not the largest micro-batch, 12 fits"),
        (_plan(size="max(2**n for n in range(9) if 2**n <= limit and share % 2**n == 0)"),
         "4 is not the largest micro-batch, 12 fits"),
        (_plan(size="max(n for n in range(1, min(limit, share)) if share % n == 0)"),
         "not the largest"),
        (_plan(value="size, effective_batch_size // size"), "4 × too much"),
        (_plan(uneven="False"), "cannot share 512 images: ValueError"),
        (_plan(uneven="rest and share > 100"), "cannot share 10 images"),
        (_plan(size="limit if limit > share else " + RIGHT_PLAN["size"],
               value="size, max(1, share // size)"), "has only 16 images per device"),
        (_plan(size="max(n for n in range(1, share + 1) if share % n == 0)"), "does not fit"),
        (_plan(value="size, share / size"), "use //"),
        (_plan(value="share // size, size"), "swapped"),
        # for 512 images and a limit of 48 this has the right numbers in the wrong order
        (_plan(size="__import__('math').gcd(share, limit)"), "16 is not the largest micro-batch"),
        (_plan(uneven="rest or share % min(limit, share)"), "can be shared evenly, and"),
        (_plan(uneven="False").replace("    size =", "    assert not rest\n    size ="),
         "ValueError, not AssertionError"),
        (_plan(value="size"), "Return two numbers"),
        (_plan(value="None"), "Return two numbers"),
    ],
    "step_over_tokens": [
        (_tokens(loss=f"({OWN_MEAN}) * (targets != -100).sum() / tokens"), "is nan"),
        (_tokens(after="norm = " + RIGHT_TOKENS["norm"], norm="norm"),
         "clipped after each micro-batch"),
        (_tokens().replace("    norm =", "    optimizer.step()\n    norm =", 1)
         .replace("optimizer.step()\n    return", "return"), "not clipped before the step"),
        (_tokens(norm="nn.utils.get_total_norm([p.grad for p in model.parameters()]); "
                 "nn.utils.clip_grad_value_(model.parameters(), max_norm)"), "clip its norm"),
        (_tokens(loss="F.cross_entropy(model(inputs).reshape(len(inputs), 4, -1), targets,"
                 " reduction='sum') / tokens"), "mixes classes and tokens"),
        (_tokens().replace("targets != -100", "targets > 0"), "Class 0 does not count"),
        (_tokens(first="optimizer.zero_grad(); tokens = sum(t.shape[1] for _, t in window)"),
         "gradient is [0-9.]+ times"),
        (_tokens(loss=f"{SUM} * targets.shape[1] / tokens"), "another direction"),
        (_tokens(loss=SUM, norm="nn.utils.clip_grad_norm_(model.parameters(), max_norm * tokens)"
                 "; [p.grad.div_(tokens) for p in model.parameters()]"),
         "The returned norm is that of the sum"),
        (_tokens(norm=RIGHT_TOKENS["norm"] + "\n    norm = nn.utils.get_total_norm("
                 "[p.grad for p in model.parameters()])"), "is that after clipping"),
        (_tokens(value="norm.item() ** 2"), "The norm before clipping is"),
        (_tokens(value="None"), "Return the norm"),
        (_tokens(after="optimizer.step()"), "here 4 are taken"),
        (_tokens().replace("optimizer.step()", "pass"), "here 0 are taken"),
        (_tokens(inside="optimizer.zero_grad()"), "Only the last micro-batch"),
        (_tokens(norm=RIGHT_TOKENS["norm"] + "; optimizer.zero_grad()"), "has no gradient"),
        (_tokens(first="optimizer.zero_grad(); losses = 0", loss=f"{SUM} / tokens")
         .replace("loss.backward()", "losses = losses + loss")
         .replace("    norm =", "    losses.backward()\n    norm =", 1),
         "One backward for several"),
        (_tokens(loss="F.cross_entropy(model(inputs), targets, reduction='sum') / tokens"),
         "stopped with RuntimeError"),
    ],
    "train_windows": [
        (_buggy(), "Only the last micro-batch"),
        (_buggy(loss="(loss / size)"), "Only the last micro-batch"),
        (_buggy(**KEPT, step=CLEARED), "added, not averaged: a step of n micro-batches is n"),
        (_buggy(**KEPT, step=CLEARED, loss="(loss / size)"), "is stepped 5 times in 1 steps"),
        (_buggy(**KEPT, **MOVED, loss="(loss / size)"), "The last micro-batches are fewer than"),
        (_buggy(**KEPT | MOVED, loss="(loss / size)", full="number % size == 0"),
         "Only the first micro-batch counts"),
        (_buggy(**KEPT | MOVED | {"loss": "(loss / size)", "before": "batches = list(batches);"
                                  " optimizer.zero_grad()"},
                full="(number + 1) % size == 0 or number + 1 == len(batches)"),
         "divided as if it were complete"),
        (_train(inside="optimizer.zero_grad()"), "Only the last micro-batch"),
        (_train(loss="loss / len(targets) / size"), "divided as if it were complete"),
        (_train(loss="loss / (len(window) * len(window[0][1]))"), "gradient is [0-9.]+ times"),
        (_train(loss="loss / (size * len(window[0][1]))"), "divided as if it were complete"),
        (_train(each="schedule.step()", step="optimizer.step()"), "is stepped 5 times in 2 steps"),
        (_train(step="optimizer.step()", end="schedule.step()"), "is stepped 1 times in 2 steps"),
        (_train(step="optimizer.step()"), "is stepped 0 times"),
        (_train(step="schedule.step(); optimizer.step()"), "stepped before the optimizer"),
        (_train(drop="if len(window) < size: break"), "The last micro-batches are fewer than"),
        (_train(end="optimizer.step(); schedule.step(); steps += 1"), "A step too many"),
        (_train(each="optimizer.step()", step="schedule.step()"), "after every micro-batch"),
        (_train(first="pass", step="optimizer.step(); optimizer.zero_grad(); schedule.step()"),
         "from before the step"),
        (_train(first="pass", before="optimizer.zero_grad()"), "from before the step"),
        (_train(source="steps, _ = 0, sum(1 for _ in batches); batches = iter(batches)"),
         "can be read only once"),
        (_train(source="steps, _ = 0, len(batches); batches = iter(batches)"),
         "stopped with TypeError: .*no len"),
        (_train(step="schedule.step()"), "No step is taken"),
        (_train(step="optimizer.zero_grad(); optimizer.step(); schedule.step()"),
         "has no gradient"),
        (_train(inside="import torch; images, targets = map(torch.cat, zip(*window))",
                each="break"), "One backward for several"),
        (_train(step="optimizer.step(); schedule.step(); model.bias.data += 1e-3"),
         "by the optimizer's steps alone"),
        (_train(value="steps - 1"), "steps were taken, and"),
        (_train(value="None"), "None is returned"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "measure_accumulation": [
        # one training after the other, at other seeds, with SGD
        """
def measure_accumulation(config, data):
    columns = []
    for accumulated in (1, 3):
        options = {
            "make_optimizer": partial(SGD, lr=0.01 * accumulated),
            "trainer": {"accumulate_grad_batches": accumulated},
        }
        runs = [fit(config, data, seed=seed, **options) for seed in (7, 8, 9)]
        columns.append([run.metrics["val_accuracy"] for run in runs])
    differences = np.subtract(columns[1], columns[0])
    half = 4.302652729911275 * differences.std(ddof=1) / np.sqrt(3)
    return *columns, differences.mean() - half, differences.mean() + half
""",
        # the loader gives the large batch
        """
def measure_accumulation(config, data):
    def large(data, seed):
        return data.train_loader(seed, batch_size=48)

    arms = {"small": {}, "large": {"make_loader": large}}
    found = compare(config, data, arms, seeds=range(4))
    gain = found.difference("large")
    return [found.values("small"), found.values("large"), gain.low, gain.high]
""",
    ],
    "plan_batches": [
        """
def plan_batches(effective_batch_size, limit, devices=1):
    if effective_batch_size % devices:
        raise ValueError
    number = 1
    share = effective_batch_size // devices
    while share % number or share // number > limit:
        number += 1
    return [share // number, number]
""",
        # all divisors in pairs, up to the square root
        """
def plan_batches(effective_batch_size, limit, devices=1):
    share = effective_batch_size / devices
    if not share.is_integer():
        raise ValueError(f"{effective_batch_size} images are not for {devices} devices")
    share = int(share)
    small = [n for n in range(1, int(share**0.5) + 1) if share % n == 0]
    pairs = [(n, share // n) for n in small] + [(share // n, n) for n in small]
    return max(pair for pair in pairs if pair[0] <= limit)
""",
    ],
    "step_over_tokens": [
        # divided and clipped by hand; a micro-batch without tokens is left out
        """
def step_over_tokens(model, optimizer, window, max_norm):
    model.zero_grad(set_to_none=False)
    tokens = 0
    for inputs, targets in window:
        there = targets != -100
        if not there.any():
            continue
        tokens += there.sum()
        chosen = model(inputs).log_softmax(-1)[there].gather(1, targets[there][:, None])
        (-chosen).sum().backward()
    gradients = [p.grad.div_(tokens) for p in model.parameters()]
    norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()
    for g in gradients:
        g *= min(1, max_norm / norm)
    optimizer.step()
    return norm
""",
        # the mean of each micro-batch by its share of the tokens, in a closure
        """
def step_over_tokens(model, optimizer, window, max_norm):
    counts = torch.stack([targets.ge(0).sum() for _, targets in window])
    norms = []

    def closure():
        optimizer.zero_grad()
        for (inputs, targets), share in zip(window, counts / counts.sum()):
            if share:
                loss = nn.CrossEntropyLoss()(model(inputs).transpose(1, 2), targets)
                loss.backward(share.to(loss.dtype))
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), max_norm))

    optimizer.step(closure)
    return float(norms[0])
""",
    ],
    "train_windows": [
        # does not collect a window: divides the summed gradients when it is complete
        """
def train_windows(model, optimizer, schedule, batches, size):
    def step():
        for p in model.parameters():
            p.grad /= examples
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()

    optimizer.zero_grad()
    criterion = nn.CrossEntropyLoss(reduction='sum')
    examples = steps = 0
    for number, (images, targets) in enumerate(batches, start=1):
        criterion(model(images), targets).backward()
        examples += len(targets)
        if number % size == 0:
            step()
            examples, steps = 0, steps + 1
    if examples:
        step()
        steps += 1
    return steps
""",
        # one iterator size times beside itself; means by their share of the examples
        """
def train_windows(model, optimizer, schedule, batches, size):
    windows = list(itertools.zip_longest(*[iter(batches)] * size))
    for window in windows:
        window = [batch for batch in window if batch is not None]
        lengths = torch.tensor([len(targets) for _, targets in window])
        model.zero_grad()
        for (images, targets), share in zip(window, (lengths / lengths.sum()).tolist()):
            loss = F.cross_entropy(model(images), targets) * share
            loss.backward()
        optimizer.step()
        schedule.step()
    return len(windows)
""",
    ],
}
