"""Planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

MEASURE = """
from functools import partial
import torch
from torch.optim import SGD, AdamW
from course_utils.training import compare, fit

def measure_optimizer(config, data):
    variants = {{
        "AdamW": {{"make_optimizer": partial(AdamW, lr=0.003)}},
        "other": {{"make_optimizer": {other}}},
    }}
    measured = compare(config, data, variants, seeds={seeds}, name="mine")
    found = measured.difference("other")
    one, other = measured.values("AdamW"), measured.values("other")
    return {value}
"""


RIGHT_MEASURE = {
    "other": "partial(SGD, lr=0.05)",
    "seeds": "(3, 4, 5)",
    "value": "list(one), list(other), float(found.low), float(found.high)",
}


SPLIT = """
def split_decay(named_parameters, weight_decay):
    decaying, others = [], []
    for name, parameter in named_parameters:
        if {kept}:
            ({condition}).append({pair})
    return {value}
"""


RIGHT_SPLIT = {
    "kept": "parameter.requires_grad",
    "condition": "decaying if parameter.dim() > 1 else others",
    "pair": "(name, parameter)",
    "value": "[dict(params=decaying, weight_decay=weight_decay), "
    "dict(params=others, weight_decay=0.0)]",
}


GRADIENT = """
import torch
import torch.nn.functional as F
from torch.nn.utils import get_total_norm

def set_mean(model, micro_batches):
    {zero}
    for inputs, targets in micro_batches:
        loss = F.cross_entropy(model(inputs), targets)
        (loss {divided}).backward()

def set_sam_gradient(model, micro_batches, rho):
    {first}
    old = {{name: tensor.clone() for name, tensor in model.state_dict().items()}}
    set_mean(model, {climbed})
    norm = {norm}
    with torch.no_grad():
        for p in model.parameters():
            p.add_(p.grad {normed}, alpha=rho)
    set_mean(model, {taken})
    {restore}
"""


RIGHT_GRADIENT = {
    "zero": "model.zero_grad()",
    "divided": "/ len(micro_batches)",
    "first": "pass",
    "climbed": "micro_batches",
    "norm": "torch.cat([p.grad.flatten() for p in model.parameters()]).norm()",
    "normed": "/ norm",
    "taken": "micro_batches",
    "restore": "model.load_state_dict(old)",
}


LARGE_BATCH = """
import copy
import torch
import torch.nn.functional as F

def set_sam_gradient(model, micro_batches, rho):
    inputs, targets = (torch.cat(parts) for parts in zip(*micro_batches))
    parameters = list(model.parameters())
    slopes = torch.autograd.grad(F.cross_entropy(model(inputs), targets), parameters)
    norm = sum(float((slope ** 2).sum()) for slope in slopes) ** 0.5
    probe = copy.deepcopy(model)
    with torch.no_grad():
        for p, slope in zip(probe.parameters(), slopes):
            p += rho * slope / norm
    loss = F.cross_entropy(probe(inputs), targets)
    for p, slope in zip(parameters, torch.autograd.grad(loss, list(probe.parameters()))):
        p.grad = slope
"""


SAM_LOOP = """
import torch
import torch.nn.functional as F

def train_sam(model, optimizer, schedule, batches, rho):
    weights = list(model.parameters())
    for inputs, targets in batches:
        {zero}
        F.cross_entropy(model(inputs), targets).backward()
        {in_closure}
        norm = {norm}
        climbs = [(rho * w.grad / norm).clone() for w in weights]
        old = [w.detach().clone() for w in weights]
        with torch.no_grad():
            for w, climb in zip(weights, climbs):
                w += climb
        {zero_again}
        F.cross_entropy(model(inputs), targets).backward()
        {restore}
        optimizer.step()
        {after}
        schedule.step()
"""


BACK = "[w.data.copy_(o) for w, o in zip(weights, old)]"


RIGHT_LOOP = {
    "zero": "optimizer.zero_grad()",
    "in_closure": "pass",
    "norm": "sum(w.grad.square().sum() for w in weights).sqrt()",
    "zero_again": "model.zero_grad()",
    "restore": BACK,
    "after": "pass",
}


AS_GIVEN = """
import torch
import torch.nn.functional as F

