"""Checks of lesson 90, faults in measuring: accuracies, validation losses, what is reported."""

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from course_utils.checking.checking import CheckFailed, checks_exercise, diagnose, fail, require
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
    train_copy_without_zero_grad,
)

__all__ = ["check_repair_accuracy", "check_repair_search", "check_repair_smoothing"]

LR = 0.3
ROUNDING = 1e-6
TRAINS_IN_EVAL = "The network is trained in eval mode."
MEASURES_IN_TRAIN = "The validation points are measured in train mode."
BEFORE_TRAINING = "The validation loss is that of the network before the training."
LEFT_MODE = "The model came in eval mode, and is in train mode afterwards."
TRAIN_MODE = "The model is in train mode while it is measured: model.eval()."
HARD_TRAINING = "It trains on hard targets: label smoothing is gone from the training."
NO_ZERO_GRAD = "Gradients of earlier steps still count: zero_grad is missing."
OTHER_SMOOTHING = (
    "Smoothing is shared among the wrong classes: in PyTorch the right class gets a part of it too."
)
TRAINS_ON_VAL = "Steps are taken on the validation batches too."
OTHER_STEPS = "The weights are not those of SGD on the smoothed loss of each training batch."
SMOOTHED_LOSS = "the smoothed loss of its batch"
SMOOTHED = "The validation loss is that of smoothed targets: it measures another task."
MEAN_OF_MEANS = "The mean of the batches' means: the last batch is smaller, weigh by its size."
NO_PAIR = "Return two things: the list of training losses and the validation loss."
THREE = "Return three things: the setting, its epoch and the accuracy to report."
BY_TEST = "The setting is chosen by its test accuracy: choose by validation."
BY_BOTH = "Setting and epoch are chosen by test accuracy: choose by validation."
REPORTS_VAL = "It reports the validation accuracy, which is high because it was chosen for that."
NOTHING_CHOSEN = "Where the only validation accuracy is 0, it stops with {}: {}."
TOO_EARLY = "The test split is scored before the last look at validation: choose first."


