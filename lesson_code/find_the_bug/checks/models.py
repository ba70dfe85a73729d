"""Checks of lesson 90, faults in what a model puts out and in what it carries along."""

import copy
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, diagnose, fail, require
from course_utils.checking.oracles import (
    Batches,
    flatten_parameters,
    is_close,
    is_pair,
    record_modes,
    train_copy,
)
from lesson_code.find_the_bug.checks.replay import (
    draw_batches,
    make_network,
    read_losses,
    require_losses,
)

__all__ = ["check_repair_probabilities", "check_repair_probe"]

PROBE_LR = 0.2
SECOND = "cross_entropy takes logits and is given probabilities: it takes their softmax once more."
STILL_SECOND = "The training still takes a softmax of the softmax, whatever loss is reported."
NEGATIVE = "A loss is below 0: nll_loss takes the logarithms of probabilities."
SUMMED = "The losses of the points are summed: cross-entropy is their mean."
AFTER_STEP = "The losses are those after each step, and those before it are due."
NOT_TRAINED = "The network's weights have not changed: is another network trained?"
NOT_LOGITS = "The weights are not those of SGD on the cross-entropy of the network's logits."
MEAN_LOSS = "the mean of −ln p before the step"
WITH_HISTORY = (
    "The probabilities still carry their history of gradients: leave it out, as the script."
)
NO_SUM = "A row of the probabilities does not sum to 1."
BEFORE_LAST = "The probabilities are those from before the last step."
OTHER_PROBABILITIES = "The probabilities are not the trained network's."
EVAL_HEAD = "The head is trained in eval mode: its own BatchNorm has to learn its statistics."
OF_BATCH = "The head learns features made with each batch's statistics, and will be given others."
DROPPED_OUT = "The head learns features after dropout, and at validation nothing is dropped out."
UNTRAINED = "The head's weights have not changed: is it trained?"
OTHER_HEAD = "The head is not that of SGD, batch by batch, on the features of validation."
LEFT_GRADIENTS = "Gradients are left in the backbone's parameters: it is to be frozen."
LEFT_MODE = "The backbone came in eval mode, and is in train mode afterwards."

# What a wrong answer returns for the logits (N, C), and why.
PROBABILITY_FAULTS: Sequence[tuple[str, Callable[[Tensor], Tensor]]] = (
    ("The logits come back, not the probabilities.", lambda logits: logits),
    ("The logarithms of the probabilities come back.", lambda logits: logits.log_softmax(dim=1)),
    ("The softmax is over the points, not over the classes.", lambda logits: logits.softmax(dim=0)),
    ("Each logit went through a sigmoid: the classes share a softmax.", torch.sigmoid),
    (
        "The returned probabilities have gone through softmax twice.",
        lambda logits: logits.softmax(dim=1).softmax(dim=1),
    ),
)


@checks_exercise()
@torch.enable_grad()
def check_repair_probabilities(answer: Callable) -> None:
    """``answer(network, points, targets, steps, lr) -> (losses, probabilities (N, C))``."""
    # Points that are 200 times as far out get probabilities near 0.
    for steps, lr, spread in ((25, 1.0, 1), (1, 0.5, 200), (8, 0.1, 1)):
        network = make_network()
        start = copy.deepcopy(network)
        points, targets = draw_batches(12)[0]
        points *= spread
        found = answer(network, points, targets, steps, lr)
        require(is_pair(found), "Return two things: the losses and the probabilities.")
        batches = [(points, targets)] * steps  # always the same one
        _compare_training(read_losses(found[0], steps), start, network, batches, lr)
        probabilities = torch.as_tensor(found[1])
        require(not probabilities.requires_grad, WITH_HISTORY)
        earlier, _ = train_copy(start, batches[1:], [lr] * (steps - 1))
        _compare_probabilities(probabilities, network, earlier, points)


def _compare_training(
    found: Tensor, start: nn.Module, network: nn.Module, batches: Batches, lr: float
) -> None:
    """The right one is SGD from ``start`` on cross-entropy; ``found`` are the losses (steps,)."""
    weights = flatten_parameters(network)

    def train(model: nn.Module, reduction: str = "mean") -> tuple[Tensor, Tensor]:
        loss = partial(F.cross_entropy, reduction=reduction)
        trained, losses = train_copy(model, batches, [lr] * len(batches), loss)
        return flatten_parameters(trained), losses

    right, losses = train(start)
    if is_close(weights, right):
        with torch.no_grad():
            last = F.cross_entropy(network(batches[0][0]), batches[0][1])
        require(not is_close(found, torch.cat([losses[1:], last[None]])), AFTER_STEP)
        require_losses(found, losses, MEAN_LOSS)
        return
    # The fault of a network that ends with a softmax before cross_entropy, as the exercise has.
    faulty, faulty_losses = train(nn.Sequential(start, nn.Softmax(dim=1)))
    if is_close(weights, faulty):
        fail(SECOND if is_close(found, faulty_losses) else STILL_SECOND)
    require((found >= 0).all(), NEGATIVE)
    require(not is_close(weights, train(start, "sum")[0]), SUMMED)
    require(not is_close(weights, flatten_parameters(start)), NOT_TRAINED)
    require_losses(found[:1], losses[:1], MEAN_LOSS)
    fail(NOT_LOGITS)


