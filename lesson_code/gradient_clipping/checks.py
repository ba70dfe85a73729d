"""Checks of the exercises of lesson 15."""

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from course_utils.checking.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import Batches, flatten_parameters

__all__ = [
    "check_clip_groups",
    "check_measure_clipping",
    "check_step_if_finite",
    "check_train_clipped",
]

Clip = Callable[[Sequence[nn.Parameter], float], object]


@checks_exercise()
def check_measure_clipping(answer: Callable) -> None:
    """``answer(config, data) -> (without, clipped, low, high)``: clipping over the same seeds."""
    judge_experiment(run_experiment(answer))


# ---- ★ A norm for each group.


def _make_groups(count: int = 3) -> list[list[nn.Parameter]]:
    """Three groups: long gradients, short ones and a missing one, and no gradients at all."""
    groups = [[nn.Parameter(torch.zeros(3, 2)), nn.Parameter(torch.zeros(3))] for _ in range(3)]
    for parameter in groups[0]:
        parameter.grad = 10 * torch.randn_like(parameter)
    groups[1][0].grad = 0.1 * torch.randn_like(groups[1][0])
    return groups[:count]


def _clip_groups(groups: list[list[nn.Parameter]], max_norms: list[float]) -> list[float]:
    return [clip_grad_norm_(group, m).item() for group, m in zip(groups, max_norms, strict=True)]


def _clip_together(groups: list[list[nn.Parameter]], max_norms: list[float]) -> list[float]:
    everything = [parameter for group in groups for parameter in group]
    return [clip_grad_norm_(everything, max_norms[0]).item() for _ in groups]


def _clip_each_parameter(groups: list[list[nn.Parameter]], max_norms: list[float]) -> list[float]:
    return [
        max(clip_grad_norm_([parameter], limit).item() for parameter in group)
        for group, limit in zip(groups, max_norms, strict=True)
    ]


def _clip_groups_by_value(groups: list[list[nn.Parameter]], max_norms: list[float]) -> list[float]:
    norms = _clip_groups(groups, [math.inf for _ in groups])
    for group, max_norm in zip(groups, max_norms, strict=True):
        for parameter in group:
            if parameter.grad is not None:
                parameter.grad.clamp_(-max_norm, max_norm)
    return norms


def _clip_with_first_norm(groups: list[list[nn.Parameter]], max_norms: list[float]) -> list[float]:
    return _clip_groups(groups, [max_norms[0] for _ in groups])


def _stretch_to_norm(groups: list[list[nn.Parameter]], max_norms: list[float]) -> list[float]:
    norms = _clip_groups(groups, [math.inf for _ in groups])
    for group, max_norm, norm in zip(groups, max_norms, norms, strict=True):
        for parameter in group:
            if parameter.grad is not None:
                parameter.grad *= max_norm / norm
    return norms


GROUP_FAULTS: Faults = (
    ("The first threshold is used for every group.", _clip_with_first_norm),
    ("Each parameter has its own norm: the norm is that of the whole group.",
     _clip_each_parameter),
    ("The numbers are limited, not the norm.", _clip_groups_by_value),
    ("All groups share one norm: clip each group by its own.", _clip_together),
    ("Short gradients are made longer: a gradient below the threshold stays as it is.",
     _stretch_to_norm),
)  # fmt: skip


def _list_gradients(groups: list[list[nn.Parameter]]) -> Tensor:
    """All gradients in one vector; a missing one has no numbers."""
    return torch.cat([p.grad.flatten() for group in groups for p in group if p.grad is not None])


