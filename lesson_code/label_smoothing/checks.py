"""Checks of the exercises of lesson 06."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, diagnose, require
from course_utils.checking.oracles import flatten_parameters, is_pair, record_modes
from course_utils.checking.outputs import Output
from course_utils.measure.paired import paired_difference

__all__ = [
    "check_equal_mass_error",
    "check_smooth_targets",
    "check_smoothing_experiment",
    "check_train_smoothed",
]


# ---- ☆ The experiment. Planted trainings take no time, and every logit of theirs is known.

NUM_HELD_OUT, NUM_CLASSES = 6000, 10
NUM_DRAWS = 3  # different trainings; with more seeds they come again
# Whether one temperature can correct the plain network, and by what the logits of a calibrated
# network are multiplied in the smoothed trainings, one seed after the other.
CASES = (
    (False, (1.0, 1.0, 1.0)),  # smoothing helps
    (True, (0.4, 0.4, 0.4)),  # hurts
    (True, (2.6 / 3, 2.6 / 3, 2.6 / 3)),  # equivalent: as the plain trainings after scaling
    (False, (1.0, 0.5, 0.75)),  # inconclusive
)
REASONS = {
    "equivalent": "an interval within ±1 point is equivalent",
    "inconclusive": "equivalent needs the whole interval within ±1 point, and this one contains 0",
}


def _draw_calibrated(number: int) -> tuple[Tensor, Tensor]:
    """Logits (N, C) whose probabilities the targets (N,) are drawn from."""
    generator = torch.Generator().manual_seed(1000 + number)
    logits = 2 * torch.randn(NUM_HELD_OUT, NUM_CLASSES, generator=generator)
    targets = torch.multinomial(logits.softmax(dim=1), 1, generator=generator)[:, 0]
    return logits, targets


def _read_smoothing(loss: Callable) -> float:
    """The ε of a loss: it is linear in ε, and we know its values at 0 and 1."""
    logits, targets = torch.linspace(-1, 2, NUM_CLASSES)[None], torch.tensor([0])
    plain, uniform = (F.cross_entropy(logits, targets, label_smoothing=eps) for eps in (0.0, 1.0))
    return float((loss(logits, targets) - plain) / (uniform - plain))


class _PlantedTrainings:
    """In place of trainings: logits that do not depend on the seeds, which are recorded."""

    def __init__(self, can_be_scaled: bool, factors: Sequence[float]) -> None:
        self.factors = factors
        # A plain training is overconfident, and a little less so in the second half.
        # One temperature corrects it, unless every other image is underconfident.
        self.distortion = torch.full((NUM_HELD_OUT, 1), 3.0)
        self.distortion[NUM_HELD_OUT // 2 :] = 2.6
        if not can_be_scaled:
            self.distortion[::2] = 0.35
        self.plain: list[tuple[int, ...]] = []  # the seeds of each call
        self.smoothed: list[tuple[int, ...]] = []

    def __call__(self, options: Mapping, seeds: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        is_plain = abs(_read_smoothing(options.get("loss", F.cross_entropy))) <= 0.001
        (self.plain if is_plain else self.smoothed).append(tuple(seeds))
        answered = []
        for place in range(len(seeds)):
            logits, targets = _draw_calibrated(place % NUM_DRAWS)
            factor = self.distortion if is_plain else self.factors[place % NUM_DRAWS]
            answered.append((factor * logits, targets))
        return answered

    def find_seeds(self) -> tuple[int, ...]:
        """The seeds of both variants."""
        require(
            self.plain or self.smoothed,
            "Nothing was trained: call train(options, seeds) for both variants.",
        )
        require(self.plain, "No training is plain: leave loss out, or take smoothing 0.")
        require(self.smoothed, "No training is smoothed: give train a loss with label_smoothing.")
        shared = [seeds for seeds in self.plain if seeds in self.smoothed]
        require(
            shared,
            f"The plain trainings have the seeds {self.plain[0]}, the smoothed ones "
            f"{self.smoothed[0]}: pair them.",
        )
        seeds = shared[0]
        require(len(set(seeds)) == len(seeds), "A seed is there twice: its error counts twice.")
        require(len(seeds) >= 3, "An interval needs three seeds or more.")
        return seeds


def _find_temperature(logits: Tensor, targets: Tensor) -> float:
    """The T with the lowest cross-entropy among 120 from 0.1 to 10."""
    candidates = torch.logspace(-1, 1, 120)
    losses = [F.cross_entropy(logits / t, targets) for t in candidates]
    return candidates[int(torch.stack(losses).argmin())].item()


@checks_exercise()
def check_smoothing_experiment(answer: Callable) -> Iterator[Output]:
    """``answer(train, fit_temperature) -> dict``: calibration errors, their interval, the verdict.

    The trainings are planted, so that the check takes a second and knows every logit.
    """
    for case in CASES:
        train = _PlantedTrainings(*case)
        found = answer(train, _find_temperature)
        require(isinstance(found, dict), "Return a dictionary: is there a return?")
        missing = sorted({"scaled", "smoothed", "low", "high", "verdict"} - found.keys())
        require(not missing, f"The dictionary lacks {', '.join(missing)}.")
        seeds = train.find_seeds()
        for name in ("scaled", "smoothed"):
            errors = np.asarray(found[name], dtype=float)
            require(
                errors.shape == (len(seeds),),
                f"{name} has the shape {errors.shape}: give one calibration error per seed.",
            )
            yield Output(
                [errors[number::NUM_DRAWS].mean() for number in range(NUM_DRAWS)],
                "it does not hold the calibration errors of the second halves, one per seed.",
                case=f"{name}:",
                tolerance=0.01,  # a prediction at the edge of a bin may change it
            )
        _judge_verdict(found)


def _find_edges(scaled: np.ndarray, smoothed: np.ndarray) -> Sequence[float]:
    difference = paired_difference(scaled, smoothed)
    return difference.low, difference.high


# The edges in points, from scaled (a) and smoothed (b) calibration errors in points.
INTERVAL_FAULTS: Sequence[tuple[str, Callable[[np.ndarray, np.ndarray], Sequence[float]]]] = (
    ("The interval has the wrong sign: it is of smoothed minus scaled.",
     lambda a, b: _find_edges(b, a)),
    ("The interval is unpaired: take the differences seed by seed first.",
     lambda a, b: stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)),
    ("The interval uses 1.96; with so few seeds take the t distribution, or paired_difference.",
     lambda a, b: stats.norm.interval(0.95, (b - a).mean(), stats.sem(b - a))),
    ("The interval takes the standard deviation with ddof=0: few seeds need ddof=1.",
     lambda a, b: stats.t.interval(0.95, len(a) - 1, (b - a).mean(), stats.sem(b - a, ddof=0))),
    ("The interval is in units of 1, not in points: multiply by 100.",
     lambda a, b: _find_edges(a / 100, b / 100)),
)  # fmt: skip


def _judge_verdict(found: Mapping) -> None:
    """Fail unless interval and verdict are those of the calibration errors."""
    errors = [100 * np.asarray(found[name], dtype=float) for name in ("scaled", "smoothed")]
    low, high = _find_edges(*errors)
    diagnose(
        [found["low"], found["high"]],
        lambda rule: rule(*errors),
        _find_edges,
        INTERVAL_FAULTS,
        "low and high are not the 95 % interval of smoothed minus scaled: that is "
        f"{low:+.2f} to {high:+.2f} points.",
        fault_tolerance=1e-4,
    )
    expected = paired_difference(*errors).verdict(more_is_better=False, margin=1)
    require(
        found["verdict"] == expected,
        f"The interval {low:+.2f} to {high:+.2f} points is {expected}, not {found['verdict']}: "
        f"{REASONS.get(expected, 'a lower calibration error is better')}.",
    )


# ---- ★ Smoothed targets.


@checks_exercise()
def check_smooth_targets(answer: Callable) -> Iterator[Output]:
    """``answer(targets, num_classes, smoothing) -> (N, C)``, as PyTorch smooths."""
    # number of classes, ε, and how many of the classes occur among the targets
    for num_classes, smoothing, occurring in ((4, 0.1, 4), (10, 0.5, 9), (3, 0.0, 3), (5, 1.0, 5)):
        found = answer(torch.randint(occurring, (12,)), num_classes, smoothing)
        require(isinstance(found, Tensor), "Return a tensor.")
        case = f"12 targets of {num_classes} classes, ε = {smoothing}:"
        shape = (12, num_classes)
        require(found.shape == shape, f"{case} the shape is {shape}, not {tuple(found.shape)}.")
        require(
            smoothing == 0 or found.is_floating_point(),
            f"The dtype {found.dtype} cuts shares off to 0: probabilities are floats.",
        )
        sums = found.double().sum(dim=1)  # (N,)
        worst = sums[(sums - 1).abs().argmax()].item()
        otherwise = (
            f"the right class has {1 - smoothing + smoothing / num_classes:.3f} and each other "
            f"one {smoothing / num_classes:.3f}."
        )
        if abs(worst - 1) > 1e-5:
            otherwise = f"each row sums to 1, and here one sums to {worst:.3f}."
        if worst > 1 + 1e-5:
            otherwise += " What all classes get must be taken from the right one."
        yield Output(found, otherwise, case=case)


# ---- ★★ Bins with equally many predictions.


def _draw_predictions(count: int) -> tuple[Tensor, Tensor]:
    """Probabilities (N, 3), no two with the same confidence, and targets (N,).

    The predictions are overconfident and underconfident in turns as the confidence rises. So
    neighbouring bins have gaps of opposite sign, and it shows where they are cut.
    """
    shuffled = torch.randperm(count)
    confidence = torch.linspace(0.45, 0.99, count)[shuffled]  # (N,), the largest probability
    others = (1 - confidence) * torch.tensor([[0.55], [0.45]])  # (2, N)
    predicted = torch.randint(3, (count,))
    # Which class gets the largest, the second and the third of the probabilities.
    classes = torch.stack([predicted, (predicted + 1) % 3, (predicted + 2) % 3], dim=1)  # (N, 3)
    values = torch.stack([confidence, *others], dim=1)  # (N, 3)
    probabilities = torch.zeros(count, 3).scatter(1, classes, values)
    chance = confidence - 0.4 * (60 * confidence).sin()  # of being right
    is_right = torch.rand(count) < chance
    targets = torch.where(is_right, predicted, (predicted + 1) % 3)
    return probabilities, targets


@checks_exercise()
def check_equal_mass_error(answer: Callable) -> Iterator[Output]:
    """``answer(probabilities, targets, num_bins) -> error``: bins by rank, not by width."""
    for count, num_bins in ((400, 8), (307, 10), (50, 1), (7, 5)):
        found = answer(*_draw_predictions(count), num_bins)
        require(
            found is not None and math.isfinite(float(found)),
            "Return one finite number (an empty group has no mean).",
        )
        yield Output(
            float(found),
            f"{count} predictions in {num_bins} groups of equal size have the error {{right}}, "
            f"not {float(found):.4f}.",
            tolerance=1e-4,
        )


# ---- ★★★ Find the bugs.


@checks_exercise()
def check_train_smoothed(answer: Callable) -> Iterator[Output]:
    """``answer(model, train, val_images, val_targets, smoothing, lr) -> (loss, confidence)``."""
    for smoothing in (0.3, 0.0):
        train = [(torch.randn(8, 12), torch.arange(8) % 4) for _ in range(4)]
        val_images = 2 * torch.randn(15, 12)
        # With ε = 0 the model comes in eval mode, as an earlier call would leave it.
        model = nn.Linear(12, 4).train(smoothing > 0)
        start = flatten_parameters(model)
        modes = record_modes(model)
        found = answer(model, train, val_images, torch.arange(15) % 4, smoothing, 0.3)
        require(is_pair(found), "Return two numbers: validation loss and mean confidence.")
        weights = flatten_parameters(model)
        require(
            not weights.equal(start),
            "The weights never change: does each step have its gradient?",
        )
        yield Output(
            weights, "The weights are not those of SGD on the smoothed loss of each batch."
        )
        # Sorted in reverse, True comes first: all of the training is before all of the validation.
        turns = modes == sorted(modes, reverse=True) and set(modes) == {True, False}
        require(
            turns and modes.count(True) >= len(train),
            "Train in train mode and validate in eval mode: model.train(), .eval().",
        )
        for value, name in zip(found, ("validation loss", "mean confidence"), strict=True):
            yield Output(
                float(value),
                f"The {name} is {{right}}; yours is {float(value):.4f}.",
                tolerance=1e-4,
                fault_tolerance=1e-5,
            )
