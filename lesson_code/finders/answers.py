"""Planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

MEASURE = """
from functools import partial
from torch.optim import SGD, AdamW
from course_utils.training import compare, fit, warmup_cosine

def measure_rates(config, data):
    variants = {{
        name: {{"pretrained": True, "make_optimizer": partial({optimizer}, lr=lr)}}
        for name, lr in (("one", 0.01), ("other", 0.03))
    }}
    measured = compare(config, data, variants, seeds={seeds}, name="mine")
    found = measured.difference("other")
    one, other = measured.values("one"), measured.values("other")
    return {value}
"""


RIGHT_MEASURE = {
    "optimizer": "SGD",
    "seeds": "(3, 4, 5)",
    "value": "list(one), list(other), float(found.low), float(found.high)",
}


PLACE = """
import math
import numpy as np

def place_rates(lowest, highest, steps):
    {guard}
    {body}
"""


RIGHT_PLACE = {
    "guard": "if not 0 < lowest < highest: raise ValueError('no')",
    "body": "return np.geomspace(lowest, highest, steps).tolist()",
}


LARGEST = """
def find_largest_batch(fits, limit):
    {body}
"""


DOUBLING = """low, high = 0, 1
    while high <= limit and fits(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while {condition}:
        middle = {middle}
        if fits(middle):
            low = middle
        else:
            high = {lower}
    return {value}"""


RIGHT_DOUBLING = {
    "condition": "high - low > 1",
    "middle": "(low + high) // 2",
    "lower": "middle",
    "value": "low",
}


FIND = """
import copy
import torch
import torch.nn.functional as F

def find_rate_safely(model, optimizer, batches, learning_rates, beta=0.9):
    before = {before}
    optimizer_before = copy.deepcopy(optimizer.state_dict())
    average, smoothed = 0.0, []
    for learning_rate, (inputs, targets) in zip(learning_rates, batches):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        for group in {groups}:
            group["lr"] = learning_rate
        optimizer.step()
        average = beta * average + (1 - beta) * loss.item()
        smoothed.append(average / {correction})
    model.load_state_dict(before)
    {restore}
    return {value}
"""


RIGHT_FIND = {
    "before": "copy.deepcopy(model.state_dict())",
    "groups": "optimizer.param_groups",
    "correction": "(1 - beta ** (len(smoothed) + 1))",
    "restore": "optimizer.load_state_dict(optimizer_before)",
    "value": "learning_rates[smoothed.index(min(smoothed))] / 10",
}


FIND_ON_COPIES = """
import copy
import torch.nn.functional as F

def find_rate_safely(model, optimizer, batches, learning_rates, beta=0.9):
    model, optimizer = copy.deepcopy((model, optimizer))
    total, weight, best = 0.0, 0.0, None
    for learning_rate, (inputs, targets) in zip(learning_rates, batches):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total, weight = beta * total + loss.item(), beta * weight + 1
        if best is None or total / weight < best[0]:
            best = total / weight, learning_rate
    return best[1] / 10
"""


def _measure(**changed: str) -> str:
    return MEASURE.format(**RIGHT_MEASURE | changed)


def _place(**changed: str) -> str:
    return PLACE.format(**RIGHT_PLACE | changed)


def _largest(body: str = "", **changed: str) -> str:
    return LARGEST.format(body=body or DOUBLING.format(**RIGHT_DOUBLING | changed))


def _find(**changed: str) -> str:
    return FIND.format(**RIGHT_FIND | changed)


WRONG_ANSWERS = {
    "measure_rates": plant_experiments("measure_rates"),
    "place_rates": [
        (_place(body="return [lowest * (highest / lowest) ** (i / steps) for i in range(steps)]"),
         "The last learning rate is too low"),
        (_place(body="return np.linspace(lowest, highest, steps).tolist()"),
         "constant difference"),
        (_place(body="return [lowest * (highest / lowest) ** ((i + 1) / steps) "
                     "for i in range(steps)]"),
         "The first learning rate is too high"),
        (_place(body="return np.geomspace(lowest, highest, steps)"), "Return a list of floats"),
        (_place(body="return np.geomspace(lowest, highest, steps + 1).tolist()"), "it returns 10"),
        (_place(guard="pass", body="return np.geomspace(max(lowest, 1e-9), highest, steps)"
                                   ".tolist()"),
         "it raises nothing"),
        (_place(guard="assert 0 < lowest < highest"), "raises AssertionError"),
        (_place(guard="if steps == 1: return [lowest]\n    "
                      "if not 0 < lowest < highest: raise ValueError('no')"),
         "in 1 step it raises nothing"),
        (_place(body="return tuple(np.geomspace(lowest, highest, steps).tolist())"), "not tuple"),
    ],
    "find_largest_batch": [
        (_largest("size = 1\n    while fits(2 * size): size *= 2\n    return size"),
         "it returns 32, not 37"),
        (_largest("size = 0\n    while size < limit and fits(size + 1): size += 1\n"
                  "    return size"),
         "it asks 38 times"),
        (_largest("low, high = 0, limit + 1\n    while high - low > 1:\n"
                  "        middle = (low + high) // 2\n"
                  "        low, high = (middle, high) if fits(middle) else (low, middle)\n"
                  "    return low"),
         "more than twice the answer"),
        (_largest(value="high"), "it returns 38, not 37"),
        (_largest(value="max(1, low)"), "it returns 1, not 0"),
        (_largest(condition="low < high"), "It does not end"),
        (_largest(lower="middle - 1"), "it returns"),
        (_largest("size = 1\n    while size < limit and fits(size): size *= 2\n"
                  "    return size // 2"),
         "it returns"),
    ],
    "find_rate_safely": [
        (_find(before="model.state_dict()"), "is no copy"),
        (_find(groups="optimizer.param_groups[:1]"), "Only the first parameter group"),
        (_find(correction="1"), "is not corrected"),
        (_find(restore="pass"), "The optimizer is not as before"),
        (_find(restore="optimizer.load_state_dict(optimizer_before); model.eval()"),
         "left in eval mode"),
        (_find(value="learning_rates[smoothed.index(min(smoothed))]"), "take a tenth of it"),
        (_find(before="model.state_dict()", groups="optimizer.param_groups[:1]", correction="1",
               restore="pass"),
         "is not corrected"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "measure_rates": [_measure(), _measure(optimizer="AdamW", seeds="range(4)")],
    "place_rates": [
        _place(),
        _place(
            body="step = math.log(highest / lowest) / max(1, steps - 1)\n    "
            "return [lowest * math.exp(step * i) for i in range(steps)]"
        ),
    ],
    "find_largest_batch": [
        _largest(),
        _largest(condition="low + 1 < high", middle="low + (high - low) // 2"),
    ],
    "find_rate_safely": [_find(), FIND_ON_COPIES],
}
