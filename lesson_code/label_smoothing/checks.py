"""Checks of the exercises of lesson 06."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

from course_utils.checking.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.checking.oracles import Batches, flatten_parameters, is_pair, record_modes
from course_utils.measure.calibration import calibration_error
from course_utils.measure.paired import PairedDifference, paired_difference

__all__ = [
    "check_equal_mass_error",
    "check_smooth_targets",
    "check_smoothing_experiment",
    "check_train_smoothed",
]

LR = 0.3
ROUNDING = 1e-5

# ---- ☆ The experiment. Planted trainings take no time, and every logit of theirs is known.

Answered = tuple[Tensor, Tensor]  # logits (N, C) and targets (N,) of held-out images
NUM_HELD_OUT, NUM_CLASSES = 6000, 10
KEYS = {"scaled", "smoothed", "low", "high", "verdict"}
# For each verdict: whether one temperature can correct the plain network, and by what the logits
# of a calibrated network are multiplied in the smoothed trainings, one seed after the other.
CASES: dict[str, tuple[bool, tuple[float, ...]]] = {
    "helps": (False, (1.0,)),
    "hurts": (True, (0.4,)),
    "equivalent": (True, (2.6 / 3,)),  # as the plain trainings after scaling
    "inconclusive": (False, (1.0, 0.5, 0.75)),
}


def _draw_calibrated(seed: int) -> Answered:
    """Logits whose probabilities the targets are drawn from."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(NUM_HELD_OUT, NUM_CLASSES, generator=generator)
    targets = torch.multinomial(logits.softmax(dim=1), 1, generator=generator)[:, 0]
    return logits, targets


def _read_smoothing(loss: Callable) -> float:
    """The ε of a loss: it is linear in ε, and we know its values at 0 and 1."""
    logits, targets = _draw_calibrated(0)
    plain, uniform = (F.cross_entropy(logits, targets, label_smoothing=eps) for eps in (0.0, 1.0))
    value = torch.as_tensor(loss(logits, targets))
    return ((value - plain) / (uniform - plain)).item()


class _Training(NamedTuple):
    """What one call of `_PlantedTrainings` was asked for, and what it gave."""

    smoothing: float
    seeds: tuple[int, ...]
    answered: list[Answered]  # one per seed


