"""Checks of the exercises of lesson 25."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.outputs import Output

__all__ = [
    "check_find_different",
    "check_judge_winner",
    "check_measure_optimism",
    "check_search_settings",
]


@checks_exercise()
def check_measure_optimism(answer: Callable) -> None:
    """``answer(config, data) -> (fresh, seen, low, high)``: the best of three learning rates."""
    judge_experiment(run_experiment(answer))


# ---- ★ The winner, on other images.


def _as_numbers(found: object, count: int) -> list[float] | None:
    """So many numbers, or None."""
    if not isinstance(found, tuple | list) or len(found) != count:
        return None
    try:
        return [float(value) for value in found]
    except (TypeError, ValueError):
        return None


@checks_exercise()
def check_judge_winner(answer: Callable) -> Iterator[Output]:
    """``answer(hits, choosing, judging) -> (best, seen, fresh)``."""
    for case, shared, twins in (("", 0, False), ("With shared images:", 9, False), ("", 4, True)):
        hits = np.random.random((5, 60)) < np.array([[0.5], [0.6], [0.4], [0.6], [0.55]])
        order = np.random.permutation(60)
        choosing, judging = order[:20], np.random.permutation(order[20 - shared : 50])
        if twins:  # two equals that choose, and are not equal where they judge
            case = "With two equally good candidates:"
            hits[:, choosing] = np.arange(20) < 8
            hits[[1, 3], choosing[10]] = True
            hits[1, judging[:6]], hits[3, judging[:6]] = True, False
        known = hits, choosing, judging
        given = [array.copy() for array in known]
        found = _as_numbers(answer(*given), 3)
        require(found is not None, "Return three numbers: the candidate, its seen and its fresh.")
        assert found is not None
        require(all(map(np.array_equal, given, known)), "The arrays given must stay as they were.")
        require(found[0] in range(5), "The candidate is its number in hits, which counts from 0.")
        yield Output(found, "These are not the numbers that are asked for.", case=case)


# ---- ★★ McNemar's tests with Holm's correction.


def _plant(baseline: np.ndarray, only_rival: int, only_baseline: int) -> np.ndarray:
    """A rival that alone is right so often, and alone wrong so often."""
    rival = baseline.copy()
    wrong, right = (np.random.permutation(np.flatnonzero(part)) for part in (~baseline, baseline))
    rival[wrong[:only_rival]] = True
    rival[right[:only_baseline]] = False
    return rival


@checks_exercise()
def check_find_different(answer: Callable) -> Iterator[Output]:
    """``answer(baseline, rivals) -> booleans (K,)``."""
    cases = (  # of each rival: how often it alone is right, and alone wrong
        [(20, 5), (22, 4), (80, 40), (4, 20), (16, 5), (12, 2), (17, 6), (30, 5)],
        [(2, 18)],
        [(40, 38), (0, 0), (30, 4), (3, 29)],
        [(15, 4), (15, 4), (30, 5)],  # p = 0.019 twice
    )
    for case in cases:
        baseline = np.random.permutation(np.arange(400) % 2 == 0)
        rivals = np.array([_plant(baseline, *counts) for counts in case])
        known = baseline, rivals
        given = [array.copy() for array in known]
        found = np.asarray(answer(*given))
        require(found.shape == (len(case),), "Return one boolean for each rival, in one array.")
        require(found.dtype == bool, "Return booleans: found < 0.05 gives them.")
        require(all(map(np.array_equal, given, known)), "The arrays given must stay as they were.")
        yield Output(
            found.astype(int).tolist(),
            f"It should be another answer than {found.tolist()} where the rivals are alone right, "
            f"and alone wrong, {', '.join(f'{a} and {b}' for a, b in case)} times.",
        )


# ---- ★★★ Finding the bugs.


class _Centre(nn.Module):
    """Class 1 where the input is nearer to the centre than one; train mode shifts the inputs."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(size))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            inputs = inputs + 0.7
        distance = (inputs - self.centre).norm(dim=1)
        return torch.stack([torch.ones_like(distance), 2 - distance], dim=1)


def _train_centre(model: _Centre, inputs: Tensor, targets: Tensor, setting: float) -> None:
    """In place: a second training moves the centre on. Leaves the network in train mode."""
    require(torch.is_grad_enabled(), "Training needs gradients: only judge under no_grad.")
    model.train()
    with torch.no_grad():
        model.centre.add_(setting * inputs[targets == 1].mean(dim=0))


def _draw_part(count: int, shift: float) -> tuple[Tensor, Tensor]:
    """Class 1 lies around (1, 1), class 0 further away; ``shift`` moves all of them."""
    targets = torch.arange(count) % 2
    inputs = 1.0 + shift + 0.6 * torch.randn(count, 2)
    angles = 6.3 * torch.rand(count)
    ring = 1.3 * torch.stack([angles.cos(), angles.sin()], dim=1)
    return inputs + torch.where(targets[:, None] == 0, ring, torch.zeros(2)), targets


@checks_exercise()
def check_search_settings(answer: Callable) -> Iterator[Output]:
    """``answer(make_model, train, settings, parts) -> (best, accuracy on the test images)``."""
    results: list[float] = []  # of all cases at once: they tell more faults apart
    for settings in ((0.7, 0.3, 1.2, 0.5), (0.2, 1.0, 0.6, 1.5), (1.0, 1.0, 0.3)):
        counts = {"train": (40, 0.0), "val": (50, -0.2), "test": (70, 0.4)}
        parts = {name: _draw_part(*about) for name, about in counts.items()}
        given = {name: tuple(x.clone() for x in part) for name, part in parts.items()}
        found = _as_numbers(answer(partial(_Centre, 2), _train_centre, settings, given), 2)
        require(found is not None, "Return two numbers: the setting's, and an accuracy.")
        assert found is not None
        same = all(
            torch.equal(a, b) for n in parts for a, b in zip(parts[n], given[n], strict=True)
        )
        require(same, "The tensors given must stay as they were.")
        require(
            found[0] in range(len(settings)),
            "The first number is that of the setting in settings, which counts from 0.",
        )
        results += found
    yield Output(
        results,
        "These are not the numbers that are asked for, and no fault that the check knows explains "
        "them.",
        tolerance=1e-4,
    )
