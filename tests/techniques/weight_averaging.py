"""Weight averaging: a copy of the weights that follows a training without changing it."""

from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import WeightAveraging
from timm.utils import ModelEmaV3
from torch import nn
from torch.nn.utils import parameters_to_vector
from torch.optim.swa_utils import update_bn

from tests.experiments import plant_experiments

DECAY = 0.75


def mix(average, weights, num_averaged, decay):
    """The EMA, written so that equal numbers stay as they are: frozen weights do not change."""
    return average + (1 - decay) * (weights - average)


def make_ema(kind=WeightAveraging, decay=DECAY):
    return {"callbacks": kind(avg_fn=partial(mix, decay=decay))}


SEAM = {"trainer": make_ema()}


def invariant(record):
    """The weights that come back are the EMA of those after each optimizer step."""
    average = record.biases[0]  # the first update copies
    for bias in record.biases[1:]:
        average = DECAY * average + (1 - DECAY) * bias
    torch.testing.assert_close(record.head_bias.detach(), average)


def compare(record, without):
    """The training is the same, bit for bit: the average only watches."""
    assert len(record.losses) == len(without.losses)
    for (*_, loss), (*_, other) in zip(record.losses, without.losses, strict=True):
        assert torch.equal(loss, other)
    assert not torch.equal(record.head_bias, without.head_bias)


class FromInitialWeights(WeightAveraging):
    """The initial weights are in the average."""

    def on_train_start(self, trainer, pl_module):
        self._average_model.update_parameters(pl_module)


class PerMicroBatch(WeightAveraging):
    """Updated after each micro-batch, whether the optimizer took a step or not."""

    def on_train_batch_end(self, trainer, pl_module, *_):
        self._average_model.update_parameters(pl_module)


class ReturnsLastWeights(WeightAveraging):
    def on_train_end(self, trainer, pl_module):
        pass


class IntoTheTraining(WeightAveraging):
    """The next step starts from the average."""

    def on_train_batch_end(self, trainer, pl_module, *others):
        super().on_train_batch_end(trainer, pl_module, *others)
        self._copy_average_to_current(pl_module)


FAULTS = [
    ("trainer", make_ema(decay=1 - DECAY)),
    ("trainer", {"callbacks": WeightAveraging()}),  # equal shares
    ("trainer", make_ema(FromInitialWeights)),
    ("trainer", make_ema(PerMicroBatch)),
    ("trainer", make_ema(ReturnsLastWeights)),
    ("trainer", {}),
]
COMPARED_FAULTS = [("trainer", make_ema(IntoTheTraining)), ("trainer", {})]


# The lesson's recipe cards: each gets the names that the card defined.
def train_by_hand(net, batches, epochs):
    """Steps of AdamW at 1e-3; the EMA of the weights with timm's warm-up of the decay."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    ema = ModelEmaV3(net, decay=0.999, use_warmup=True, exclude_buffers=True)
    for step, (inputs, targets) in enumerate(epochs * batches, start=1):
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), targets).backward()
        optimizer.step()
        ema.update(net, step=step)
    return ema.module


def check_decay(mix_all):
    """It mixes all tensors in place, as timm does: with a decay that rises up to a highest one."""
    timm = ModelEmaV3(nn.Linear(1, 1), decay=0.999, use_warmup=True)
    for num_updates in (1, 2, 50, 10**6):
        decay = timm.get_decay(num_updates + 1)
        averages = [torch.tensor(3.0), torch.tensor([0.0, 1.0])]
        mix_all(averages, [torch.tensor(5.0), torch.ones(2)], torch.tensor(num_updates))
        torch.testing.assert_close(averages[0], torch.tensor(3 * decay + 5 * (1 - decay)))
        torch.testing.assert_close(averages[1], torch.tensor([1 - decay, 1.0]))
    half = torch.tensor(0.0)
    mix_all([half], [torch.tensor(1.0)], torch.tensor(10**6), highest=0.5)
    assert half == 0.5


def check_pytorch_card(card):
    """It averages after every step, with its own statistics, and saves the average."""
    check_decay(card["ema_with_warmup"])
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    batches = [(torch.randn(8, 3), torch.randint(2, (8,))) for _ in range(5)]
    expected = train_by_hand(net, batches, epochs=4)
    update_bn(batches, expected)
    saved = torch.load("averaged.pt", weights_only=True)
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(saved[name].cpu(), tensor)
    assert not card["ema"].training


def check_lightning_card(card):
    """The checkpoint and the module hold the average, of every step."""
    check_decay(card["rising_ema"])
    torch.manual_seed(0)
    pairs = [(torch.randn(3), i % 2) for i in range(40)]
    net = card["LitNet"]().model
    batches = list(torch.utils.data.DataLoader(pairs, 8))
    expected = train_by_hand(net, batches, epochs=3)
    found = card["lit_net"].model
    torch.testing.assert_close(
        parameters_to_vector(found.parameters()).cpu(), parameters_to_vector(expected.parameters())
    )
    [path] = Path("checkpoints").glob("*.ckpt")
    saved = torch.load(path, weights_only=True)
    torch.testing.assert_close(saved["state_dict"]["model.weight"].cpu(), expected.weight.data)
    last = saved["current_model_state"]["model.weight"].cpu()
    torch.testing.assert_close(last, net.weight.data)


# Planted answers of the lesson's exercises.
MEASURE = """
from functools import partial
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch.optim import SGD, AdamW
from course_utils.training import compare, fit, warmup_cosine

