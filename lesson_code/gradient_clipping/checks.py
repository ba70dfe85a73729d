"""Checks of the exercises of lesson 15."""

import math
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import LambdaLR

from course_utils.checking.checking import checks_exercise, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import flatten_parameters
from course_utils.checking.outputs import Output

__all__ = [
    "check_clip_groups",
    "check_measure_clipping",
    "check_step_if_finite",
    "check_train_clipped",
]


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


def _list_gradients(groups: list[list[nn.Parameter]]) -> Tensor:
    """All gradients in one vector; a missing one has no numbers."""
    return torch.cat([p.grad.flatten() for group in groups for p in group if p.grad is not None])


@checks_exercise()
def check_clip_groups(answer: Callable) -> Iterator[Output]:
    """``answer(groups, max_norms) -> norms``: clipped in place, the norms before returned."""
    # The group without gradients comes last: some wrong answers stop there.
    for max_norms in ([1.0, 2.0], [100.0, 0.05], [1.0, 2.0, 1.0]):
        groups = _make_groups(len(max_norms))
        before = [(p, p.grad) for group in groups for p in group]
        norms = answer(groups, list(max_norms))
        require(
            [len(group) for group in groups] == [2] * len(max_norms),
            "The lists of parameters are changed: leave them as they are.",
        )
        for p, grad in before:
            require(grad is not None or p.grad is None, "A gradient of None has to stay None.")
            require(p.grad is grad, "The gradients are new tensors: change them in place.")
        yield Output(
            _list_gradients(groups),
            "The gradients are not those of each group, clipped by its norm. It returns the norms "
            f"{norms}.",
        )
        require(
            isinstance(norms, list) and all(isinstance(norm, (int, float)) for norm in norms),
            "Return the norms as a list of floats: .item().",
        )
        require(
            len(norms) == len(groups),
            f"It returns {len(norms)} norms for {len(groups)} groups: one each, or 0.",
        )
        for number, norm in enumerate(norms):
            yield Output(
                norm,
                "The norms are not those before clipping: that of the group with index "
                f"{number} is {{right}}, not {norm:.4g}.",
            )
    for max_norms, what in (([1.0] * 2, "too few thresholds"), ([1.0] * 4, "too many thresholds")):
        groups = _make_groups()
        gradients = _list_gradients(groups)
        try:
            answer(groups, max_norms)
        except ValueError:
            unchanged = torch.equal(gradients, _list_gradients(groups))
            require(unchanged, f"With {what} it clips before it raises: compare first.")
            continue
        except Exception as error:
            fail(f"With {what} it raises {type(error).__name__}: raise a ValueError.")
        fail(f"With {what} it raises nothing: raise a ValueError.")


# ---- ★★ Step, or skip.


@checks_exercise()
def check_step_if_finite(answer: Callable) -> Iterator[Output]:
    """``answer(model, optimizer, schedule, max_norm) -> taken``: four steps, the third one bad."""
    for bad in (math.inf, math.nan, 5.0):
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
        moments = [optimizer.state[p].get("exp_avg", 0 * p).flatten() for p in model.parameters()]
        parts = {
            "the weights": flatten_parameters(model),
            "the learning rate": torch.tensor(optimizer.param_groups[0]["lr"]),
            "Adam's moments": torch.cat(moments),
        }
        for name, part in parts.items():
            yield Output(
                part.nan_to_num(1e6),
                f"Not as after clipped steps, the bad one left out: {name}.",
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


@checks_exercise()
def check_train_clipped(answer: Callable) -> Iterator[Output]:
    """``answer(model, optimizer, schedule, scaler, batches, max_norm, accumulate)``, in place."""
    for bad, accumulate, max_norm in ((1.0, 3, 0.1), (math.inf, 2, 0.1), (1.0, 2, 1e6)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
        batches = [(3 * torch.randn(8, 6), torch.randint(3, (8,))) for _ in range(12)]
        batches[4] = (batches[4][0] * bad, batches[4][1])
        optimizer = SGD(model.parameters(), lr=0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
            answer(model, optimizer, schedule, scaler, batches, max_norm, accumulate)
        yield Output(
            schedule.last_epoch,
            f"The schedule is stepped {schedule.last_epoch} times, not {{right}}: once for each "
            "step that the optimizer took.",
        )
        yield Output(
            flatten_parameters(model).nan_to_num(1e6),
            "The weights are not those of clipped steps on the mean gradients.",
        )