def train_sam(model, optimizer, schedule, batches, rho):
    for inputs, targets in batches:

        def closure():
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            schedule.step()

        optimizer.zero_grad()
        closure()
        for weight in model.parameters():
            weight.data += rho * weight.grad / weight.grad.norm()
        closure()
        optimizer.step()
        for weight in model.parameters():
            weight.data -= rho * weight.grad / weight.grad.norm()
"""


def _measure(**changed):
    return MEASURE.format(**RIGHT_MEASURE | changed)


def _split(**changed):
    return SPLIT.format(**RIGHT_SPLIT | changed)


def _gradient(**changed):
    return GRADIENT.format(**RIGHT_GRADIENT | changed)


def _loop(**changed):
    return SAM_LOOP.format(**RIGHT_LOOP | changed)


SWAPPED = ("[dict(params=decaying, weight_decay=0.0), "
           "dict(params=others, weight_decay=weight_decay)]")  # fmt: skip


WRONG_ANSWERS = {
    "measure_optimizer": plant_experiments("measure_optimizer"),
    "split_decay": [
        (_split(kept="True"), "need no gradient"),
        (_split(condition="others if 'bias' in name else decaying"), "The norm's weights decay"),
        (_split(condition="decaying if parameter.dim() == 2 else others"), "filters have four"),
        (_split(condition="decaying if parameter.dim() < 2 else others"), "the weights are not"),
        (_split(value=SWAPPED), "The decays of the groups are 0 and 0.3"),
        (_split(pair="parameter"), r"\(name, parameter\) pairs"),
        (_split(pair="(parameter, name)"), r"\(name, parameter\) pairs"),
        (_split(condition="decaying if parameter.dim() in (2, 4) else others"), "two or four"),
        (_split(value="decaying, others"), "A group is a dictionary"),
        (_split(value="[dict(params=decaying, weight_decay=weight_decay)]"), "two groups"),
        (_split(pair="(name, parameter.detach())"), "keep the pairs as they are"),
        (_split(condition="(decaying if parameter.dim() > 1 else others)[:0]"),
         "hold other parameters"),
    ],
    "set_sam_gradient": [
        (_gradient(zero="pass", first="model.zero_grad()"), "of both passes are added"),
        (_gradient(zero="pass"), "not those of the mean loss"),
        (_gradient(divided=""), "is a sum"),
        (_gradient(climbed="micro_batches[-1:]"), "The climb uses the last"),
        (_gradient(taken="micro_batches[-1:]"), "of the last micro-batch only"),
        (_gradient(normed=""), "not divided by the norm"),
        (_gradient(normed="/ p.grad.norm()"), "Each parameter is divided"),
        (_gradient(restore="pass"), "still uphill"),
        (_gradient(normed="/ -norm"), "goes downhill"),
        (_gradient(normed="* 0"), "plain gradient"),
    ],
    "train_sam": [
        (AS_GIVEN, "The schedule is stepped 10 times, not 5"),
        (_loop(in_closure="schedule.step()"), "and once before the optimizer"),
        (_loop(after="schedule.step()"), "stepped twice for each step"),
        (_loop(zero_again="pass"), "of both passes are added"),
        (_loop(zero="pass"), "of the last batch are still there"),
        (_loop(restore="pass"), "steps from the weights uphill"),
        (_loop(norm="1.0"), "not divided by the norm"),
        (_loop(restore="pass", after=BACK), "The weights never move"),
        (_loop(restore="pass", after="[w.data.sub_(c) for w, c in zip(weights, climbs)]"),
         "not those of SAM's steps"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "measure_optimizer": [_measure(), _measure(other="partial(AdamW, lr=0.001)")],
    "split_decay": [
        _split(),
        _split(kept="not parameter.requires_grad is False",
               condition="others if parameter.ndim in (0, 1) else decaying"),
    ],
    "set_sam_gradient": [_gradient(), LARGE_BATCH],
    "train_sam": [
        _loop(),
        _loop(norm="torch.cat([w.grad.flatten() for w in weights]).norm()",
              restore="[w.data.sub_(w.data - o) for w, o in zip(weights, old)]"),
    ],
}  # fmt: skip
