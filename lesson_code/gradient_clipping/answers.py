"""Planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

MEASURE = """
from functools import partial
from torch.optim import SGD, AdamW
from course_utils.training import compare, fit, warmup_cosine

def measure_clipping(config, data):
    plain = {{"pretrained": True, "make_optimizer": {optimizer}}}
    clipped = plain | {{"trainer": {{"gradient_clip_val": {limit}}}}}
    variants = {{"without": plain, "clipped": clipped}}
    measured = compare(config, data, variants, seeds={seeds}, name="mine")
    found = measured.difference("clipped")
    one, other = measured.values("without"), measured.values("clipped")
    return {value}
"""


RIGHT_MEASURE = {
    "optimizer": "partial(SGD, lr=0.1)",
    "limit": "0.5",
    "seeds": "(3, 4, 5)",
    "value": "list(one), list(other), float(found.low), float(found.high)",
}


GROUPS = """
import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

def clip_groups(groups, max_norms):
    {guard}
    norms = []
    for group, max_norm in zip(groups, max_norms{strict}):
        {clip}
    return {value}
"""


RIGHT_GROUPS = {
    "guard": "assert_same(groups, max_norms)",
    "strict": "",
    "clip": "norms.append(float(clip_grad_norm_(group, max_norm)))",
    "value": "norms",
}


SAME = """
def assert_same(groups, max_norms):
    if len(groups) != len(max_norms):
        raise ValueError("one threshold per group")
"""


GROUPS_BY_HAND = """
def clip_groups(groups, max_norms):
    if len(groups) != len(max_norms):
        raise ValueError("one threshold per group")
    norms = []
    for group, max_norm in zip(groups, max_norms):
        squares = [float((p.grad ** 2).sum()) for p in group if p.grad is not None]
        norms.append(sum(squares) ** 0.5)
        if norms[-1] > max_norm:
            for p in group:
                if p.grad is not None:
                    p.grad.mul_(max_norm / norms[-1])
    return norms
"""


STEP = """
import math
import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

def step_if_finite(model, optimizer, schedule, max_norm):
    {clip}
    {first}
    if {finite}:
        {inside}
        {taken}
    {outside}
    {returned}
"""


RIGHT_STEP = {
    "clip": "norm = clip_grad_norm_(model.parameters(), max_norm)",
    "first": "pass",
    "finite": "math.isfinite(norm)",
    "inside": "optimizer.step()",
    "taken": "schedule.step(); return True",
    "outside": "pass",
    "returned": "return False",
}


TRAIN = """
import torch
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_

def train_clipped(model, optimizer, schedule, scaler, batches, max_norm, accumulate):
    for number, (inputs, targets) in enumerate(batches, start=1):
        loss = F.cross_entropy(model(inputs), targets) {divided}
        scaler.scale(loss).backward()
        {each}
        if number % accumulate == 0:
            {unscale}
            {clip}
            scale = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            {schedule}
            optimizer.zero_grad()
"""


RIGHT_TRAIN = {
    "divided": "/ accumulate",
    "each": "pass",
    "unscale": "scaler.unscale_(optimizer)",
    "clip": "clip_grad_norm_(list(model.parameters()), max_norm)",
    "schedule": "if not scaler.get_scale() < scale: schedule.step()",
}


TRAIN_BY_HAND = """
import torch
import torch.nn.functional as F

def train_clipped(model, optimizer, schedule, scaler, batches, max_norm, accumulate):
    parameters = list(model.parameters())
    for start in range(0, len(batches), accumulate):
        optimizer.zero_grad()
        for inputs, targets in batches[start : start + accumulate]:
            scaler.scale(F.cross_entropy(model(inputs), targets) / accumulate).backward()
        scaler.unscale_(optimizer)
        norm = torch.cat([p.grad.flatten() for p in parameters]).norm()
        for p in parameters:
            p.grad *= (max_norm / (norm + 1e-6)).clamp(max=1)
        scaler.step(optimizer)
        scaler.update()
        if norm.isfinite():
            schedule.step()