@checks_exercise(faults=GROUP_FAULTS)
def check_clip_groups(answer: Callable) -> None:
    """``answer(groups, max_norms) -> norms``: clipped in place, the norms before returned."""
    # The group without gradients comes last: some wrong answers stop there.
    for max_norms in ([1.0, 2.0], [100.0, 0.05], [1.0, 2.0, 1.0]):
        groups = _make_groups(len(max_norms))

        def clip(other: Callable) -> Tensor:
            copied = copy.deepcopy(groups)  # noqa: B023
            for group, originals in zip(copied, groups, strict=True):  # noqa: B023
                for parameter, original in zip(group, originals, strict=True):
                    parameter.grad = None if original.grad is None else original.grad.clone()
            before = [[(p, p.grad) for p in group] for group in copied]
            clip.norms = other(copied, list(max_norms))  # type: ignore[attr-defined] # noqa: B023
            require(
                [len(g) for g in before] == [len(g) for g in copied],
                "The lists of parameters are changed: leave them as they are.",
            )
            for p, grad in (pair for group in before for pair in group):
                require(
                    grad is not None or p.grad is None,
                    "A gradient of None has to stay None.",
                )
                require(p.grad is grad, "The gradients are new tensors: change them in place.")
            return _list_gradients(copied)

        expected = [
            math.sqrt(sum(float(p.grad.norm()) ** 2 for p in group if p.grad is not None))
            for group in groups
        ]
        found = clip(answer)
        norms = clip.norms  # type: ignore[attr-defined]
        diagnose(
            found,
            clip,
            _clip_groups,
            GROUP_FAULTS,
            f"The gradients are not those of each group, clipped by its norm. The norms are "
            f"{_show(expected)}, and it returns {norms}.",
        )
        require(
            isinstance(norms, list) and all(isinstance(norm, (int, float)) for norm in norms),
            "Return the norms as a list of floats: .item().",
        )
        require(
            len(norms) == len(expected),
            f"It returns {len(norms)} norms for {len(expected)} groups: one each, or 0.",
        )
        require(
            torch.allclose(
                torch.tensor(norms).double(), torch.tensor(expected).double(), rtol=1e-5
            ),
            f"The norms are not those before clipping: {_show(expected)}, not {_show(norms)}.",
        )
    _require_untouched_refusal(answer, [1.0, 1.0], "too few thresholds")
    _require_untouched_refusal(answer, [1.0, 1.0, 1.0, 1.0], "too many thresholds")


def _show(norms: Sequence[float]) -> str:
    return ", ".join(f"{norm:.3g}" for norm in norms)


def _require_untouched_refusal(answer: Callable, max_norms: list[float], what: str) -> None:
    groups = _make_groups()
    before = _list_gradients(groups).clone()
    try:
        answer(groups, max_norms)
    except ValueError:
        unchanged = torch.equal(before, _list_gradients(groups))
        require(unchanged, f"With {what} it clips before it raises: compare first.")
        return
    except Exception as error:
        fail(f"With {what} it raises {type(error).__name__}: raise a ValueError.")
    fail(f"With {what} it raises nothing: raise a ValueError.")


# ---- ★★ Step, or skip.


def _step_if_finite(
    model: nn.Module,
    optimizer: Optimizer,
    schedule: LambdaLR,
    max_norm: float,
    clip: Clip = clip_grad_norm_,
    checks: bool = True,
    schedules_always: bool = False,
    steps_with_zero: bool = False,
    schedules: bool = True,
    schedule_first: bool = False,
) -> bool:
    """A right answer, unless an argument plants a fault."""
    finite = all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())
    clip(list(model.parameters()), max_norm)
    taken = finite or not checks
    if steps_with_zero and not finite:
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    elif taken:
        if schedule_first:
            schedule.step()
        optimizer.step()
    if schedules and not schedule_first and (taken or schedules_always):
        schedule.step()
    return taken


