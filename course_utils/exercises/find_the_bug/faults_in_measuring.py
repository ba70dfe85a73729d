"""Checks of lesson 90, faults in measuring: accuracies, validation losses, what is reported."""

import copy
import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from course_utils.exercises.checking import checks_exercise, require
from course_utils.exercises.find_the_bug.replay import (
    draw_batches,
    flatten,
    is_close,
    make_network,
    read_losses,
    record_modes,
    replay,
)

__all__ = ["check_repair_accuracy", "check_repair_search", "check_repair_smoothing"]

LR = 0.3
MODES = "Train in train mode, validate in eval mode."
TRAIN_MODE = "The model is in train mode while it is measured: model.eval()."
HARD_TRAINING = "It trains on hard targets: label smoothing is gone from the training."
OTHER_STEPS = "The weights are not those of SGD on the smoothed loss of each training batch."
SMOOTHED = "The validation loss is that of smoothed targets: it measures another task."
NO_PAIR = "Return two things: the list of training losses and the validation loss."
THREE = "Return three things: the setting, its epoch and the accuracy to report."
BY_TEST = "The setting is chosen by its test accuracy: choose by validation."
BY_BOTH = "Setting and epoch are chosen by test accuracy: choose by validation."
REPORTS_VAL = "It reports the validation accuracy, which is high because it was chosen for that."
TOO_EARLY = "The test split is scored before the last look at validation: choose first."


def _compare_accuracy(found: float, hits: Tensor, size: int) -> None:
    """``hits`` (N,): 1 where the model is right; batches of ``size``."""
    parts, count = hits.split(size), len(hits)
    last, full = len(parts[-1]), count // size * size
    faults = {
        f"The mean of the batches' accuracies: the last one has {last} of {count} points and "
        f"counts like one of {size}.": torch.stack([part.mean() for part in parts]).mean(),
        "That is a percentage: return a share from 0 to 1.": 100 * hits.mean(),
        "That is the number of hits: divide by the number of points.": hits.sum(),
        "The last batch, which is not full, is left out.": hits[:full].mean(),
        "The last batch is counted as if it were full.": hits.sum() / (size * len(parts)),
        "The hits are divided by the number of batches.": hits.sum() / len(parts),
        "That is the share of errors.": 1 - hits.mean(),
    }
    right = hits.mean().item()
    for sentence, fault in faults.items():
        none = abs(fault.item() - right) < 1e-6  # with full batches some are no faults
        require(none or not abs(found - fault.item()) < 1e-6, sentence)
    share = f"{int(hits.sum())} of {count} points are right, {right:.4f}, not {found:.4f}."
    require(abs(found - right) < 1e-6, share)


@checks_exercise
@torch.random.fork_rng(devices=[])
@torch.enable_grad()
def check_repair_accuracy(answer: Callable) -> None:
    """``answer(model, loader) -> share``: each point counts once, whatever the batch size."""
    torch.manual_seed(0)
    for count, size in ((33, 10), (33, 16), (24, 8), (5, 9)):
        model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(), nn.BatchNorm1d(8), nn.Linear(8, 4))
        model.double()[2].running_mean.uniform_(-1, 1)
        points, _ = draw_batches(count)[0]
        with torch.no_grad():
            answers = copy.deepcopy(model).eval()(points).argmax(1)
        wrong = torch.arange(count) % 5 < 2
        targets = torch.where(wrong, (answers + 1) % 4, answers)
        modes = record_modes(model)
        found = answer(model, DataLoader(TensorDataset(points, targets), batch_size=size))
        require(not any(modes), TRAIN_MODE)
        require(found is not None, "Nothing came back: is there a return?")
        _compare_accuracy(float(found), 1 - wrong.double(), size)


