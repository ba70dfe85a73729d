"""Planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

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
from course_utils.training.schedules import warmup_cosine

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
    "measure_schedules": plant_experiments("measure_schedules"),
    "flat_cosine": [
        # The check knows these too; a second source shows that each sentence is about its fault.
        (_flat(progress="(step - flat_steps) / (total_steps - flat_steps)"), "many steps forward"),
        (_flat(value="peak_lr * (1 + math.cos(math.pi * progress)) / 2"), "ends at the minimum"),
        (_flat(progress="step / (total_steps - 1)"), "counts from its end"),
        (_flat(value="min_lr + (peak_lr - min_lr) * (1 - progress)"), "half a cosine"),
        (_flat(value="peak_lr + (min_lr - peak_lr) * (1 + math.cos(math.pi * progress)) / 2"),
         "cosine is turned round"),
        (_flat(comparison="<", progress="(step + 1 - flat_steps) / (total_steps - flat_steps)"),
         "still has the peak|Step 0 has the peak"),
        (_flat(value="min_lr + (peak_lr - min_lr) * (1 - progress) ** 2"),
         "Step 7 of 20 has .*, and the flat part"),
        (_flat(value="None"), "on every path"),
    ],
    "linear_warmup": [
        (_lambda("min(1, step / max(1, warmup_steps))"), "the learning rate 0"),
        (_lambda("min(1, (step + 1) / max(1, warmup_steps))"), "one step too early"),
        (_lambda("min(1, (1 + step + step / warmup_steps - step / warmup_steps) "
                 "/ (warmup_steps + 1))"), "it divides by 0"),
        (_lambda("min(1, (step + 1) / (warmup_steps + 1)) * (step < total_steps // 2)"),
         "After warm-up the learning rate stays at 0.3: step 20 has 0"),
        (_lambda("1"), "step 0 has 0.2 of the full learning rate, here it is 1"),
        (_lambda("min(1, (step + 1) / total_steps)"), "step 0 has 0.2"),
        (_warmup("s = schedulers.LambdaLR(optimizer, lambda n: min(1, (n + 1) / "
                 "(warmup_steps + 1)))", "optimizer.step()", "s.step()", "return s"),
         "one step ahead"),
        (_warmup("s = schedulers.LambdaLR(optimizer, lambda n: min(1, (n + 1) / "
                 "(warmup_steps + 1)))", "for g in optimizer.param_groups:",
                 "    g['initial_lr'] = 0.3", "s.base_lrs = [0.3, 0.3]", "return s"),
         "lost their proportion"),
        (_warmup("pass"), "Return a scheduler"),
    ],
    "train_with_schedule": [
        (_train(total=ALL_IMAGES), "planned for 55 steps, and 50 are taken"),
        (_train(total="len(loader)"), "planned for 10 steps, and 50 are taken"),
        (_train(total="epochs * len(dataset)"), "planned for 435 steps, and 50 are taken"),
        (_train(each_step="pass", each_epoch="schedule.step()"), "only once an epoch"),
        (_train(each_epoch="schedule.step()"), "once more after each epoch"),
        (_train(warmup="10"), "A tenth of 50 steps is 5"),
        (_train(total=ALL_IMAGES, warmup="epochs * len(loader) // 10"), "how many batches"),
        (_train(total=ALL_IMAGES, warmup="10", each_step="pass", each_epoch="schedule.step()"),
         "only once an epoch"),
        (_train(each_step="pass"), "never changes"),
        (_train(warmup="0"), "the peak comes at step 0"),
        (_train(warmup="total_steps // 10, min_lr=0.01"), "ends at 0.01: the minimum"),
        (_train().replace("warmup_cosine(optimizer, total_steps, warmup_steps=",
                          "torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=")
         .replace("import math", "import torch"), "Step 0 of 50 is taken at 0.0667"),
        (_train().replace("return rates", "return rates[1:]"), "rates came back"),
        (_train().replace("return rates", "return [[rate] for rate in rates]"), "not a list"),
        (_train(each_step="schedule.step(); rates.append(optimizer.param_groups[0]['lr'])")
         .replace('rates.append(optimizer.param_groups[0]["lr"])', "pass"), "one step ahead"),
        (_train().replace("optimizer.zero_grad()", "pass"), "call zero_grad before each backward"),
        (_train().replace("nn.functional.cross_entropy(model(images), targets)",
                          "model(images).sum()"), "The weights are not those of SGD"),
        (_train(each_step="pass").replace("optimizer.step()", "schedule.step(); optimizer.step()"),
         "The weights are not those of SGD"),
        (_train().replace("return rates", "pass"), "Return the list"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "measure_schedules": [
        # one training after the other, at other seeds, with one cycle
        """