def _compare_probabilities(
    found: Tensor, network: nn.Module, earlier: nn.Module, points: Tensor
) -> None:
    """The right ones are the softmax of the network's logits: (N, C).

    ``earlier``: the network before the last step.
    """
    # 12 points and 4 classes
    shape = tuple(found.shape)
    require(shape == (12, 4), f"The probabilities have the shape {shape}, not (12, 4).")
    with torch.no_grad():
        logits = network(points)
        before = earlier(points).softmax(dim=1)
    whole = is_close(found.sum(dim=1), torch.ones(12).double())
    diagnose(
        found,
        lambda read: read(logits),
        lambda logits: logits.softmax(dim=1),
        (*PROBABILITY_FAULTS, (BEFORE_LAST, lambda _: before)),
        OTHER_PROBABILITIES if whole else NO_SUM,
    )


def _make_parts() -> tuple[nn.Sequential, nn.Sequential]:
    """A backbone with statistics of other data, and a head with a BatchNorm of its own.

    The backbone has a dropout too, which only eval mode turns off.
    """
    norm = nn.BatchNorm2d(5)
    layers = nn.Conv2d(3, 5, 2), norm, nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    backbone = nn.Sequential(*layers, nn.Dropout()).double()
    norm.get_buffer("running_mean").uniform_(-1, 1)
    norm.get_buffer("running_var").uniform_(0.2, 2)
    head = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4)).double()
    return backbone, head


def _draw_images(*sizes: int) -> Batches:
    """Batches of images (N, 3, 4, 5), float64, and targets (N,) of four classes."""
    shape = (3, 4, 5)
    return [(torch.randn(n, *shape, dtype=torch.float64), torch.randint(4, (n,))) for n in sizes]


def _extract(backbone: nn.Module, batches: Batches) -> Batches:
    """Features, as at validation, and targets."""
    backbone = copy.deepcopy(backbone).eval()
    with torch.no_grad():
        return [(backbone(inputs), targets) for inputs, targets in batches]


def _require_unmoved(backbone: nn.Module, before: dict[str, Tensor]) -> None:
    """Neither parameters nor statistics differ from those in ``before``."""
    state = backbone.state_dict()
    moved = [name for name, tensor in state.items() if not tensor.equal(before[name])]
    # What has moved and is no parameter is a running statistic.
    parameters = {name for name, _ in backbone.named_parameters()}
    trained = [name for name in moved if name in parameters]
    require(not trained, f"The backbone is to be frozen, and is trained: {', '.join(trained)}.")
    statistics = ", ".join(moved)
    require(not moved, f"The backbone has no gradient and still moves: {statistics}.")


@checks_exercise()
@torch.enable_grad()
def check_repair_probe(answer: Callable) -> None:
    """``answer(backbone, head, batches, epochs, lr) -> losses``: a backbone that holds still."""
    for sizes, epochs, training in (((8, 8, 5), 2, True), ((12,), 5, False)):
        _check_one_probe(answer, _draw_images(*sizes), epochs, training)


def _check_one_probe(answer: Callable, batches: Batches, epochs: int, training: bool) -> None:
    """``training``: the mode in which backbone and head are given."""
    backbone, head = (part.train(training) for part in _make_parts())
    before = copy.deepcopy(backbone.state_dict())
    start = copy.deepcopy(head).train()
    # The backbone never changes, so its features are those of every epoch.
    features = _extract(backbone, batches) * epochs
    right, losses = train_copy(start, features, [PROBE_LR] * len(features))
    norm_modes, dropout_modes = record_modes(backbone[1]), record_modes(backbone[-1])
    head_modes = record_modes(head[1])
    found = answer(backbone, head, list(batches), epochs, PROBE_LR)
    found_losses = read_losses(found, len(features))
    _require_unmoved(backbone, before)
    weights = flatten_parameters(head)
    require(not weights.equal(flatten_parameters(start)), UNTRAINED)
    require(all(head_modes[: len(features)]), EVAL_HEAD)
    if not is_close(weights, flatten_parameters(right)):
        require(not any(norm_modes), OF_BATCH)
        require(not any(dropout_modes), DROPPED_OUT)
        fail(OTHER_HEAD)
    require_losses(found_losses, losses, "the loss of its batch before the step")
    require(all(p.grad is None for p in backbone.parameters()), LEFT_GRADIENTS)
    require(training or not any(part.training for part in backbone.modules()), LEFT_MODE)
