"""Checks of the exercises of lesson 08."""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from course_utils.checking.checking import checks_exercise, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import Batches, flatten_parameters, is_near, is_pair
from course_utils.checking.outputs import Output

__all__ = [
    "check_measure_accumulation",
    "check_plan_batches",
    "check_step_over_tokens",
    "check_train_windows",
]

# effective batch, limit, devices: the largest micro-batch
PLANS = {
    (60, 12, 1): 12, (512, 48, 1): 32, (60, 14, 1): 12,
    (512, 48, 4): 32, (14, 6, 2): 1, (64, 100, 4): 16,
}  # fmt: skip
IMPOSSIBLE_PLANS = ((512, 3), (10, 4), (2, 4))  # effective batch, devices

LR = 0.5
IGNORED = -100  # cross_entropy leaves out these targets: here they are not tokens
# Of each micro-batch the shape of its targets (sequences, length), and how many are ignored.
SHAPES = (((3, 7), 4), ((2, 5), 7), ((5, 8), 3))
SPARSE = (((2, 5), 3), ((3, 6), 18), ((1, 7), 0))  # the second has no token
# examples of each micro-batch, accumulation steps, each number in .grad before the call
TRAININGS = (
    ((4,) * 5, 3, 0), ((3, 5, 2, 4, 1), 2, 0.5), ((4, 4, 2, 2), 2, 0),
    ((2, 6), 5, 0.5), ((3, 1, 4), 1, 0),
)  # fmt: skip

NO_MEAN = "The gradient is nan: a micro-batch without tokens has no mean, so sum and divide once."
AT_ONCE = "One backward for several micro-batches keeps all they have saved: call it after each."
ONLY_LAST = "Only the last micro-batch of a step counts: zero_grad is called before each one."
ONLY_FIRST = "Only the first micro-batch counts: the step comes before all micro-batches are added."
NO_GRADIENT = "A step has no gradient: no backward, or zero_grad after it?"
LENGTH = "A step's gradient is {:.4g} times that of the mean loss: divide by another number."
DIRECTION = "A step's gradient has another direction than that of the mean loss: cosine {:.3f}."
IN_TIME = "The schedule is stepped before the optimizer: its first learning rate is never used."
TOO_FEW = "The last micro-batches are fewer than `size`, and no step is taken for them."
OTHER_WEIGHTS = "The weights are not changed by the optimizer's steps alone."


@checks_exercise()
def check_measure_accumulation(answer: Callable) -> None:
    """``answer(config, data) -> (one, other, low, high)``: two ways over the same seeds."""
    judge_experiment(run_experiment(answer))