from course_utils import fit


def one_cycle(optimizer, total_steps):
    return schedulers.OneCycleLR(optimizer, 0.01, total_steps)


def measure_schedules(config, data):
    columns = []
    for maker in (None, one_cycle):
        options = {"make_optimizer": partial(SGD, lr=0.01), "make_schedule": maker}
        runs = [fit(config, data, seed=seed, **options) for seed in (7, 8, 9)]
        columns.append([run.metrics["val_accuracy"] for run in runs])
    differences = np.subtract(columns[1], columns[0])
    half = 4.302652729911275 * differences.std(ddof=1) / np.sqrt(3)
    return *columns, differences.mean() - half, differences.mean() + half
""",
        """
def measure_schedules(config, data):
    training = {"make_optimizer": partial(AdamW, lr=0.004)}
    arms = {"constant": training, "cosine": training | {"make_schedule": warmup_cosine}}
    found = compare(config, data, arms, seeds=range(4))
    gain = found.difference("cosine")
    return [found.values("constant"), found.values("cosine"), gain.low, gain.high]
""",
    ],
    "flat_cosine": [
        """
def flat_cosine(step, peak_lr, min_lr, flat_steps, total_steps):
    t = max(0, step - flat_steps) / (total_steps - 1 - flat_steps)
    return np.asarray((peak_lr + min_lr) / 2 + (peak_lr - min_lr) / 2 * np.cos(np.pi * t))
""",
        # the rates of all steps, of which one is returned
        """
def flat_cosine(step, peak_lr, min_lr, flat_steps, total_steps):
    angles = torch.linspace(0, math.pi / 2, total_steps - flat_steps)
    falling = torch.lerp(torch.tensor(min_lr), torch.tensor(peak_lr), angles.cos().square())
    return torch.cat([torch.full((flat_steps,), peak_lr), falling])[step].item()
""",
    ],
    "linear_warmup": [
        """
def linear_warmup(optimizer, total_steps, warmup_steps):
    if not warmup_steps:
        return schedulers.ConstantLR(optimizer, 1.0)
    return schedulers.LinearLR(optimizer, 1 / (warmup_steps + 1), 1.0, warmup_steps)
""",
        # a scheduler of its own
        """
class LinearWarmup(schedulers.LRScheduler):
    def __init__(self, optimizer, warmup_steps):
        self.rising = np.linspace(0, 1, warmup_steps + 2)[1:]
        super().__init__(optimizer)

    def get_lr(self):
        factor = self.rising[: self.last_epoch + 1][-1]
        return [float(rate * factor) for rate in self.base_lrs]


def linear_warmup(optimizer, total_steps, warmup_steps):
    return LinearWarmup(optimizer, warmup_steps)
""",
    ],
    "train_with_schedule": [
        # PyTorch's own schedules, one after the other
        """
def train_with_schedule(model, dataset, loader, epochs, peak_lr):
    optimizer = SGD(model.parameters(), lr=peak_lr)
    total = epochs * (len(dataset) // loader.batch_size)
    warmup = total // 10
    rise = schedulers.LinearLR(optimizer, 1 / (warmup + 1), 1.0, warmup)
    fall = schedulers.CosineAnnealingLR(optimizer, total - warmup)
    schedule = schedulers.SequentialLR(optimizer, [rise, fall], [warmup])
    rates = []
    for images, targets in (batch for _ in range(epochs) for batch in loader):
        rates += schedule.get_last_lr()
        loss = nn.CrossEntropyLoss()(model(images), targets)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return rates
""",
        # all rates first, without a scheduler
        """
def train_with_schedule(model, dataset, loader, epochs, peak_lr):
    total = epochs * sum(1 for _ in loader)
    warmup = int(0.1 * total)
    down = np.cos(np.linspace(0, np.pi, total - warmup + 1))[:-1]
    rates = np.append(np.linspace(0, 1, warmup + 2)[1:-1], (1 + down) / 2) * peak_lr
    optimizer = SGD(model.parameters())
    step = 0
    while step < total:
        for images, targets in loader:
            optimizer.param_groups[0]["lr"] = rates[step]
            optimizer.zero_grad(set_to_none=False)
            nn.functional.nll_loss(model(images).log_softmax(1), targets).backward()
            optimizer.step()
            step += 1
    return rates
""",
    ],
}