"""


def _measure(**changed: str) -> str:
    return MEASURE.format(**RIGHT_MEASURE | changed)


def _groups(**changed: str) -> str:
    return SAME + GROUPS.format(**RIGHT_GROUPS | changed)


def _step(**changed: str) -> str:
    return STEP.format(**RIGHT_STEP | changed)


def _train(**changed: str) -> str:
    return TRAIN.format(**RIGHT_TRAIN | changed)


WRONG_ANSWERS = {
    "measure_clipping": plant_experiments("measure_clipping"),
    "clip_groups": [
        (_groups(clip="norms.append(float(clip_grad_norm_(sum(groups, []), max_norm)))"),
         "All groups share one norm"),
        (_groups(clip="norms += [max(float(clip_grad_norm_([p], max_norm)) for p in group)]"),
         "Each parameter has its own norm"),
        (_groups(clip="norms.append(float(clip_grad_norm_(group, max_norms[0])))"),
         "The first threshold is used"),
        (_groups(clip="[p.grad.clamp_(-max_norm, max_norm) for p in group if p.grad is not None]"),
         "The numbers are limited"),
        (_groups(clip="clip_grad_value_(group, max_norm)"), "The numbers are limited"),
        (_groups(clip="norms.append(clip_grad_norm_(group, max_norm))"), "list of floats"),
        (_groups(clip="norms += [0.0 * float(clip_grad_norm_(group, max_norm))]"),
         "not those before clipping"),
        (_groups(guard="pass"), "raises nothing"),
        (_groups(guard="pass", strict=", strict=True"), "clips before it raises"),
        (_groups(guard="assert len(groups) == len(max_norms)"), "raises AssertionError"),
    ],
    "step_if_finite": [
        (_step(finite="True"), "is not finite is taken"),
        (_step(clip="norm = next(model.parameters()).grad.norm(); "
                    "clip_grad_norm_(model.parameters(), max_norm)"), "is not finite is taken"),
        (_step(taken="schedule.step(); return 1", returned="return 0"), "Return True or False"),
        (_step(taken="pass", outside="schedule.step()", returned="return math.isfinite(norm)"),
         "The schedule is stepped although"),
        (_step(taken="return True"), "The schedule is never stepped"),
        (_step(first="schedule.step()", taken="return True"), "Not as after clipped steps"),
        (_step(clip="norm = sum(p.grad.norm() for p in model.parameters())"), "are not clipped"),
        (_step(clip="norm = sum(p.grad.norm() for p in model.parameters()); "
                    "clip_grad_value_(model.parameters(), max_norm)"), "numbers are limited"),
        (_step(first="if not math.isfinite(norm): "
                     "[p.grad.zero_() for p in model.parameters()]; optimizer.step()"),
         "Gradients of zero"),
        (_step(taken="schedule.step()"), "say whether the step was taken"),
        (_step(finite="not norm.isnan()"), "is not finite is taken"),
    ],
    "train_clipped": [
        (_train(unscale="clip_grad_norm_(model.parameters(), max_norm)",
                clip="scaler.unscale_(optimizer)"), "while they are scaled"),
        (_train(clip="clip_grad_norm_(list(model.parameters())[-2:], max_norm)"),
         "Only the last layer"),
        (_train(schedule="schedule.step()"), "where the scaler skipped"),
        (_train(schedule="if scaler.get_scale() == scale: schedule.step()"),
         "The schedule is stepped"),
        (_train(each="clip_grad_norm_(model.parameters(), max_norm)", clip="pass"),
         "Scaled gradients are clipped after each"),
        (_train(clip="pass"), "are not clipped"),
        (_train(divided=""), "are added"),
        (_train(each="clip_grad_norm_(list(model.parameters())[-2:], max_norm)", clip="pass",
                schedule="schedule.step()"),
         "Scaled gradients of the last layer"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "measure_clipping": [
        _measure(),
        _measure(optimizer="partial(AdamW, lr=0.01)", seeds="range(4)"),
    ],
    "clip_groups": [_groups(), GROUPS_BY_HAND],
    "step_if_finite": [
        _step(),
        _step(
            clip="fine = all(p.grad.isfinite().all() for p in model.parameters())",
            first="clip_grad_norm_(model.parameters(), max_norm)",
            finite="fine",
        ),
    ],
    "train_clipped": [_train(), TRAIN_BY_HAND],
}