STEP_FAULTS: Faults = (
    ("A step with a gradient that is not finite is taken: weights or moments are NaN.",
     partial(_step_if_finite, checks=False)),
    ("Short gradients are made longer: a gradient below the threshold stays as it is.",
     partial(_step_if_finite, clip=lambda parameters, max_norm: _stretch(parameters, max_norm))),
    ("Each parameter is clipped by its own norm: take the common one.",
     partial(_step_if_finite, clip=lambda parameters, max_norm: [
         clip_grad_norm_([p], max_norm) for p in parameters])),
    ("No step is ever taken.", lambda *_: False),
    ("The schedule is stepped before the optimizer.",
     partial(_step_if_finite, schedule_first=True)),
    ("The schedule is stepped although the optimizer is not.",
     partial(_step_if_finite, schedules_always=True)),
    ("Gradients of zero move the weights of AdamW: do not call optimizer.step().",
     partial(_step_if_finite, steps_with_zero=True)),
    ("The schedule is never stepped.",
     partial(_step_if_finite, schedules=False)),
    ("The gradients are not clipped.",
     partial(_step_if_finite, clip=lambda parameters, max_norm: None)),
    ("The numbers are limited, not the norm.",
     partial(_step_if_finite, clip=clip_grad_value_)),
)  # fmt: skip


def _stretch(parameters: Sequence[nn.Parameter], max_norm: float) -> None:
    norm = clip_grad_norm_(parameters, math.inf)
    for parameter in parameters:
        parameter.grad *= max_norm / norm  # type: ignore[operator]


def _step_four_times(answer: Callable, bad: float) -> tuple[Tensor, list[object]]:
    """Weights, learning rate and Adam's first moments after four steps, the third one bad."""
    torch.manual_seed(0)
    model, returned = nn.Linear(4, 3), []
    optimizer = AdamW(model.parameters(), lr=0.1, eps=0.1)  # clipped steps are shorter
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
        for number in range(4):
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            if number == 1:
                clip_grad_norm_(model.parameters(), 0.1)  # shorter than the threshold
            if number == 2:
                model.bias.grad[1] = bad  # type: ignore[index]
            returned.append(answer(model, optimizer, schedule, 0.5))
    moments = [
        optimizer.state[p].get("exp_avg", torch.zeros_like(p)).flatten() for p in model.parameters()
    ]
    rate = torch.tensor([optimizer.param_groups[0]["lr"]])
    return torch.nan_to_num(torch.cat([flatten_parameters(model), rate, *moments]), 1e6), returned


def _name_wrong(state: Tensor, bad: float) -> str:
    right, _ = _step_four_times(_step_if_finite, bad)
    pairs = zip(state.split([15, 1, 15]), right.split([15, 1, 15]), strict=True)
    names = ("the weights", "the learning rate", "Adam's moments")
    return ", ".join(
        n for n, (a, b) in zip(names, pairs, strict=True) if not torch.allclose(a, b, rtol=1e-4)
    )


@checks_exercise(faults=STEP_FAULTS)
def check_step_if_finite(answer: Callable) -> None:
    """``answer(model, optimizer, schedule, max_norm) -> taken``."""
    for bad in (math.inf, math.nan, 5.0):
        state, returned = _step_four_times(answer, bad)
        diagnose(
            state,
            lambda other: _step_four_times(other, bad)[0],  # noqa: B023
            _step_if_finite,
            STEP_FAULTS,
            f"Not as after clipped steps, the bad one left out: {_name_wrong(state, bad)}.",
            case=f"With a gradient of {bad} in the third of four steps:",
        )
        require(
            all(isinstance(taken, bool) for taken in returned if taken is not None),
            f"Return True or False: it returns {returned[0]!r}.",
        )
        expected = [True, True, math.isfinite(bad), True]
        require(
            returned == expected,
            f"It returns {returned}, not {expected}: say whether the step was taken.",
        )


# ---- ★★★ Finding the bugs.