def measure_ema(config, data):
    plain = {{"pretrained": True, "make_optimizer": {optimizer}}}
    averaged = plain | {{"trainer": {{"callbacks": {callbacks}}}}}
    variants = {{"last": plain, "EMA": averaged}}
    measured = compare(config, data, variants, seeds={seeds}, name="mine")
    found = measured.difference("EMA")
    one, other = measured.values("last"), measured.values("EMA")
    return {value}
"""
RIGHT_MEASURE = {
    "optimizer": "partial(AdamW, lr=0.003)",
    "callbacks": "[EMAWeightAveraging(decay=0.5)]",
    "seeds": "(3, 4, 5)",
    "value": "list(one), list(other), float(found.low), float(found.high)",
}
AVERAGE = """
import torch

def average_checkpoints(states):
    {guard}
    averaged = {start}
    for name, tensor in states[0].items():
        if {floating}:
            averaged[name] = {mean}
    return averaged
"""
RIGHT_AVERAGE = {
    "guard": "assert_same(states)",
    "start": "{name: tensor.clone() for name, tensor in states[-1].items()}",
    "floating": "tensor.is_floating_point()",
    "mean": "(sum(s[name].float() for s in states) / len(states)).to(tensor.dtype)",
}
SAME = """
def assert_same(states):
    if len(states) == 0 or len({tuple(state) for state in states}) > 1:
        raise ValueError("one state_dict or more, with the same names")
"""
CHOOSE = """
import math

def choose_decay(total_steps, start_share):
    {body}
"""
TRAIN = """
import torch
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, update_bn

def train_averaged(model, batches, val_images, val_targets, path, lr=0.1):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    averaged = AveragedModel(model)
    {before}
    model.train()
    for step, (images, targets) in enumerate(batches):
        optimizer.zero_grad()
        F.cross_entropy(model(images), targets).backward()
        {first}
        {second}
    {statistics}
    torch.save({saved}, path)
    {mode}
    with torch.no_grad():
        return F.cross_entropy({validated}(val_images), val_targets).item()
"""
UPDATE = "if step >= len(batches) // 2: averaged.update_parameters(model)"
RIGHT_TRAIN = {
    "before": "half = len(batches) // 2",
    "first": "optimizer.step()",
    "second": UPDATE,
    "statistics": "update_bn(batches, averaged.module)",
    "saved": "averaged.module.state_dict()",
    "mode": "averaged.module.eval()",
    "validated": "averaged.module",
}
BY_HAND = """
import copy
import torch
import torch.nn.functional as F
from torch.optim.swa_utils import update_bn

