"""Planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

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
