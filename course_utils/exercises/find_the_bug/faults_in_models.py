"""Checks of lesson 90, faults in what a model puts out and in what it carries along."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from course_utils.exercises.checking import checks_exercise, require
from course_utils.exercises.find_the_bug.replay import (
    Batches,
    draw_batches,
    flatten,
    is_close,
    make_network,
    read_losses,
    record_modes,
    replay,
)

__all__ = ["check_repair_probabilities", "check_repair_probe"]

SECOND = "cross_entropy takes logits and is given probabilities: it takes their softmax once more."
NEGATIVE = "A loss is below 0: nll_loss takes the logarithms of probabilities."
NOT_LOGITS = "The losses are not those of SGD on the cross-entropy of the network's logits."
NO_SUM = "A row of the probabilities does not sum to 1: are they the logits?"
TWICE = "The returned probabilities have gone through softmax twice."
EVAL_HEAD = "The head is trained in eval mode: its own BatchNorm has to learn its statistics."
OF_BATCH = "The head learns features made with each batch's statistics, and will be given others."
UNTRAINED = "The head's weights have not changed: is it trained?"
OTHER_HEAD = "The head is not that of SGD, batch by batch, on the features of validation."


@checks_exercise
@torch.random.fork_rng(devices=[])
@torch.enable_grad()
def check_repair_probabilities(answer: Callable) -> None:
    """``answer(network, points, targets, steps, lr) -> (losses, probabilities (N, C))``."""
    torch.manual_seed(0)
    for steps, lr in ((25, 1.0), (1, 0.5), (8, 0.1)):
        network, [batch] = make_network(), draw_batches(12)
        plan = [[batch]] * steps, [lr] * steps
        right, losses = replay(network, *plan)
        _, squeezed = replay(nn.Sequential(copy.deepcopy(network), nn.Softmax(dim=1)), *plan)
        found = answer(network, *batch, steps, lr)
        pair = isinstance(found, tuple | list) and len(found) == 2
        require(pair, "Return two things: the losses and the probabilities.")
        own, probabilities = read_losses(found[0], steps), torch.as_tensor(found[1]).detach()
        require(not is_close(own, squeezed), SECOND)
        require((own >= 0).all(), NEGATIVE)
        require(is_close(own, losses) and is_close(flatten(network), right), NOT_LOGITS)
        shape = tuple(probabilities.shape)
        require(shape == (12, 4), f"The probabilities have the shape {shape}, not (12, 4).")
        require(is_close(probabilities.sum(1), torch.ones(12).double()), NO_SUM)
        with torch.no_grad():
            once = network(batch[0]).softmax(1)
        require(not is_close(probabilities, once.softmax(1)), TWICE)
        require(is_close(probabilities, once), "The probabilities are not the trained network's.")


def _make_parts() -> tuple[nn.Module, nn.Module]:
    """A backbone with statistics of other data, and a head with a BatchNorm of its own."""
    backbone = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh()).double()
    backbone[1].running_mean.uniform_(-1, 1)
    backbone[1].running_var.uniform_(0.2, 2)
    head = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4)).double()
    return backbone, head


def _extract(backbone: nn.Module, batches: Batches, training: bool = False) -> list[Batches]:
    backbone = copy.deepcopy(backbone).train(training)
    with torch.no_grad():
        return [[(backbone(inputs), targets)] for inputs, targets in batches]


def _find_moved(module: nn.Module, before: dict[str, Tensor]) -> list[str]:
    return [name for name, value in module.state_dict().items() if not value.equal(before[name])]


@checks_exercise
@torch.random.fork_rng(devices=[])
@torch.enable_grad()
def check_repair_probe(answer: Callable) -> None:
    """``answer(backbone, head, batches, epochs, lr) -> losses``: a backbone that holds still."""
    torch.manual_seed(0)
    for sizes, epochs in (((8, 8, 5), 2), ((12,), 5)):
        (backbone, head), batches = _make_parts(), draw_batches(*sizes)
        before, start = copy.deepcopy(backbone.state_dict()), copy.deepcopy(head)
        features = _extract(backbone, batches) * epochs
        by_batch = _extract(backbone, batches, training=True) * epochs
        rates, modes = [0.2] * len(features), record_modes(head)
        right, losses = replay(start.train(), features, rates)
        found = answer(backbone, head, list(batches), epochs, 0.2)
        own = read_losses(found, len(features))
        moved = _find_moved(backbone, before)
        names = dict(backbone.named_parameters())
        trained = [name for name in moved if name in names]
        require(not trained, f"The backbone is to be frozen, and is trained: {', '.join(trained)}.")
        statistics = "The backbone has no gradient and still moves: {}."
        require(not moved, statistics.format(", ".join(moved)))
        require(not flatten(head).equal(flatten(start)), UNTRAINED)
        require(all(modes[: len(features)]), EVAL_HEAD)
        if not is_close(flatten(head), right):
            require(not is_close(flatten(head), replay(start, by_batch, rates)[0]), OF_BATCH)
            require(False, OTHER_HEAD)
        require(is_close(own, losses), "A loss is not that of its batch before the step.")