def train_averaged(model, batches, val_images, val_targets, path, lr=0.1):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    half, averaged = len(batches) // 2, copy.deepcopy(model)
    sums = [torch.zeros_like(parameter) for parameter in model.parameters()]
    model.train()
    for step, (images, targets) in enumerate(batches):
        optimizer.zero_grad()
        F.cross_entropy(model(images), targets).backward()
        optimizer.step()
        if step >= half:
            sums = [s + p.detach() for s, p in zip(sums, model.parameters())]
    with torch.no_grad():
        for parameter, s in zip(averaged.parameters(), sums):
            parameter.copy_(s / (len(batches) - half))
    update_bn(batches, averaged)
    torch.save(averaged.state_dict(), path)
    averaged.eval()
    with torch.no_grad():
        return float(F.cross_entropy(averaged(val_images), val_targets))
"""


def _measure(**changed: str) -> str:
    return MEASURE.format(**RIGHT_MEASURE | changed)


def _average(**changed: str) -> str:
    return SAME + AVERAGE.format(**RIGHT_AVERAGE | changed)


def _choose(body: str) -> str:
    return CHOOSE.format(body=body)


def _train(**changed: str) -> str:
    return TRAIN.format(**RIGHT_TRAIN | changed)


WRONG_ANSWERS = {
    "measure_ema": plant_experiments("measure_ema"),
    "average_checkpoints": [
        (_average(mean="sum(s[name] for s in states) / len(states)"), "A sum in fp16 overflows"),
        (_average(floating="True"), "BatchNorm's counter is averaged"),
        (_average(start="dict(states[0])"), "BatchNorm's counter is that of the first"),
        (_average(start="dict(states[-1])"), "shares memory with a checkpoint"),
        (_average(start="{}"), "names are not those of the checkpoints"),
        (_average(floating="tensor.is_floating_point() and 'running' not in name"),
         "The buffers are not averaged"),
        (_average(guard="pass"), "With an empty list it raises IndexError"),
        (_average(guard="if not states: raise ValueError('none')"),
         "With state_dicts with different names it raises"),
        (_average(mean="sum(s[name].float() for s in states) / len(states)"), "torch.float16"),
        (_average(mean="states[-1][name].mul_(1)"), "is the last checkpoint"),
        (_average(mean="states[-1][name].zero_()"), "given state_dicts are changed"),
    ],
    "choose_decay": [
        (_choose("return start_share ** (1 / total_steps)"), "multiplied by the decay one time"),
        (_choose("return 1 - start_share if total_steps > 1 else 0"), "the decay is 0"),
        (_choose("return start_share ** (1 / (total_steps - 1))"), "ZeroDivisionError"),
        (_choose("return start_share ** (1 / max(1, total_steps - 1))"), "return 0"),
        (_choose("return 1 - 1 / total_steps"), "rule of thumb"),
    ],
    "train_averaged": [
        (_train(before="averaged.update_parameters(model)"), "initial weights are in the average"),
        (_train(first=UPDATE, second="optimizer.step()"), "before the optimizer's step"),
        (_train(statistics="pass"), "statistics are those of the last weights"),
        (_train(saved="model.state_dict()"), "holds the last weights"),
        (_train(saved="averaged.state_dict()"), "state_dict of averaged.module"),
        (_train(saved="averaged.module"), "has to hold a state_dict"),
        (_train(mode="pass"), "measured in train mode"),
        (_train(validated="model"), "loss is that of the last weights|The validation loss is"),
        (_train(second="averaged.update_parameters(model)"), "All steps are averaged"),
        (_train(before="averaged.update_parameters(model)", first=UPDATE,
                second="optimizer.step()", statistics="pass", saved="model.state_dict()"),
         "holds the last weights"),
    ],
}  # fmt: skip

OTHER_RIGHT_ANSWERS = {
    "measure_ema": [
        _measure(),
        _measure(optimizer="partial(SGD, lr=0.02)", seeds="range(4)"),
    ],
    "average_checkpoints": [
        _average(),
        _average(mean="torch.stack([s[name].double() for s in states]).mean(0).to(tensor.dtype)"),
    ],
    "choose_decay": [
        _choose(
            "if total_steps == 1: return 0\n    "
            "return math.exp(math.log(start_share) / (total_steps - 1))"
        ),
        _choose("n = total_steps - 1\n    return start_share ** (1 / n) if n else 0.0"),
    ],
    "train_averaged": [
        _train(),
        BY_HAND,
    ],
}
