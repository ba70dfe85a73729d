"""Checks of lesson 90, faults in what a model puts out and in what it carries along."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from course_utils.exercises.checking import checks_exercise, fail, require
from course_utils.exercises.find_the_bug.replay import draw_batches, make_network, read_losses
from course_utils.exercises.oracles import (
    Batches,
    flatten_parameters,
    is_close,
    is_pair,
    record_modes,
    train_copy,
)

__all__ = ["check_repair_probabilities", "check_repair_probe"]

PROBE_LR = 0.2
SECOND = "cross_entropy takes logits and is given probabilities: it takes their softmax once more."
NEGATIVE = "A loss is below 0: nll_loss takes the logarithms of probabilities."
NOT_LOGITS = "The losses are not those of SGD on the cross-entropy of the network's logits."
NO_SUM = "A row of the probabilities does not sum to 1: are they the logits?"
TWICE = "The returned probabilities have gone through softmax twice."
OTHER_PROBABILITIES = "The probabilities are not the trained network's."
EVAL_HEAD = "The head is trained in eval mode: its own BatchNorm has to learn its statistics."
OF_BATCH = "The head learns features made with each batch's statistics, and will be given others."
UNTRAINED = "The head's weights have not changed: is it trained?"
OTHER_HEAD = "The head is not that of SGD, batch by batch, on the features of validation."
OTHER_LOSS = "A loss is not that of its batch before the step."


@checks_exercise()
@torch.random.fork_rng(devices=[])
@torch.enable_grad()
def check_repair_probabilities(answer: Callable) -> None:
    """``answer(network, points, targets, steps, lr) -> (losses, probabilities (N, C))``."""
    torch.manual_seed(0)
    for steps, lr in ((25, 1.0), (1, 0.5), (8, 0.1)):
        network = make_network()
        batches = draw_batches(12) * steps  # always the same one
        points, targets = batches[0]
        learning_rates = [lr] * steps
        right, losses = train_copy(network, batches, learning_rates)
        # The fault of a network that ends with a softmax before cross_entropy, as the exercise has.
        with_softmax = nn.Sequential(network, nn.Softmax(dim=1))
        _, losses_of_second_softmax = train_copy(with_softmax, batches, learning_rates)
        found = answer(network, points, targets, steps, lr)
        require(is_pair(found), "Return two things: the losses and the probabilities.")
        found_losses = read_losses(found[0], steps)
        probabilities = torch.as_tensor(found[1]).detach()
        require(not is_close(found_losses, losses_of_second_softmax), SECOND)
        require((found_losses >= 0).all(), NEGATIVE)
        trained = is_close(flatten_parameters(network), flatten_parameters(right))
        require(is_close(found_losses, losses) and trained, NOT_LOGITS)
        _compare_probabilities(probabilities, network, points)


def _compare_probabilities(found: Tensor, network: nn.Module, points: Tensor) -> None:
    """The right ones are the softmax of the network's logits: (N, C)."""
    # 12 points and 4 classes
    shape = tuple(found.shape)
    require(shape == (12, 4), f"The probabilities have the shape {shape}, not (12, 4).")
    require(is_close(found.sum(dim=1), torch.ones(12).double()), NO_SUM)
    with torch.no_grad():
        right = network(points).softmax(dim=1)
    require(not is_close(found, right.softmax(dim=1)), TWICE)
    require(is_close(found, right), OTHER_PROBABILITIES)


def _make_parts() -> tuple[nn.Module, nn.Module]:
    """A backbone with statistics of other data, and a head with a BatchNorm of its own."""
    norm = nn.BatchNorm1d(5)
    backbone = nn.Sequential(nn.Linear(6, 5), norm, nn.Tanh()).double()
    norm.get_buffer("running_mean").uniform_(-1, 1)
    norm.get_buffer("running_var").uniform_(0.2, 2)
    head = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4)).double()
    return backbone, head


def _extract(backbone: nn.Module, batches: Batches, training: bool = False) -> Batches:
    """Features and targets; with ``training`` the features are normalised by each batch."""
    backbone = copy.deepcopy(backbone).train(training)
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
@torch.random.fork_rng(devices=[])
@torch.enable_grad()
def check_repair_probe(answer: Callable) -> None:
    """``answer(backbone, head, batches, epochs, lr) -> losses``: a backbone that holds still."""
    torch.manual_seed(0)
    for sizes, epochs in (((8, 8, 5), 2), ((12,), 5)):
        backbone, head = _make_parts()
        batches = draw_batches(*sizes)
        before = copy.deepcopy(backbone.state_dict())
        start = copy.deepcopy(head).train()
        # The backbone never changes, so its features are those of every epoch.
        features = _extract(backbone, batches) * epochs
        batch_features = _extract(backbone, batches, training=True) * epochs
        learning_rates = [PROBE_LR] * len(features)
        right, losses = train_copy(start, features, learning_rates)
        modes = record_modes(head)
        found = answer(backbone, head, list(batches), epochs, PROBE_LR)
        found_losses = read_losses(found, len(features))
        _require_unmoved(backbone, before)
        weights = flatten_parameters(head)
        require(not weights.equal(flatten_parameters(start)), UNTRAINED)
        require(all(modes[: len(features)]), EVAL_HEAD)
        if not is_close(weights, flatten_parameters(right)):
            faulty, _ = train_copy(start, batch_features, learning_rates)
            require(not is_close(weights, flatten_parameters(faulty)), OF_BATCH)
            fail(OTHER_HEAD)
        require(is_close(found_losses, losses), OTHER_LOSS)