def _train_clipped(
    model: nn.Module,
    optimizer: Optimizer,
    schedule: LambdaLR,
    scaler: torch.amp.GradScaler,
    batches: Batches,
    max_norm: float,
    accumulate: int,
    each: bool = False,
    scaled: bool = False,
    chosen: Callable[[list[nn.Parameter]], list[nn.Parameter]] = lambda parameters: parameters,
    schedules_always: bool = False,
    divides: bool = True,
    clips: bool = True,
    zeroes: str = "per step",
    clip: Clip = clip_grad_norm_,
    schedules: bool = True,
) -> None:
    """A right answer, unless an argument plants a fault."""
    parameters = chosen(list(model.parameters()))
    for number, (inputs, targets) in enumerate(batches, start=1):
        loss = F.cross_entropy(model(inputs), targets) / (accumulate if divides else 1)
        scaler.scale(loss).backward()
        if each:
            clip_grad_norm_(parameters, max_norm * (1 if scaled else scaler.get_scale()))
        if zeroes == "per micro-batch" and number % accumulate:
            optimizer.zero_grad()
        if number % accumulate:
            continue
        if scaled and not each:
            clip_grad_norm_(parameters, max_norm)
        scaler.unscale_(optimizer)
        if clips and not scaled and not each:
            clip(parameters, max_norm)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if schedules and (schedules_always or scaler.get_scale() >= before):
            schedule.step()
        if zeroes != "never":
            optimizer.zero_grad()


def _take_last(parameters: list[nn.Parameter]) -> list[nn.Parameter]:
    return parameters[-2:]


TRAIN_FAULTS: Faults = (
    ("The gradients are not clipped.",
     partial(_train_clipped, clips=False)),
    ("The schedule is stepped where the scaler skipped: look whether the scale after update is "
     "lower than before step.",
     partial(_train_clipped, schedules_always=True)),
    ("The schedule is never stepped.", partial(_train_clipped, schedules=False)),
    ("The numbers are limited, not the norm.", partial(_train_clipped, clip=clip_grad_value_)),
    ("The gradients are not set to zero after each step, a skipped one included.",
     partial(_train_clipped, zeroes="never")),
    ("Only the gradients of the last micro-batch are used: zero_grad comes once per step.",
     partial(_train_clipped, zeroes="per micro-batch")),
    ("Only the last layer is clipped: take the norm of all parameters.",
     partial(_train_clipped, chosen=_take_last)),
    ("The gradients are clipped while they are scaled: unscale_ first.",
     partial(_train_clipped, scaled=True)),
    ("The gradients are clipped after each micro-batch: clip once per step.",
     partial(_train_clipped, each=True)),
    ("Scaled gradients are clipped after each micro-batch: unscale_, then clip once per step.",
     partial(_train_clipped, each=True, scaled=True)),
    ("Scaled gradients of the last layer are clipped after each micro-batch.",
     partial(_train_clipped, each=True, scaled=True, chosen=_take_last)),
    ("Scaled gradients of the last layer are clipped.",
     partial(_train_clipped, scaled=True, chosen=_take_last)),
    ("The micro-batches are added: divide each loss by their number.",
     partial(_train_clipped, divides=False)),
)  # fmt: skip


def _run_clipped(answer: Callable, bad: float, accumulate: int, max_norm: float) -> Tensor:
    """The weights and the steps of the schedule after a training of twelve micro-batches."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    batches = [(3 * torch.randn(8, 6), torch.randint(3, (8,))) for _ in range(12)]
    batches[4] = (batches[4][0] * bad, batches[4][1])
    optimizer = SGD(model.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
        answer(model, optimizer, schedule, scaler, batches, max_norm, accumulate)
    steps = torch.tensor([float(schedule.last_epoch)])
    return torch.nan_to_num(torch.cat([flatten_parameters(model), steps]), 1e6)


@checks_exercise(faults=TRAIN_FAULTS)
def check_train_clipped(answer: Callable) -> None:
    """``answer(model, optimizer, schedule, scaler, batches, max_norm, accumulate)``, in place."""
    for bad, accumulate, max_norm in ((1.0, 3, 0.1), (math.inf, 2, 0.1), (1.0, 2, 1e6)):
        found = _run_clipped(answer, bad, accumulate, max_norm)
        right = _run_clipped(_train_clipped, bad, accumulate, max_norm)
        diagnose(
            found,
            lambda other: _run_clipped(other, bad, accumulate, max_norm),  # noqa: B023
            _train_clipped,
            TRAIN_FAULTS,
            "The weights are not those of clipped steps on the mean gradients."
            if found[-1] == right[-1]
            else f"The schedule is stepped {int(found[-1])} times, not {int(right[-1])}: once for "
            "each step that the optimizer took.",
        )