class _PlantedTrainings:
    """In place of trainings: logits that are known, and a record of what was asked for."""

    def __init__(self, case: str):
        self.can_be_scaled, self.factors = CASES[case]
        self.calls: list[_Training] = []

    def __call__(self, options: Mapping, seeds: Sequence[int]) -> list[Answered]:
        smoothing = _read_smoothing(options.get("loss", F.cross_entropy))
        answered = []
        for place, seed in enumerate(seeds):
            logits, targets = _draw_calibrated(1000 + seed)
            factor = self.factors[place % len(self.factors)]
            smoothed = factor * logits
            answered.append((smoothed if smoothing > 0.001 else self._distort(logits), targets))
        self.calls.append(_Training(smoothing, tuple(seeds), answered))
        return [(logits.clone(), targets.clone()) for logits, targets in answered]

    def _distort(self, logits: Tensor) -> Tensor:
        """A plain training: overconfident, and a little less so in the second half.

        One temperature corrects it, unless every other image is underconfident.
        """
        factors = torch.full((NUM_HELD_OUT, 1), 3.0)
        factors[NUM_HELD_OUT // 2 :] = 2.6
        if not self.can_be_scaled:
            factors[::2] = 0.35
        return factors * logits


def _find_temperature(logits: Tensor, targets: Tensor) -> float:
    """The T with the lowest cross-entropy among 120 from 0.1 to 10."""
    candidates = torch.logspace(-1, 1, 120)
    losses = [F.cross_entropy(logits / t, targets) for t in candidates]
    return candidates[int(torch.stack(losses).argmin())].item()


def _halves(answered: Answered) -> tuple[Answered, Answered]:
    logits, targets = answered
    half = len(targets) // 2
    return (logits[:half], targets[:half]), (logits[half:], targets[half:])


def _scale_and_measure(
    answered: Answered,
    fitted_on: Callable[[Answered], Answered] = lambda answered: _halves(answered)[0],
    reported_on: Callable[[Answered], Answered] = lambda answered: _halves(answered)[1],
    scale: Callable[[Tensor, float], Tensor] = lambda logits, t: logits / t,
    factor: float = 1.0,
) -> float:
    """The oracle for a plain training; another value of an argument is a fault."""
    temperature = _find_temperature(*fitted_on(answered))
    logits, targets = reported_on(answered)
    return factor * calibration_error(scale(logits, temperature), targets)


def _measure_second_half(answered: Answered) -> float:
    """The oracle for a smoothed training."""
    return calibration_error(*_halves(answered)[1])


SCALED_FAULTS: Faults = (
    ("T is fitted on the half that is reported: fit it on the first half alone.",
     partial(_scale_and_measure, fitted_on=lambda answered: _halves(answered)[1])),
    ("T is fitted on all images, and half of them are reported: fit it on the first half alone.",
     partial(_scale_and_measure, fitted_on=lambda answered: answered)),
    ("The first half is reported, on which T was fitted: report the second half.",
     partial(_scale_and_measure, reported_on=lambda answered: _halves(answered)[0])),
    ("All images are reported, and T was fitted on half of them: report the second half.",
     partial(_scale_and_measure, reported_on=lambda answered: answered)),
    ("The plain trainings are not scaled: divide the logits by T.",
     partial(_scale_and_measure, scale=lambda logits, t: logits)),
    ("The logits are multiplied by T: divide by it.",
     partial(_scale_and_measure, scale=lambda logits, t: logits * t)),
    ("The probabilities are divided by T: divide the logits, before the softmax.",
     partial(_scale_and_measure, scale=lambda logits, t: logits.softmax(dim=1) / t)),
    ("calibration_error gets probabilities: it takes logits.",
     partial(_scale_and_measure, scale=lambda logits, t: (logits / t).softmax(dim=1))),
    ("The errors are in percent: give them from 0 to 1.",
     partial(_scale_and_measure, factor=100.0)),
)  # fmt: skip
SMOOTHED_FAULTS: Faults = (
    ("The smoothed trainings are scaled too: report them as they were trained.",
     _scale_and_measure),
    ("It has all images of the smoothed trainings: report the second half, as for the plain ones.",
     lambda answered: calibration_error(*answered)),
    ("It has the first half of the smoothed trainings: report the second half of both.",
     lambda answered: calibration_error(*_halves(answered)[0])),
    ("The errors are in percent: give them from 0 to 1.",
     lambda answered: 100 * _measure_second_half(answered)),
)  # fmt: skip

Rule = Callable[[np.ndarray, np.ndarray], tuple[float, float]]


def _paired_interval(scaled: np.ndarray, smoothed: np.ndarray) -> tuple[float, float]:
    found = paired_difference(scaled, smoothed)
    return 100 * found.low, 100 * found.high


def _unpaired_interval(scaled: np.ndarray, smoothed: np.ndarray) -> tuple[float, float]:
    found = stats.ttest_ind(smoothed, scaled, equal_var=False).confidence_interval(0.95)
    return 100 * found.low, 100 * found.high


def _wrong_interval(
    scaled: np.ndarray, smoothed: np.ndarray, factor: float = 0, ddof: int = 1
) -> tuple[float, float]:
    """The paired interval with one thing changed: its factor or its spread."""
    difference = 100 * (smoothed - scaled)
    factor = factor or stats.t.ppf(0.975, len(difference) - 1)
    half = factor * difference.std(ddof=ddof) / math.sqrt(len(difference))
    return difference.mean() - half, difference.mean() + half


def _judge(low: float, high: float, more_is_better: bool = False, margin: float = 1) -> str:
    """The verdict on an interval in points; a lower calibration error is better."""
    found = PairedDifference((low + high) / 2, low, high, n=2)
    return found.verdict(more_is_better=more_is_better, margin=margin)


def _run_experiment(
    train: Callable,
    fit_temperature: Callable,
    measure_plain: Callable[[Answered], float] = _scale_and_measure,
    measure_smoothed: Callable[[Answered], float] = _measure_second_half,
    rule: Rule = _paired_interval,
    judge: Callable[[float, float], str] = _judge,
    seeds: Sequence[int] = (0, 1, 2),
) -> dict:
    """A right answer, unless one of its steps is another one."""
    loss = partial(F.cross_entropy, label_smoothing=0.1)
    scaled = np.array([measure_plain(x) for x in train({"pretrained": True}, seeds)])
    smoothed = train({"pretrained": True, "loss": loss}, seeds)
    smoothed = np.array([measure_smoothed(x) for x in smoothed])
    low, high = rule(scaled, smoothed)
    found = {"scaled": scaled, "smoothed": smoothed, "low": low, "high": high}
    return found | {"verdict": judge(low, high)}


INTERVAL_FAULTS: tuple[tuple[str, Rule], ...] = (
    ("The interval has the wrong sign: it is of smoothed minus scaled.",
     lambda scaled, smoothed: _paired_interval(smoothed, scaled)),
    ("The interval is unpaired: take the differences seed by seed first.", _unpaired_interval),
    ("The interval uses 1.96; with so few seeds take the t distribution, or paired_difference.",
     partial(_wrong_interval, factor=1.96)),
    ("The interval takes the standard deviation with ddof=0: few seeds need ddof=1.",
     partial(_wrong_interval, ddof=0)),
    ("The interval is in units of 1, not in points: multiply by 100.",
     lambda scaled, smoothed: _paired_interval(scaled / 100, smoothed / 100)),
)  # fmt: skip
VERDICT_FAULTS: Faults = (
    ("a lower calibration error is better",
     partial(_run_experiment, judge=partial(_judge, more_is_better=True))),
    ("equivalent needs the whole interval within ±1 point",
     partial(_run_experiment, judge=lambda low, high: "equivalent" if low < 0 < high
             else _judge(low, high))),
    ("an interval within ±1 point is equivalent",
     partial(_run_experiment, judge=partial(_judge, margin=0))),
)  # fmt: skip
WRONG_SCALED = [
    (text, partial(_run_experiment, measure_plain=fault)) for text, fault in SCALED_FAULTS
]
WRONG_SMOOTHED = [
    (text, partial(_run_experiment, measure_smoothed=fault)) for text, fault in SMOOTHED_FAULTS
]
WRONG_INTERVALS = [(text, partial(_run_experiment, rule=rule)) for text, rule in INTERVAL_FAULTS]
EXPERIMENT_FAULTS: Faults = [
    *WRONG_SCALED,
    *WRONG_SMOOTHED,
    *WRONG_INTERVALS,
    *VERDICT_FAULTS,
]


@checks_exercise(faults=EXPERIMENT_FAULTS)
def check_smoothing_experiment(answer: Callable) -> None:
    """``answer(train, fit_temperature) -> dict``: calibration errors, their interval, the verdict.

    The trainings are planted, so that the check takes a second and knows every logit.
    """
    for case in CASES:
        train = _PlantedTrainings(case)
        found = answer(train, _find_temperature)
        require(isinstance(found, dict), "Return a dictionary: is there a return?")
        missing = sorted(KEYS - found.keys())
        require(not missing, f"The dictionary lacks {', '.join(missing)}.")
        plain, smoothed = _find_trainings(train, found)
        scaled_errors = _check_errors(
            found["scaled"], plain, "scaled", _scale_and_measure, SCALED_FAULTS
        )
        smoothed_errors = _check_errors(
            found["smoothed"], smoothed, "smoothed", _measure_second_half, SMOOTHED_FAULTS
        )
        expected = _paired_interval(scaled_errors, smoothed_errors)
        diagnose(
            [found["low"], found["high"]],
            lambda rule: rule(scaled_errors, smoothed_errors),  # noqa: B023
            _paired_interval,
            INTERVAL_FAULTS,
            "low and high are not the 95 % interval of smoothed minus scaled: that is "
            f"{expected[0]:+.2f} to {expected[1]:+.2f} points.",
        )
        _check_verdict(found["verdict"], *expected)


def _find_trainings(train: _PlantedTrainings, found: Mapping) -> tuple[_Training, _Training]:
    """The plain and the smoothed trainings; of several, the ones whose errors are returned."""
    require(train.calls, "Nothing was trained: call train(options, seeds) for both variants.")
    plain = [x for x in train.calls if abs(x.smoothing) <= 0.001]
    smoothed = [x for x in train.calls if 0.001 < x.smoothing < 0.999]
    require(plain, "No training is plain: leave loss out, or take smoothing 0.")
    require(smoothed, "No training is smoothed: give train a loss with label_smoothing.")
    one = _choose(found["scaled"], plain, _scale_and_measure)
    other = _choose(found["smoothed"], smoothed, _measure_second_half)
    seeds = one.seeds
    require(
        seeds == other.seeds,
        f"The plain trainings have the seeds {seeds}, the smoothed ones {other.seeds}: pair them.",
    )
    require(len(set(seeds)) == len(seeds), "A seed is there twice: its error counts twice.")
    require(len(seeds) >= 3, "An interval needs three seeds or more.")
    return one, other


def _choose(
    values: object, calls: Sequence[_Training], measure: Callable[[Answered], float]
) -> _Training:
    """The trainings that gave these errors; the first ones if none did."""
    given = np.asarray(values, dtype=float)
    for call in calls:
        errors = np.array([measure(x) for x in call.answered])
        if given.shape == errors.shape and np.allclose(given, errors, atol=ROUNDING):
            return call
    return calls[0]


def _check_errors(
    values: object,
    training: _Training,
    name: str,
    oracle: Callable[[Answered], float],
    faults: Faults,
) -> np.ndarray:
    """Fail unless these are the calibration errors of the trainings, one per seed."""
    given = np.asarray(values, dtype=float)
    right = np.array([oracle(x) for x in training.answered])
    require(
        given.shape == right.shape,
        f"{name} has the shape {given.shape}: give one calibration error per seed.",
    )
    diagnose(
        given,
        lambda other: [other(x) for x in training.answered],
        oracle,
        faults,
        f"{name} does not hold the calibration errors of the second halves, one per seed.",
        case=f"{name}:",
    )
    return right


def _check_verdict(verdict: object, low: float, high: float) -> None:
    expected = _judge(low, high)
    if verdict == expected:
        return
    reasons = {
        "helps": "smoothing helps where its interval lies below 0; a lower calibration error "
        "is better",
        "hurts": "smoothing hurts where its interval lies above 0; a lower calibration error "
        "is better",
        "equivalent": "an interval within ±1 point is equivalent",
        "inconclusive": "equivalent needs the whole interval within ±1 point, "
        "and this one contains 0",
    }
    fail(
        f"The interval {low:+.2f} to {high:+.2f} points is {expected}, not {verdict}: "
        f"{reasons[expected]}."
    )


# ---- The functions.


# number of classes, ε, and how many of the classes occur among the targets
SMOOTHINGS = ((4, 0.1, 4), (10, 0.5, 9), (3, 0.0, 3), (5, 1.0, 5))


def _smooth(
    targets: Tensor,
    num_classes: int,
    smoothing: float,
    values: Callable[[float, int], tuple[float, float]] = lambda eps, c: (
        1 - eps + eps / c,
        eps / c,
    ),
) -> Tensor:
    """The oracle (N, C), unless the ``values`` of the right class and each other one are wrong."""
    of_right, of_others = values(smoothing, num_classes)
    soft = torch.full((len(targets), num_classes), of_others)
    return soft.scatter(1, targets[:, None], of_right)


# fmt: off
SMOOTH_FAULTS: Faults = (
    ("ε is spread over the C − 1 wrong classes; PyTorch spreads it over all C.",
     partial(_smooth, values=lambda eps, c: (1 - eps, eps / (c - 1)))),
    ("The right class lacks its own share of ε, which all C classes get.",
     partial(_smooth, values=lambda eps, c: (1 - eps, eps / c))),
    ("ε is the share that is spread over all classes; here 1 − ε is spread.",
     partial(_smooth, values=lambda eps, c: (eps + (1 - eps) / c, (1 - eps) / c))),
)
# fmt: on


@checks_exercise(faults=SMOOTH_FAULTS)
def check_smooth_targets(answer: Callable) -> None:
    """``answer(targets, num_classes, smoothing) -> (N, C)``, as PyTorch smooths."""
    for num_classes, smoothing, occurring in SMOOTHINGS:
        targets = torch.randint(occurring, (12,))
        found = answer(targets, num_classes, smoothing)
        require(isinstance(found, Tensor), "Return a tensor.")
        case = f"12 targets of {num_classes} classes, ε = {smoothing}:"
        shape = (12, num_classes)
        other = f"{case} the shape is {shape}, not {tuple(found.shape)}."
        require(tuple(found.shape) == shape, other)
        whole = smoothing > 0 and not found.is_floating_point()
        require(
            not whole, f"The dtype {found.dtype} cuts shares off to 0: probabilities are floats."
        )
        sums = found.double().sum(dim=1)  # (N,)
        worst = sums[(sums - 1).abs().argmax()].item()
        otherwise = (
            f"{case} the right class has {1 - smoothing + smoothing / num_classes:.3f} and each "
            f"other one {smoothing / num_classes:.3f}."
        )
        if abs(worst - 1) > ROUNDING:
            otherwise = f"{case} each row sums to 1, and here one sums to {worst:.3f}."
        if worst > 1 + ROUNDING:
            otherwise += " What all classes get must be taken from the right one."
        diagnose(
            found,
            lambda other: other(targets, num_classes, smoothing),  # noqa: B023
            _smooth,
            SMOOTH_FAULTS,
            otherwise,
        )


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


def _group_by_rank(confidence: Tensor, num_bins: int) -> Sequence[Tensor]:
    """The places of the predictions of each bin, the bins of low confidence first."""
    return confidence.sort().indices.tensor_split(num_bins)


def _group_by_width(confidence: Tensor, num_bins: int) -> Sequence[Tensor]:
    """A fault: bins of equal width, of which the empty ones are left out."""
    numbers = (confidence * num_bins).long()
    return [(numbers == number).nonzero()[:, 0] for number in numbers.unique()]


def _group_evenly(confidence: Tensor, num_bins: int) -> Sequence[Tensor]:
    """A fault: ⌊N / num_bins⌋ predictions in each bin, so that some may be left over."""
    size = len(confidence) // num_bins
    return confidence.sort().indices[: num_bins * size].split(size)


def _leave_rest_to_last(confidence: Tensor, num_bins: int) -> Sequence[Tensor]:
    """A fault: ⌊N / num_bins⌋ predictions in each bin but the last one."""
    size = len(confidence) // num_bins
    return confidence.sort().indices.tensor_split(tuple(range(size, num_bins * size, size)))


def _average(gaps: Tensor, shares: Tensor) -> Tensor:
    return (gaps * shares).sum()


def _measure_error(
    probabilities: Tensor,
    targets: Tensor,
    num_bins: int,
    group: Callable[[Tensor, int], Sequence[Tensor]] = _group_by_rank,
    sort_right: bool = True,
    measure: Callable[[Tensor], Tensor] = lambda excess: excess.mean().abs(),
    combine: Callable[[Tensor, Tensor], Tensor] = _average,
) -> float:
    """The oracle; another value of an argument from ``group`` on is a fault.

    ``measure(excess)`` is the gap of a bin, ``combine(gaps, shares)`` is the error, from
    the gaps and the shares of all predictions that the bins hold.
    """
    confidence, predicted = probabilities.max(dim=1)  # (N,) each
    right = (predicted == targets).float()
    bins = group(confidence, num_bins)
    order = torch.cat(list(bins))
    excess = confidence[order] - (right[order] if sort_right else right)
    sizes = [len(places) for places in bins]
    gaps = torch.stack([measure(part) for part in excess.split(sizes)])
    return combine(gaps, torch.tensor(sizes) / len(targets)).item()


DROPPED = "Predictions that are left over are dropped: the first groups take one more each."
NO_ABSOLUTE = "Gaps of opposite sign cancel: take the absolute value of each."
# fmt: off
ERROR_FAULTS: Faults = (
    ("The distance is taken prediction by prediction: average inside a group first.",
     partial(_measure_error, measure=lambda excess: excess.abs().mean())),
    (NO_ABSOLUTE, partial(_measure_error, measure=lambda excess: excess.mean())),
    (NO_ABSOLUTE, partial(_measure_error, measure=lambda excess: -excess.mean())),
    ("The groups differ in size: weigh each gap by its number of predictions.",
     partial(_measure_error, combine=lambda gaps, shares: gaps.mean())),
    ("That is the largest gap of a group: take the mean, weighted by size.",
     partial(_measure_error, combine=lambda gaps, shares: gaps.max())),
    ("That is a percentage: the error is a number from 0 to 1.",
     partial(_measure_error, combine=lambda gaps, shares: 100 * _average(gaps, shares))),
    ("The confidences are sorted, but which answers are right keeps the old order.",
     partial(_measure_error, sort_right=False)),
    ("The predictions are grouped as they come: sort them by confidence first.",
     partial(_measure_error, group=lambda confidence, num_bins:
             torch.arange(len(confidence)).tensor_split(num_bins))),
    ("The bins have equal width: they should hold equally many predictions.",
     partial(_measure_error, group=_group_by_width)),
    ("There is one group too few.",
     partial(_measure_error, group=lambda confidence, num_bins:
             _group_by_rank(confidence, max(num_bins - 1, 1)))),
    (DROPPED, partial(_measure_error, group=_group_evenly)),
    (DROPPED, partial(_measure_error, group=_group_evenly, combine=lambda gaps, _: gaps.mean())),
    ("The last group takes all that are left over: the first groups take one more each.",
     partial(_measure_error, group=_leave_rest_to_last)),
    ("The groups of the highest confidence take one more: those of the lowest should.",
     partial(_measure_error, group=lambda confidence, num_bins:
             confidence.sort(descending=True).indices.tensor_split(num_bins))),
    ("All groups but the last have ⌈N / groups⌉ predictions: sizes may differ by one only.",
     partial(_measure_error, group=lambda confidence, num_bins:
             confidence.sort().indices.chunk(num_bins))),
)
# fmt: on


@checks_exercise(faults=ERROR_FAULTS)
def check_equal_mass_error(answer: Callable) -> None:
    """``answer(probabilities, targets, num_bins) -> error``: bins by rank, not by width."""
    for count, num_bins in ((400, 8), (307, 10), (50, 1), (7, 5)):
        arguments = (*_draw_predictions(count), num_bins)
        found = answer(*arguments)
        require(
            found is not None and math.isfinite(float(found)),
            "Return one finite number (an empty group has no mean).",
        )
        found = float(found)
        right = _measure_error(*arguments)
        if abs(found - right) < ROUNDING:  # absolute, as one of the right errors is 0
            continue
        diagnose(
            found,
            lambda other: other(*arguments),  # noqa: B023
            _measure_error,
            ERROR_FAULTS,
            f"{count} predictions in {num_bins} groups of equal size have the error "
            f"{right:.4f}, not {found:.4f}.",
        )


def _smoothed_loss(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(logits, targets, label_smoothing=smoothing)


def _plain_loss(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(logits, targets)


def _loss_of_others(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """A fault: ε is spread over the wrong classes only."""
    _, over_others = SMOOTH_FAULTS[0]
    return F.cross_entropy(logits, over_others(targets, logits.shape[1], smoothing))


def _train_smoothed(
    model: nn.Module,
    train: Batches,
    val_images: Tensor,
    val_targets: Tensor,
    smoothing: float,
    lr: float,
    training_loss: Callable[[Tensor, Tensor, float], Tensor] = _smoothed_loss,
    clear: bool = True,
    validation_loss: Callable[[Tensor, Tensor, float], Tensor] = _plain_loss,
    measure: Callable[..., Tensor] = lambda logits, targets: logits.softmax(dim=1).amax(dim=1),
) -> tuple[float, float]:
    """The oracle; another value of an argument from ``training_loss`` on is a fault.

    ``measure(logits, targets)`` (N,) are the confidences.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    model.train()
    for images, targets in train:
        outputs = model(images)
        if clear:
            optimizer.zero_grad()
        training_loss(outputs, targets, smoothing).backward()
        optimizer.step()
    with torch.no_grad():
        logits = model.eval()(val_images)
    loss = validation_loss(logits, val_targets, smoothing)
    return loss.item(), measure(logits, val_targets).mean().item()


def _train_at_fixed_lr(
    model: nn.Module,
    train: Batches,
    val_images: Tensor,
    val_targets: Tensor,
    smoothing: float,
    lr: float,
) -> tuple[float, float]:
    """A fault: ``lr`` is ignored."""
    return _train_smoothed(model, train, val_images, val_targets, smoothing, lr=0.1)


# fmt: off
TRAIN_FAULTS: Faults = (
    ("There is a softmax before cross_entropy, which applies its own: give it logits.",
     partial(_train_smoothed, training_loss=lambda logits, targets, smoothing:
             _smoothed_loss(logits.softmax(dim=1), targets, smoothing))),
    ("The training loss is not smoothed.",
     partial(_train_smoothed, training_loss=_plain_loss)),
    ("In training ε is spread over the wrong classes; PyTorch spreads it over all.",
     partial(_train_smoothed, training_loss=_loss_of_others)),
    ("Gradients of older batches count in a step: zero_grad is missing.",
     partial(_train_smoothed, clear=False)),
    (f"The steps have the learning rate 0.1, not lr, which is {LR} here.",
     _train_at_fixed_lr),
    ("The validation loss is smoothed: runs with another ε could not be compared with it.",
     partial(_train_smoothed, validation_loss=_smoothed_loss)),
    ("The validation loss is that of probabilities: cross_entropy wants logits here too.",
     partial(_train_smoothed, validation_loss=lambda logits, targets, _:
             F.cross_entropy(logits.softmax(dim=1), targets))),
    ("The mean of the largest logits is no confidence: take probabilities.",
     partial(_train_smoothed, measure=lambda logits, targets: logits.amax(dim=1))),
    ("Confidence is the probability of the class that is named, not of the true one.",
     partial(_train_smoothed,
             measure=lambda logits, targets: logits.softmax(dim=1).gather(1, targets[:, None]))),
)
# fmt: on


@checks_exercise(faults=TRAIN_FAULTS)
def check_train_smoothed(answer: Callable) -> None:
    """``answer(model, train, val_images, val_targets, smoothing, lr) -> (loss, confidence)``."""
    for smoothing in (0.3, 0.0):
        _check_smoothed_training(answer, smoothing)


def _check_smoothed_training(answer: Callable, smoothing: float) -> None:
    train = [(torch.randn(8, 12), torch.arange(8) % 4) for _ in range(4)]
    val_images = 2 * torch.randn(15, 12)
    val_targets = torch.arange(15) % 4
    arguments = (train, val_images, val_targets, smoothing, LR)
    # With ε = 0 the model comes in eval mode, as an earlier call would leave it.
    model = nn.Linear(12, 4).train(smoothing > 0)
    start = copy.deepcopy(model)
    modes = record_modes(model)
    found = answer(model, *arguments)
    require(is_pair(found), "Return two numbers: validation loss and mean confidence.")

    def run(other: Callable) -> tuple:
        """Another answer's weights (P,), loss and confidence."""
        trained = copy.deepcopy(start)
        loss, confidence = other(trained, *arguments)
        return flatten_parameters(trained), loss, confidence

    unchanged = flatten_parameters(model).equal(flatten_parameters(start))
    require(not unchanged, "The weights never change: does each step have its gradient?")
    diagnose(
        flatten_parameters(model),
        lambda other: run(other)[0],
        _train_smoothed,
        TRAIN_FAULTS,
        "The weights are not those of SGD on the smoothed loss of each batch.",
    )
    # Sorted in reverse, True comes first: all of the training is before all of the validation.
    turns = modes == sorted(modes, reverse=True) and set(modes) == {True, False}
    require(
        turns and modes.count(True) >= len(train),
        "Train in train mode and validate in eval mode: model.train(), .eval().",
    )
    right = run(_train_smoothed)
    for place, name in ((1, "validation loss"), (2, "mean confidence")):
        value = float(found[place - 1])
        diagnose(
            value,
            lambda other: run(other)[place],  # noqa: B023
            _train_smoothed,
            TRAIN_FAULTS,
            f"The {name} is {right[place]:.4f}, not {value:.4f}.",
            tolerance=1e-4 / right[place],  # 1e-4 itself, whatever the number is
            fault_tolerance=ROUNDING,
        )