# What a wrong answer makes of ``hits`` (N,), which are 1 where the model is right, and why.
# fmt: off
SHARE_FAULTS: Sequence[tuple[str, Callable[[Tensor, int], Tensor]]] = (
    ("The mean of the batches' accuracies: the last one has fewer points and counts the same.",
     lambda hits, size: torch.stack([part.mean() for part in hits.split(size)]).mean()),
    ("That is a percentage: return a share from 0 to 1.",
     lambda hits, size: 100 * hits.mean()),
    ("That is the number of hits: divide by the number of points.",
     lambda hits, size: hits.sum()),
    ("The last batch, which is not full, is left out.",
     lambda hits, size: hits[: len(hits) // size * size].mean()),
    ("The last batch is counted as if it were full.",
     lambda hits, size: hits.sum() / (size * len(hits.split(size)))),
    ("The hits of the last batch are counted as if it were full.",
     lambda hits, size: sum(size * part.mean() for part in hits.split(size)) / len(hits)),
    ("Only the first batch is counted.",
     lambda hits, size: hits[:size].mean()),
    ("Only the last batch is counted.",
     lambda hits, size: hits.split(size)[-1].mean()),
    ("The hits are divided by the number of batches.",
     lambda hits, size: hits.sum() / len(hits.split(size))),
    ("That is the share of errors.",
     lambda hits, size: 1 - hits.mean()),
)
# fmt: on


@torch.no_grad()
def _measure_accuracy(
    model: nn.Module, loader: DataLoader, share: Callable[[Tensor, int], Tensor]
) -> float:
    """An answer that is wrong only in ``share(hits, batch size)``."""
    model.eval()
    hits = [(model(points).argmax(dim=1) == targets).double() for points, targets in loader]
    assert loader.batch_size is not None  # for the type checker: the check's loaders have one
    return share(torch.cat(hits), loader.batch_size).item()


@checks_exercise(
    faults=[(why, partial(_measure_accuracy, share=share)) for why, share in SHARE_FAULTS]
)
@torch.enable_grad()
def check_repair_accuracy(answer: Callable) -> None:
    """``answer(model, loader) -> share``: each point counts once, whatever the batch size."""
    for count, batch_size, training in (
        (33, 10, True),
        (33, 16, False),
        (24, 8, True),
        (5, 9, False),
    ):
        # Dropout and statistics of other data: in train mode the outputs differ.
        norm = nn.BatchNorm1d(8)
        model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(), norm, nn.Linear(8, 4)).double()
        norm.get_buffer("running_mean").uniform_(-1, 1)
        points, _ = draw_batches(count)[0]  # (N, 6)
        with torch.no_grad():
            predictions = copy.deepcopy(model).eval()(points).argmax(dim=1)  # (N,)
        # Some points get another class than the model's, in each batch another share of them.
        is_wrong = torch.arange(count) ** 2 % 7 < 2
        targets = torch.where(is_wrong, (predictions + 1) % 4, predictions)
        model.train(training)
        modes = record_modes(model)
        found = answer(model, DataLoader(TensorDataset(points, targets), batch_size=batch_size))
        require(not any(modes), TRAIN_MODE)
        require(training or not any(part.training for part in model.modules()), LEFT_MODE)
        require(found is not None, "Nothing came back: is there a return?")
        hits = 1 - is_wrong.double()  # (N,)
        diagnose(
            float(found),
            lambda share: share(hits, batch_size),  # noqa: B023
            lambda hits, size: hits.mean(),
            SHARE_FAULTS,
            f"{int(hits.sum())} points are right, {hits.mean():.4f}, not {float(found):.4f}.",
            case=f"{count} points in batches of {batch_size}:",
            tolerance=ROUNDING,
        )


@checks_exercise()
@torch.enable_grad()
def check_repair_smoothing(answer: Callable) -> None:
    """``answer(model, train, val, smoothing, lr) -> (losses, validation loss)``."""
    for smoothing, val_sizes in ((0.3, (8, 3)), (0.1, (5, 5, 1)), (0.0, (9, 4))):
        model = make_network()
        train = draw_batches(8, 8, 8, 8)
        val = draw_batches(*val_sizes)
        learning_rates = [LR] * len(train)
        smoothed = partial(F.cross_entropy, label_smoothing=smoothing)
        start = copy.deepcopy(model)
        right, losses = train_copy(start, train, learning_rates, smoothed)
        modes = record_modes(model)
        found = answer(model, list(train), list(val), smoothing, LR)
        require(is_pair(found), NO_PAIR)
        found_losses, reported = found
        found_losses = read_losses(found_losses, len(train))
        reported = float(reported)
        if not is_close(flatten_parameters(model), flatten_parameters(right)):
            _explain_smoothing(model, start, train, val, smoothing)
        require_losses(found_losses, losses, SMOOTHED_LOSS)
        before = math.isclose(reported, _measure_loss(start, val), abs_tol=ROUNDING)
        require(not before, BEFORE_TRAINING)
        require(all(modes[: len(train)]), TRAINS_IN_EVAL)
        require(not any(modes[len(train) :]), MEASURES_IN_TRAIN)
        _compare_val_loss(reported, model, val, smoothed)


def _explain_smoothing(
    model: nn.Module, start: nn.Module, train: Batches, val: Batches, smoothing: float
) -> NoReturn:
    """Fail with the fault that leads from ``start`` to ``model``."""
    smoothed = partial(F.cross_entropy, label_smoothing=smoothing)
    learning_rates = [LR] * len(train)

    def share_among_wrong(logits: Tensor, targets: Tensor) -> Tensor:
        wrong = 1 - F.one_hot(targets, logits.shape[1]).to(logits)
        return F.cross_entropy(logits, (1 - smoothing) * (1 - wrong) + smoothing / 3 * wrong)

    for sentence, trained in (
        (HARD_TRAINING, train_copy(start, train, learning_rates)[0]),
        (OTHER_SMOOTHING, train_copy(start, train, learning_rates, share_among_wrong)[0]),
        (NO_ZERO_GRAD, train_copy_without_zero_grad(start, train, learning_rates, smoothed)),
        (TRAINS_ON_VAL, train_copy(start, train + val, [LR] * len(train + val), smoothed)[0]),
    ):
        require(not is_close(flatten_parameters(model), flatten_parameters(trained)), sentence)
    fail(OTHER_STEPS)


@torch.no_grad()
def _measure_loss(model: nn.Module, val: Batches) -> float:
    """The mean of plain cross-entropy over all points."""
    losses = [F.cross_entropy(model(points), y, reduction="none") for points, y in val]
    return torch.cat(losses).mean().item()


def _compare_val_loss(reported: float, model: nn.Module, val: Batches, smoothed: Callable) -> None:
    """The right one is the mean over all points of the loss that is not ``smoothed``."""
    with torch.no_grad():
        outputs = [(model(inputs), targets) for inputs, targets in val]
    # The losses of the points, batch by batch.
    plain = [F.cross_entropy(logits, y, reduction="none") for logits, y in outputs]
    soft = [smoothed(logits, y, reduction="none") for logits, y in outputs]
    mean = torch.cat(plain).mean().item()
    mean_smoothed = torch.cat(soft).mean().item()
    mean_of_means = sum(part.mean().item() for part in plain) / len(plain)

    def is_reported(value: float) -> bool:
        return math.isclose(reported, value, abs_tol=ROUNDING)

    if is_reported(mean):
        return
    require(not is_reported(mean_smoothed), SMOOTHED)
    require(not is_reported(mean_of_means), MEAN_OF_MEANS)
    fail(f"The mean cross-entropy over points is {mean:.4f}, not {reported:.4f}.")


class _Run(nn.Module):
    """A model that knows how it was trained; as a module it can be copied in every usual way."""

    place: Tensor  # (2,): its setting and its last epoch, −1 before the first

    def __init__(self, setting: int) -> None:
        super().__init__()
        self.register_buffer("place", torch.tensor([setting, -1]))


def _explain_search(
    found: tuple[int, int, float], chosen: tuple[int, int], val: Tensor, test: Tensor, tests: int
) -> None:
    """Fail, if what is returned is not the ``chosen`` pair with its test accuracy, and say why.

    ``val`` and ``test`` (settings, epochs): the accuracies after each epoch. ``tests``: how often
    the test split was scored. Who scored it once has chosen nothing by it.
    """
    setting, epoch, accuracy = found
    pair = (setting, epoch)
    if pair != chosen and tests > 1:
        best_epochs = val.argmax(dim=1)  # (settings,), each by validation
        tested = test.gather(1, best_epochs[:, None])[:, 0]  # (settings,), after these epochs
        by_test = int(tested.argmax())
        require(pair != (by_test, int(best_epochs[by_test])), BY_TEST)
        require(pair != divmod(int(test.argmax()), test.shape[1]), BY_BOTH)
    if pair != chosen:
        best = val[chosen].item()
        its_best = val[setting].max().item()
        higher = f"Setting {setting} is chosen, whose best validation accuracy is {its_best:.2f}"
        require(setting == chosen[0], f"{higher}; setting {chosen[0]} has {best:.2f}.")
        fail(f"Validation is best after epoch {chosen[1]}, epoch {epoch} is chosen.")
    require(abs(accuracy - val[chosen]) > ROUNDING, REPORTS_VAL)
    right = test[chosen].item()
    wrong = f"The chosen model has {right:.3f} on the test split, not {accuracy:.3f}"
    near = (test - accuracy).abs() < ROUNDING
    if near.any() and not near[chosen]:
        other = divmod(int(near.long().argmax()), test.shape[1])
        fail(f"{wrong}, which is that of setting {other[0]} after epoch {other[1]}: keep a copy.")
    require(near[chosen], f"{wrong}.")


@checks_exercise()
@torch.enable_grad()
def check_repair_search(answer: Callable) -> None:
    """``answer(make_model, train_epoch, score, settings, epochs)``: chosen, then tested once."""
    for settings, epochs, least_val in ((4, 5, 0.45), (6, 3, 0.05), (3, 4, 0.6), (1, 6, 0.1)):
        _check_one_search(answer, settings, epochs, least_val)
    try:
        _check_one_search(answer, 1, 1, 0)
    except CheckFailed:
        raise
    except Exception as error:
        raise CheckFailed(NOTHING_CHOSEN.format(type(error).__name__, error)) from error


def _check_one_search(answer: Callable, settings: int, epochs: int, least_val: float) -> None:
    """``least_val``: the lowest validation accuracy; on the test split it is above 0.3."""
    cells = settings * epochs
    # Accuracies (settings, epochs), all different. What is best on one split is worst on the
    # other, and no value occurs in both. The chosen one may be higher on either split.
    order = torch.randperm(cells).view(settings, epochs).double() / cells
    val = least_val + 0.2 * order
    test = 0.5 - 0.2 * order + 0.05 / cells
    splits = {"val": val, "test": test}
    looks: list[str] = []  # the splits that are scored, in order

    def train_epoch(model: _Run, setting: int) -> None:
        require(int(model.place[0]) == setting, "A model is trained with another's setting.")
        model.place[1] += 1

    def score(model: _Run, split: str) -> float:
        looks.append(split)
        return splits[split][tuple(model.place.tolist())].item()

    found = answer(_Run, train_epoch, score, list(range(settings)), epochs)
    require(isinstance(found, tuple | list) and len(found) == 3, THREE)
    setting, epoch, accuracy = found
    chosen = divmod(int(val.argmax()), epochs)
    times = looks.count("test")
    _explain_search((int(setting), int(epoch), float(accuracy)), chosen, val, test, times)
    require(times == 1, f"The test split is scored {times} times: once, when all is chosen.")
    require(looks[-1] == "test", TOO_EARLY)
