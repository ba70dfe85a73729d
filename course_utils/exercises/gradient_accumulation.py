"""Checks of the exercises of lesson 08."""

import copy
import itertools
from collections.abc import Callable
from numbers import Integral
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from course_utils.exercises.checking import checks_exercise, require

__all__ = ["check_plan_batches", "check_step_over_tokens", "check_train_windows"]

Window = list[tuple[Tensor, Tensor]]
NO_MEAN = "The gradient is nan: a micro-batch without tokens has no mean, so sum and divide once."
AT_ONCE = "One backward for several micro-batches keeps all they have saved: call it after each."
LEFT_OVER = "Gradients from before the window still count: call zero_grad once, as it begins."
ONLY_LAST = "Only the last micro-batch of a window counts: zero_grad is called inside it."
ONLY_FIRST = "Only the first micro-batch counts: the step comes before the window is complete."
# effective batch, limit, devices
PLANS = ((60, 12, 1), (512, 48, 1), (60, 14, 1), (512, 48, 4), (14, 6, 2), (64, 100, 4))
# (sequences, length) of the targets and how many are −100; the second of GAPS has no token
FULL = (((3, 7), 4), ((2, 5), 7), ((5, 8), 3))
GAPS = (((2, 5), 3), ((3, 6), 18), ((1, 7), 0))


@checks_exercise
def check_plan_batches(answer: Callable) -> None:
    """``answer(effective_batch_size, limit, devices) -> (micro-batch size, their number)``."""
    for batch, limit, devices in PLANS:
        found = answer(batch, limit, devices) if devices > 1 else answer(batch, limit)
        pair = isinstance(found, tuple | list) and len(found) == 2
        require(pair, "Return two numbers: the micro-batch size and accumulate_grad_batches.")
        require(all(isinstance(n, Integral) for n in found), "Both are whole numbers: use //.")
        (size, number), share = found, batch // devices
        best = max(n for n in range(1, min(limit, share) + 1) if share % n == 0)
        case = f"{batch} images, limit {limit}, devices {devices}"
        swapped = size != number and (number, size) == (best, share // best)
        require(not swapped, "The two are exchanged: the micro-batch size comes first.")
        above = share < limit and size > share
        require(not above, f"{case}: a step has only {share} images a device, less than {size}.")
        require(size <= limit, f"{case}: a micro-batch of {size} does not fit.")
        alone = devices > 1 and size * number == batch
        require(not alone, f"{case}: {size} × {number} on each device is {devices} × too much.")
        require(
            size * number * devices == batch,
            f"{case}: {size} × {number} × {devices} is not {batch}; the micro-batch must divide "
            f"the {share} images of a device.",
        )
        require(size == best, f"{case}: {size} is not the largest micro-batch, {best} fits too.")
    for batch, devices in ((512, 3), (10, 4), (2, 4)):
        try:
            found = answer(batch, 64, devices)
        except ValueError:
            continue
        require(False, f"{devices} devices cannot share {batch} images: ValueError, not {found}.")


def _prepare(shapes: list, left: float) -> SimpleNamespace:
    """Model, optimizer and micro-batches, always the same; ``steps`` gets what each step sees."""
    generator = torch.Generator().manual_seed(0)
    model = nn.utils.skip_init(nn.Linear, 6, 4, dtype=torch.float64)
    parameters, calls, steps, batches = list(model.parameters()), [], [], []
    for parameter in parameters:
        nn.init.normal_(parameter, generator=generator)
        parameter.grad = torch.full_like(parameter, left) if left else None
    for shape, missing in shapes:
        targets = torch.randint(4, shape, generator=generator)
        targets.view(-1)[torch.randperm(targets.numel(), generator=generator)[:missing]] = -100
        inputs = torch.randn(*shape, 6, generator=generator, dtype=torch.float64)
        batches.append((inputs, targets))
    own, optimizer = copy.deepcopy(model), SGD(parameters, lr=0.5)

    def note(*_: object) -> None:
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        rate = optimizer.param_groups[0]["lr"]
        steps.append((parameters_to_vector(gradients), rate, len(calls)))
        calls.clear()

    parameters[0].register_post_accumulate_grad_hook(lambda _: calls.append(1))
    optimizer.register_step_post_hook(note)  # after it, as a closure may have been given
    return SimpleNamespace(model=model, own=own, optimizer=optimizer, batches=batches, steps=steps)


def _differentiate(model: nn.Module, window: Window) -> tuple[Tensor, Tensor]:
    """Gradient of the mean loss of the window, and those of each micro-batch's summed loss."""
    rows = []
    for inputs, targets in window:
        logits = model(inputs).flatten(0, -2)
        loss = F.cross_entropy(logits, targets.flatten(), reduction="sum")
        rows.append(parameters_to_vector(torch.autograd.grad(loss, list(model.parameters()))))
    sums = torch.stack(rows)
    return sums.sum(0) / sum((targets != -100).sum() for _, targets in window), sums


def _close(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).norm() <= 1e-5 * expected.norm())  # a nan is not close