@checks_exercise
@torch.random.fork_rng(devices=[])
@torch.enable_grad()
def check_repair_smoothing(answer: Callable) -> None:
    """``answer(model, train, val, smoothing, lr) -> (losses, validation loss)``."""
    torch.manual_seed(0)
    for smoothing, sizes in ((0.3, (8, 3)), (0.1, (5, 5, 1)), (0.0, (9, 4))):
        model, train, val = make_network(), draw_batches(8, 8, 8, 8), draw_batches(*sizes)
        windows, rates, start = [[batch] for batch in train], [LR] * 4, copy.deepcopy(model)
        modes = record_modes(model)
        smoothed = partial(F.cross_entropy, label_smoothing=smoothing)
        right, losses = replay(start, windows, rates, loss=smoothed)
        found = answer(model, list(train), list(val), smoothing, LR)
        require(isinstance(found, tuple | list) and len(found) == 2, NO_PAIR)
        weights, own, reported = flatten(model), read_losses(found[0], 4), float(found[1])
        if not is_close(weights, right):
            require(not is_close(weights, replay(start, windows, rates)[0]), HARD_TRAINING)
            require(False, OTHER_STEPS)
        require(is_close(own, losses), "A training loss is not the smoothed one of its batch.")
        require(all(modes[:4]) and not any(modes[4:]), MODES)
        with torch.no_grad():
            logits = [(model(inputs), targets) for inputs, targets in val]
        plain = torch.cat([F.cross_entropy(*pair, reduction="none") for pair in logits])
        soft = torch.cat([smoothed(*pair, reduction="none") for pair in logits])
        mean = plain.mean().item()
        of_means = sum(part.mean().item() for part in plain.split(sizes)) / len(sizes)
        near = partial(math.isclose, reported, abs_tol=1e-6)
        require(near(mean) or not near(soft.mean().item()), SMOOTHED)
        weighed = "The mean of the batches' means: the last batch is smaller, weigh by its size."
        require(near(mean) or not near(of_means), weighed)
        require(
            near(mean), f"The mean cross-entropy over points is {mean:.4f}, not {reported:.4f}."
        )


class _Run(nn.Module):
    """A model that knows how it was trained; as a module it can be copied in every usual way."""

    def __init__(self, setting: int) -> None:
        super().__init__()
        self.register_buffer("place", torch.tensor([setting, -1]))


def _explain_search(found: tuple, chosen: tuple, val: Tensor, test: Tensor) -> None:
    """Fail, if what is returned is not the ``chosen`` pair with its test accuracy, and say why."""
    setting, epoch, accuracy = found
    at_best = [test[row, int(val[row].argmax())].item() for row in range(len(val))]
    by_test = max(range(len(val)), key=at_best.__getitem__)
    best_test = divmod(int(test.argmax()), test.shape[1])
    if (setting, epoch) != chosen:
        require((setting, epoch) != (by_test, int(val[by_test].argmax())), BY_TEST)
        require((setting, epoch) != best_test, BY_BOTH)
        best, its = val[chosen].item(), val[setting].max().item()
        higher = f"Setting {setting} is chosen, whose best validation accuracy is {its:.2f}"
        require(setting == chosen[0], f"{higher}; setting {chosen[0]} has {best:.2f}.")
        require(False, f"Validation is best after epoch {chosen[1]}, epoch {epoch} is chosen.")
    require(abs(accuracy - val[chosen]) > 1e-6, REPORTS_VAL)
    right = test[chosen].item()
    later = f"The chosen model has {right:.3f} on the test split, not {accuracy:.3f}: keep a copy."
    require(abs(accuracy - right) < 1e-6, later)


@checks_exercise
@torch.random.fork_rng(devices=[])
@torch.enable_grad()
def check_repair_search(answer: Callable) -> None:
    """``answer(make_model, train_epoch, score, settings, epochs)``: chosen, then tested once."""
    torch.manual_seed(0)
    for settings, epochs in ((4, 5), (6, 3), (3, 4), (1, 6)):
        cells = settings * epochs
        val = 0.3 + torch.randperm(cells).view(settings, epochs).double() / (2 * cells)
        test = 1.1 - val + 0.2 / cells  # what is best here is not best there; no value in both
        looks: list[str] = []

        def train_epoch(model: _Run, setting: int) -> None:
            require(int(model.place[0]) == setting, "A model is trained with another's setting.")
            model.place[1] += 1

        def score(model: _Run, split: str, looks=looks, val=val, test=test) -> float:
            looks.append(split)
            return {"val": val, "test": test}[split][tuple(model.place.tolist())].item()

        found = answer(_Run, train_epoch, score, list(range(settings)), epochs)
        require(isinstance(found, tuple | list) and len(found) == 3, THREE)
        chosen = divmod(int(val.argmax()), epochs)
        _explain_search((int(found[0]), int(found[1]), float(found[2])), chosen, val, test)
        times = looks.count("test")
        require(times == 1, f"The test split is scored {times} times: once, when all is chosen.")
        require(looks[-1] == "test", TOO_EARLY)
