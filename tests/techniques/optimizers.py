"""Optimizers: here SAM, which asks for two passes in each step."""

import math
from contextlib import ExitStack
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector
from torch.optim import SGD
from torch.utils.data import DataLoader

from course_utils.tools.report.lesson_code import read_definitions
from tests.experiments import plant_experiments
from tests.techniques.record import PEAK_LR

RHO = 0.05
LESSON = read_definitions("16_optimizers", RHO=RHO)
SAM = LESSON["SAM"]
OPTIONS = {"base": SGD, "lr": PEAK_LR, "rho": RHO}
SEAM = {"make_optimizer": partial(SAM, **OPTIONS)}
EXCLUDES = ("gradient_accumulation",)  # Lightning's closure holds the last micro-batch only


def invariant(record):
    """Each step's gradient is taken a distance of RHO uphill, and steps from the old weights."""
    assert len(record.passes) == 2 * record.steps
    before = record.passes[0]
    for step in range(record.steps):
        first, second = record.passes[2 * step : 2 * step + 2]
        torch.testing.assert_close(first, before)
        [(gradient, norm)] = record.earlier[step]
        torch.testing.assert_close(second - first, RHO * gradient / norm, rtol=1e-3, atol=1e-6)
        moved = record.learning_rates[step] * record.used[step]
        torch.testing.assert_close(record.biases[step], first - moved)
        before = record.biases[step]
        assert not torch.equal(gradient, record.gradients[step])


def list_weights(optimizer):
    return [p for p in optimizer.param_groups[0]["params"] if p.grad is not None]


class StepsFromUphill(SAM):
    """The optimizer steps before the old weights come back."""

    def step(self, closure):
        loss = closure()
        with LESSON["uphill"](list_weights(self), self.rho):
            closure()
            self.base.step()
        return loss


class StaysUphill(SAM):
    """The old weights do not come back."""

    def step(self, closure):
        loss = closure()
        climb = LESSON["uphill"](list_weights(self), self.rho)
        climb.__enter__()
        closure()
        self.base.step()
        return loss


class ClimbsApart(SAM):
    """Each tensor climbs along its own gradient."""

    def step(self, closure):
        loss = closure()
        with ExitStack() as climbs:
            for weight in list_weights(self):
                climbs.enter_context(LESSON["uphill"]([weight], self.rho))
            closure()
        self.base.step()
        return loss


FAULTS = [
    ("make_optimizer", partial(SGD, lr=PEAK_LR)),
    ("make_optimizer", partial(SAM, **OPTIONS | {"rho": 0.0})),
    ("make_optimizer", partial(SAM, **OPTIONS | {"rho": -RHO})),
    ("make_optimizer", partial(StepsFromUphill, **OPTIONS)),
    ("make_optimizer", partial(StaysUphill, **OPTIONS)),
    ("make_optimizer", partial(ClimbsApart, **OPTIONS)),
]


# The lesson's recipe cards: each gets the names that the card defined.
def step_adamw(parameters, states, learning_rate, weight_decay):
    """One step of AdamW by hand; tensors with one dimension do not decay."""
    with torch.no_grad():
        for parameter, state in zip(parameters, states, strict=True):
            state["step"] += 1
            state["mean"] = 0.9 * state["mean"] + 0.1 * parameter.grad
            state["square"] = 0.999 * state["square"] + 0.001 * parameter.grad**2
            mean = state["mean"] / (1 - 0.9 ** state["step"])
            square = state["square"] / (1 - 0.999 ** state["step"])
            if parameter.ndim > 1:
                parameter *= 1 - learning_rate * weight_decay
            parameter -= learning_rate * mean / (square.sqrt() + 1e-8)


def train_by_hand(net, batches, learning_rates, weight_decay):
    """Steps of AdamW, each with its own learning rate."""
    parameters = list(net.parameters())
    states = [{"step": 0, "mean": 0.0, "square": 0.0} for _ in parameters]
    for (inputs, targets), learning_rate in zip(batches, learning_rates, strict=True):
        net.zero_grad()
        F.cross_entropy(net(inputs), targets).backward()
        step_adamw(parameters, states, learning_rate, weight_decay)


def check_pytorch_card(card):
    """Eight trials, spread over the space in the logarithm; the best one at five fresh seeds."""

    def train(learning_rate, weight_decay, seed):
        torch.manual_seed(seed)
        net = nn.Linear(3, 2)
        batches = [(card["x"][:64], card["y"][:64])] * 100
        rates = [learning_rate * (1 + math.cos(math.pi * i / 100)) / 2 for i in range(100)]
        train_by_hand(net, batches, rates, weight_decay)
        return F.cross_entropy(net(card["x"][64:]), card["y"][64:]).item()

    points = torch.tensor([trial[1:] for trial in card["trials"]]).double()
    edges = torch.tensor([[1e-2, 1e-3], [1.0, 1e-1]]).double().log()
    places = (points.log() - edges[0]) / (edges[1] - edges[0])
    for column in places.T:  # quasi-random: one in each eighth
        assert sorted((8 * column).long().tolist()) == list(range(8))
    for number, (loss, *point) in enumerate(card["trials"]):
        assert abs(loss - train(*point, seed=100 + number)) < 1e-4
    assert card["best"] == min(card["trials"])
    assert 1.5e-2 < card["best"][1] < 1 / 1.5, "the card's own space is wide enough"
    for seed, loss in enumerate(card["fresh"]):
        assert abs(loss - train(*card["best"][1:], seed=seed)) < 1e-4
    assert len(card["fresh"]) == 5


def average_without_schedule(net, batches, learning_rate, warmup):
    """Schedule-free AdamW by hand: ``net`` gets the average x."""
    parameters = list(net.parameters())
    z, x, squares = ([p.detach().clone() for p in parameters] for _ in range(3))
    squares = [torch.zeros_like(square) for square in squares]
    total = 0.0
    for step, (inputs, targets) in enumerate(batches, start=1):
        loss = F.cross_entropy(net(inputs), targets)
        gradients = torch.autograd.grad(loss, parameters)
        rate = learning_rate * min(1, step / warmup)
        total += rate**2
        for i, gradient in enumerate(gradients):
            squares[i] = 0.999 * squares[i] + 0.001 * gradient**2
            root = (squares[i] / (1 - 0.999**step)).sqrt()
            z[i] = z[i] - rate * gradient / (root + 1e-8)
            x[i] = x[i] + rate**2 / total * (z[i] - x[i])
            parameters[i].data = 0.1 * z[i] + 0.9 * x[i]
    for parameter, mean in zip(parameters, x, strict=True):
        parameter.data = mean


def check_lightning_card(card):
    """The network ends with the average of a schedule-free training."""
    torch.manual_seed(0)
    pairs = [(torch.randn(3), i % 2) for i in range(40)]
    net = card["LitNet"](lr=0.01).model
    average_without_schedule(net, list(DataLoader(pairs, 8)) * 2, 0.01, warmup=4)
    torch.testing.assert_close(
        parameters_to_vector(card["lit_net"].model.parameters()).cpu(),
        parameters_to_vector(net.parameters()),
        rtol=1e-3,
        atol=1e-5,
    )


# Planted answers of the lesson's exercises.
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
