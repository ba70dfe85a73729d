"""Checks of the exercises of lesson 22."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.outputs import Output

__all__ = [
    "check_experts_experiment",
    "check_find_balance",
    "check_list_dropped",
    "check_mix_experts",
]

TINY_TEXTS = {"dataset": "glosses", "model": "text_small", "num_val": 100, "epochs": 1}
CHOICES = (  # of tokens, with the number of experts and the capacity factor
    ([0, 0, 1, 0, 2, 0, 1, 0], 4, 1.0),
    ([0, 0, 1, 0, 2, 0, 1, 0], 4, 1.5),
    ([0, 0, 1, 0, 2, 0, 1, 0], 4, 1.25),
    ([2, 2, 2, 2, 0, 1, 2], 3, 1.0),
    ([1, 1, 1], 2, 2.0),
)


@checks_exercise()
def check_experts_experiment(answer: Callable) -> None:
    """``answer(config, data) -> (one, other, low, high)``: two variants over the same seeds."""
    judge_experiment(run_experiment(answer, **TINY_TEXTS))


# ---- ★ Which tokens are dropped.


@checks_exercise()
def check_list_dropped(answer: Callable) -> Iterator[Output]:
    """``answer(chosen, num_experts, factor) -> dropped``: bool ``(M,)``."""
    for choices, num_experts, factor in CHOICES:
        chosen = torch.tensor(choices)
        found = answer(chosen.clone(), num_experts, factor)
        case = f"With the choices {choices}, {num_experts} experts and the factor {factor}:"
        require(isinstance(found, Tensor), f"{case} Return a tensor.")
        require(
            found.shape == chosen.shape,
            f"{case} Return one value per token, {tuple(chosen.shape)}, not {tuple(found.shape)}.",
        )
        require(found.dtype == torch.bool, f"{case} Return bool, not {found.dtype}.")
        yield Output(
            found, "These are other tokens than those beyond the capacity of their expert.", case
        )


# ---- ★★ The balance loss.


@checks_exercise()
def check_find_balance(answer: Callable) -> Iterator[Output]:
    """``answer(logits, is_real) -> loss``: a scalar with a gradient."""
    torch.manual_seed(0)
    for count, num_experts in ((12, 4), (9, 3)):
        logits = torch.randn(count, num_experts, dtype=torch.float64)
        logits[:, 0] += 0.5  # the first expert is chosen more often
        logits.requires_grad_()
        is_real = torch.arange(count) < count - 3
        found = answer(logits, is_real)
        case = f"With {num_experts} experts, {count} tokens and 3 of them padding:"
        require(
            isinstance(found, Tensor) and found.numel() == 1, f"{case} Return a tensor, one number."
        )
        yield Output(
            found.item(),
            f"{case} The loss is {found.item():.4g}, and n Σ f P of the real tokens is {{right}}.",
        )
        require(
            found.requires_grad,
            f"{case} The loss has no gradient: P has to be computed from the logits.",
        )
        (gradient,) = torch.autograd.grad(found, logits)
        yield Output(gradient, f"{case} The loss is right, and its gradient is not.")


# ---- ★★★ Finding the bugs.


@checks_exercise()
def check_mix_experts(answer: Callable) -> Iterator[Output]:
    """``answer(x, router, experts, k) -> y``, and what flows back."""
    for k in (2, 3):
        torch.manual_seed(k)
        router = nn.Linear(3, 4, bias=False).double()
        experts = nn.ModuleList(nn.Linear(3, 3) for _ in range(4)).double()
        nn.init.normal_(router.weight)
        x = torch.randn(10, 3, dtype=torch.float64)
        found = answer(x.clone(), router, experts, k)
        require(isinstance(found, Tensor), "Return a tensor: the outputs of the tokens.")
        require(found.shape == x.shape, f"Return the shape {tuple(x.shape)}.")
        yield Output(
            found,
            f"With k = {k}: the outputs are not the sum of the {k} best experts, each times its "
            "gate. Look at one token alone.",
        )
        require(found.requires_grad, "Nothing can be trained: the outputs have no gradient.")
        found.square().sum().backward()
        require(
            router.weight.grad is not None,
            "The outputs are right, but the router gets no gradient, so it never learns.",
        )
        yield Output(router.weight.grad, "The outputs are right, and the router's gradient is not.")
