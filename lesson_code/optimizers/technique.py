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

from course_tools.study.lesson_code import read_definitions
from tests.combinations.record import PEAK_LR

RHO = 0.05


LESSON = read_definitions("16_optimizers", RHO=RHO)


SAM = LESSON["SAM"]


OPTIONS = {"base": SGD, "lr": PEAK_LR, "rho": RHO}


SEAM = {"make_optimizer": partial(SAM, **OPTIONS)}


EXCLUDES = ("gradient_accumulation",)  # Lightning's closure holds the last micro-batch only


def invariant(record):
    """Each step's gradient is taken a distance of RHO away, and steps from the old weights."""
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


class StepsFromPerturbed(SAM):
    """The optimizer steps before the old weights come back."""

    def step(self, closure):
        loss = closure()
        with LESSON["perturbed"](list_weights(self), self.rho):
            closure()
            self.base.step()
        return loss


class StaysPerturbed(SAM):
    """The old weights do not come back."""

    def step(self, closure):
        loss = closure()
        ascent = LESSON["perturbed"](list_weights(self), self.rho)
        ascent.__enter__()
        closure()
        self.base.step()
        return loss


class PerturbsApart(SAM):
    """Each tensor is perturbed along its own gradient."""

    def step(self, closure):
        loss = closure()
        with ExitStack() as ascents:
            for weight in list_weights(self):
                ascents.enter_context(LESSON["perturbed"]([weight], self.rho))
            closure()
        self.base.step()
        return loss


FAULTS = [
    ("make_optimizer", partial(SGD, lr=PEAK_LR)),
    ("make_optimizer", partial(SAM, **OPTIONS | {"rho": 0.0})),
    ("make_optimizer", partial(SAM, **OPTIONS | {"rho": -RHO})),
    ("make_optimizer", partial(StepsFromPerturbed, **OPTIONS)),
    ("make_optimizer", partial(StaysPerturbed, **OPTIONS)),
    ("make_optimizer", partial(PerturbsApart, **OPTIONS)),
]


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

    shapes = {"pos_embed": (1, 5, 3), "cls_token": (1, 1, 3), "head.weight": (2, 3), "bias": (2,)}
    decaying = [name for name, shape in shapes.items() if card["decays"](name, torch.zeros(shape))]
    assert decaying == ["head.weight"]
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