@checks_exercise()
def check_plan_batches(answer: Callable) -> None:
    """``answer(effective_batch_size, limit, devices) -> (micro-batch size, their number)``."""
    found = [_plan(answer, *plan) for plan in PLANS]
    right = [(best, batch // devices // best) for (batch, _, devices), best in PLANS.items()]
    # Of one plan alone another wrong size may look like a swap.
    swapped = found == [plan[::-1] for plan in right]
    require(not swapped, "The two are swapped: the micro-batch size comes first.")
    for (size, number), ((batch, limit, devices), best) in zip(found, PLANS.items(), strict=True):
        share = batch // devices
        case = f"{batch} images, limit {limit}, devices {devices}"
        above = share < limit and size > share
        require(not above, f"{case}: a step has only {share} images per device, less than {size}.")
        require(size <= limit, f"{case}: a micro-batch of {size} does not fit.")
        alone = devices > 1 and size * number == batch
        require(not alone, f"{case}: {size} × {number} on each device is {devices} × too much.")
        other = f"{case}: {size} × {number} × {devices} is not {batch}"
        must = f"{other}; the micro-batch must divide the {share} images of a device."
        require(size * number == share, must)
        require(size == best, f"{case}: {size} is not the largest micro-batch, {best} fits too.")
    for batch, devices in IMPOSSIBLE_PLANS:
        case = f"{devices} devices cannot share {batch} images: ValueError, not"
        try:
            plan = answer(batch, 64, devices)
        except ValueError:
            continue
        except Exception as error:
            fail(f"{case} {type(error).__name__}.")
        fail(f"{case} {plan}.")


def _plan(answer: Callable, batch: int, limit: int, devices: int) -> tuple[int, int]:
    """The answer's plan, two whole numbers."""
    try:
        found = answer(batch, limit, devices) if devices > 1 else answer(batch, limit)
    except ValueError as error:
        case = f"{batch} images, limit {limit}, devices {devices}: these can be shared evenly"
        fail(f"{case}, and the answer raises ValueError ({error}).")
    message = "Return two numbers: the micro-batch size and accumulate_grad_batches."
    require(is_pair(found), message)
    size, number = found
    whole = isinstance(size, Integral) and isinstance(number, Integral)
    require(whole, "Both are whole numbers: use //.")
    return int(size), int(number)


class _Step(NamedTuple):
    """What the optimizer saw in one of its steps."""

    gradient: Tensor  # (P,)
    learning_rate: float
    backwards: int  # backward passes since the step before
    after: nn.Module  # the model, stepped


def _prepare(shapes: Sequence[tuple[tuple, int]]) -> tuple[nn.Module, Batches]:
    """A model, and micro-batches: inputs (..., 6) and targets (...) for ``shapes`` as `SHAPES`."""
    model = nn.Linear(6, 4, dtype=torch.float64)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    micro_batches = []
    for shape, ignored in shapes:
        targets = torch.randint(4, shape)
        places = torch.randperm(targets.numel())[:ignored]
        targets.view(-1)[places] = IGNORED
        inputs = torch.randn(*shape, 6, dtype=torch.float64)
        micro_batches.append((inputs, targets))
    return model, micro_batches


def _note_steps(model: nn.Module, grad_before: float) -> tuple[SGD, list[_Step]]:
    """An optimizer, and a list of all its steps; ``grad_before``: each number in .grad before."""
    parameters = list(model.parameters())
    for parameter in parameters if grad_before else []:
        parameter.grad = torch.full_like(parameter, grad_before)
    optimizer = SGD(parameters, lr=LR)
    steps: list[_Step] = []
    backwards: list[int] = []  # an entry for each backward pass since the last step

    def note(*_: object) -> None:
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        gradient, rate = parameters_to_vector(gradients), optimizer.param_groups[0]["lr"]
        steps.append(_Step(gradient, rate, len(backwards), copy.deepcopy(model)))
        backwards.clear()

    parameters[0].register_post_accumulate_grad_hook(lambda _: backwards.append(1))
    # After the step, not before: a closure computes the gradient within it.
    optimizer.register_step_post_hook(note)
    return optimizer, steps


def _find_gradient(model: nn.Module, window: Batches) -> Tensor:
    """The gradient (P,) of the mean loss over all that counts in ``window``, as one batch."""
    logits = torch.cat([model(inputs).flatten(0, -2) for inputs, _ in window])
    targets = torch.cat([targets.flatten() for _, targets in window])
    loss = F.cross_entropy(logits, targets)
    return parameters_to_vector(torch.autograd.grad(loss, list(model.parameters())))


def _judge_step(step: _Step, before: nn.Module, window: Batches) -> Output:
    """The gradient of a step, with the sentence if no known fault gives it."""
    found, right = step.gradient, _find_gradient(before, window)
    require(found.isfinite().all(), NO_MEAN)
    require(found.any(), NO_GRADIENT)

    def is_along(vector: Tensor) -> bool:
        return is_near(found, found @ vector / (vector @ vector) * vector, 1e-5)

    if is_along(right):
        otherwise = LENGTH.format((found @ right / (right @ right)).item())
    elif len(window) > 1 and is_along(_find_gradient(before, window[-1:])):
        otherwise = ONLY_LAST
    elif len(window) > 1 and is_along(_find_gradient(before, window[:1])):
        otherwise = ONLY_FIRST
    else:
        otherwise = DIRECTION.format(F.cosine_similarity(found, right, dim=0).item())
    return Output(found, otherwise, fault_tolerance=1e-4)  # clipped twice is a little shorter


@checks_exercise()
def check_step_over_tokens(answer: Callable) -> Iterator[Output]:
    """``answer(model, optimizer, window, max_norm) -> norm``: over all tokens, clipped once."""
    cases = ((SHAPES, 99, 0), (SHAPES, 0.05, 0), (SPARSE, 0.05, 0), (SPARSE, 99, 0.5))
    for shapes, max_norm, grad_before in cases:
        model, window = _prepare(shapes)
        start = copy.deepcopy(model)
        optimizer, steps = _note_steps(model, grad_before)
        found = answer(model, optimizer, list(window), max_norm)
        require(len(steps) == 1, f"The micro-batches make one step, here {len(steps)} are taken.")
        yield _judge_step(steps[0], start, window)
        require(steps[0].backwards != 1, AT_ONCE)
        yield Output(flatten_parameters(model), OTHER_WEIGHTS)
        require(found is not None, "Return the norm that the gradient had before it was clipped.")
        otherwise = f"The norm before clipping is {{right}}, not {float(found):.4g}."
        yield Output(float(found), otherwise, fault_tolerance=1e-3)


@checks_exercise()
def check_train_windows(answer: Callable) -> Iterator[Output]:
    """``answer(model, optimizer, schedule, batches, size) -> steps``: ``size`` batches each."""
    for (examples, size, grad_before), once in itertools.product(TRAININGS, (False, True)):
        model, batches = _prepare([((number,), 0) for number in examples])
        before = copy.deepcopy(model)
        optimizer, steps = _note_steps(model, grad_before)
        schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
        given = (batch for batch in batches) if once else list(batches)
        found = answer(model, optimizer, schedule, given, size)
        taken, calls = len(steps), schedule.last_epoch
        require(taken, f"No step is taken{', batches can be read only once' if once else ''}.")
        after_each = taken >= len(batches) and size > 1
        require(not after_each, "A step is taken after every micro-batch.")
        groups = [batches[i : i + size] for i in range(0, len(batches), size)]
        moved = f"The schedule is stepped {calls} times in {taken} steps: once a step, after it."
        for number, (step, window) in enumerate(zip(steps, groups, strict=False)):
            yield _judge_step(step, before, window)
            require(len(window) == 1 or step.backwards != 1, AT_ONCE)
            # The next gradient depends on this learning rate.
            in_time = step.learning_rate == LR / (1 + number)
            require(in_time, IN_TIME if calls == taken else moved)
            before = step.after
        require(calls == taken, moved)
        require(taken <= len(groups), "A step too many: is one taken after the last complete step?")
        require(taken == len(groups), TOO_FEW)
        yield Output(flatten_parameters(model), OTHER_WEIGHTS)
        require(found == taken, f"{taken} steps were taken, and {found} is returned.")