def _list_faults(window: Window, mean: Tensor, sums: Tensor, size: int, limit: float) -> dict:
    """Sentence to the gradient that a step with this fault would have."""
    number, unit = len(window), "tokens" if window[0][1].dim() > 1 else "examples"
    tokens, places, rows = (
        torch.tensor([count(targets) for _, targets in window], dtype=torch.float64)
        for count in (lambda t: (t != -100).sum(), Tensor.numel, len)
    )
    means, cut = sums / tokens.clamp(min=1)[:, None], torch.zeros_like(mean)
    for part in sums / tokens.sum():
        cut = (cut + part) * (limit / (cut + part).norm()).clamp(max=1)
    return {
        "The gradient is not clipped before the step.": mean,
        "A gradient shorter than max_norm stays as it is.": mean / mean.norm() * limit,
        "It is clipped after each micro-batch: clip the sum, once.": cut,
        "Targets of −100 are counted as tokens.": sums.sum(0) / places.sum(),
        "The shares of the micro-batches count −100 as tokens.": places / places.sum() @ means,
        "Micro-batches are weighed by sequences, not by tokens.": rows / rows.sum() @ means,
        f"A window of {number} micro-batches is divided as if it had {size}: count the examples of "
        "each window.": mean * number / size,
        f"Means are added, not averaged: the step is {number} times too long.": means.sum(0),
        f"This is the mean of means: weigh the micro-batches by their {unit}.": means.mean(0),
        f"The summed losses are not divided by the {unit} of the window.": sums.sum(0),
        f"The summed losses are divided by micro-batches, not by {unit}.": sums.mean(0),
    }


def _compare_steps(case, windows: list[Window], left, size=1, limit=1e9) -> float:
    """Each step has the gradient of its window's mean loss; returns the last one's norm."""
    for (found, rate, backwards), window in zip(case.steps, windows, strict=False):
        mean, sums = _differentiate(case.own, window)
        right = mean * min(1, limit / mean.norm())
        require(found.isfinite().all(), NO_MEAN)
        if not _close(found, right):
            require(found.any(), "A step has no gradient: no backward, or zero_grad after it?")
            for sentence, vector in _list_faults(window, mean, sums, size, limit).items():
                require(not _close(found, vector), sentence)
            require(not _close(found, mean + left), LEFT_OVER)
            for sentence, vector in ((ONLY_LAST, sums[-1]), (ONLY_FIRST, sums[0])):
                along = found @ vector / (vector @ vector) * vector  # at any length
                require(len(window) == 1 or not _close(found, along), sentence)
            require(False, "A step's gradient is not that of the mean loss over its window.")
        require(len(window) == 1 or backwards != 1, AT_ONCE)
        weights = parameters_to_vector(case.own.parameters()) - rate * right
        vector_to_parameters(weights.detach(), case.own.parameters())
        left = found
    own, weights = (parameters_to_vector(m.parameters()) for m in (case.own, case.model))
    extra = len(case.steps) <= len(windows) and not _close(weights, own)
    require(not extra, "The weights are not changed by the optimizer's steps alone.")
    return mean.norm().item()


@checks_exercise
def check_step_over_tokens(answer: Callable) -> None:
    """``answer(model, optimizer, window, max_norm) -> norm``: over all tokens, clipped once."""
    for shapes, limit, left in ((FULL, 99, 0), (FULL, 0.2, 0), (GAPS, 0.2, 0), (GAPS, 99, 0.5)):
        case = _prepare(shapes, left)
        found = answer(case.model, case.optimizer, list(case.batches), limit)
        require(len(case.steps) == 1, f"A window is one step, here {len(case.steps)} are taken.")
        norm = _compare_steps(case, [case.batches], left, len(shapes), limit)
        require(found is not None, "Return the norm that the gradient had before it was clipped.")
        after = norm > limit and abs(float(found) / limit - 1) < 1e-3
        require(not after, "The returned norm is that after clipping: return the one before.")
        near = abs(float(found) / norm - 1) < 1e-5
        require(near, f"The norm before clipping is {norm:.4f}, not {float(found):.4f}.")


@checks_exercise
def check_train_windows(answer: Callable) -> None:
    """``answer(model, optimizer, schedule, batches, size) -> steps``: one for each window."""
    cases = (((4,) * 5, 3, 0), ((3, 5, 2, 4, 1), 2, 0.5), ((4, 4, 2, 2), 2, 0), ((2, 6), 5, 0.5))
    for (sizes, size, left), once in itertools.product((*cases, ((3, 1, 4), 1, 0)), (False, True)):
        case = _prepare([((examples,), 0) for examples in sizes], left)
        schedule = LambdaLR(case.optimizer, lambda step: 1 / (1 + step))
        batches = list(case.batches)
        given = (batch for batch in batches) if once else batches
        found = answer(case.model, case.optimizer, schedule, given, size)
        windows = [case.batches[i : i + size] for i in range(0, len(sizes), size)]
        taken, calls = len(case.steps), schedule.last_epoch
        require(taken, f"No step is taken{', batches can be read only once' if once else ''}.")
        require(taken < len(sizes) or size == 1, "A step is taken after every micro-batch.")
        _compare_steps(case, windows, left, size)
        moved = f"The schedule is stepped {calls} times in {taken} steps: once a step, after it."
        require(calls == taken, moved)
        late = any(rate != 0.5 / (1 + n) for n, (_, rate, _) in enumerate(case.steps))
        require(not late, "The schedule is stepped before the optimizer: its first rate is lost.")
        require(taken <= len(windows), "A step too many: is one taken after a last full window?")
        require(taken == len(windows), "The last window, which is not full, is dropped.")
        require(found == taken, f"{taken} steps were taken, and {found} is returned.")
