"""Checks of the exercises of lesson 02."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from course_utils.checking.checking import checks_exercise, diagnose, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import Batches

__all__ = [
    "check_freeze_all_but",
    "check_group_by_depth",
    "check_measure_schemes",
    "check_probe",
]

NUM_CLASSES = 3
CHILDREN = ("stem", "bn", "block", "fc_norm", "fc")  # of `_Network`, with parameters, in order
LR = 0.03  # of a new head


@checks_exercise()
def check_measure_schemes(answer: Callable) -> None:
    """``answer(config, data) -> (one, other, low, high)``: two schemes over the same seeds."""
    judge_experiment(run_experiment(answer))


class _Network(nn.Module):
    """Convolutions with BatchNorm, then a head, and a child whose name begins like the head's."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.act = nn.ReLU()
        self.block = nn.Sequential(nn.Conv2d(4, 32, 3), nn.BatchNorm2d(32), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc_norm = nn.LayerNorm(32)
        self.fc = nn.Linear(32, 5)

    def forward(self, images: Tensor) -> Tensor:
        features = self.block(self.act(self.bn(self.stem(images))))  # (N, 32, 4, 4)
        pooled = self.pool(features).flatten(1)  # (N, 32, 1, 1) -> (N, 32)
        return self.fc(self.fc_norm(pooled))  # (N, 32) -> (N, 5)


def _draw_batches(count: int) -> Batches:
    """Images whose class is their brightness: a linear layer on random features can tell."""
    targets = [torch.arange(12) % NUM_CLASSES for _ in range(count)]
    return [(torch.randn(12, 3, 8, 8) + 3 * (y - 1).view(-1, 1, 1, 1), y) for y in targets]


def _make_network() -> _Network:
    """A network whose BatchNorm has statistics of some data, so that they are not 0 and 1."""
    model = _Network()
    with torch.no_grad():
        for images, _ in _draw_batches(3):
            model.train()(images)
    return model


def _train(model: nn.Module, batches: Batches) -> None:
    """Train, in place, the parameters that want a gradient."""
    model.train()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for images, targets in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(images), targets).backward()
        optimizer.step()


def _find_moved(model: nn.Module, before: dict[str, Tensor], head: str) -> list[str]:
    """Names outside of ``head`` that changed; a frozen BatchNorm no longer counts its batches."""
    return [
        name
        for name, tensor in model.state_dict().items()
        if not name.startswith(f"{head}.")
        and name in before
        and not torch.equal(tensor, before[name])
    ]


@checks_exercise()
def check_freeze_all_but(answer: Callable) -> None:
    """``answer(model, head) -> model``: only ``head`` is trained, the rest never changes."""
    for head in ("fc", "block"):
        model = _make_network()
        before = copy.deepcopy(model.state_dict())
        original = copy.deepcopy(model).eval()
        found = answer(model, head)
        require(isinstance(found, nn.Module), "Return the model.")
        require(found is model, "Freeze in place and return the model that came, not another one.")
        trainable = [name for name, p in found.named_parameters() if p.requires_grad]
        of_head = [name for name in trainable if name.startswith(f"{head}.")]
        require(
            len(of_head) == len(list(original.get_submodule(head).parameters())),
            f"The head must stay trainable as a whole, here {head!r}.",
        )
        extra = sorted(set(trainable) - set(of_head))
        require(not extra, f"{', '.join(extra)} would still be trained: requires_grad_(False).")
        _train(found, _draw_batches(3))
        moved = _find_moved(model, before, head)
        require(
            not moved,
            f"{', '.join(moved)} moved in training: BatchNorm's statistics have no gradient, and "
            "eval() is undone by the next train().",
        )
        for mode in (True, False):
            found.train(mode)
            reached = all(m.training == mode for m in found.get_submodule(head).modules())
            require(
                reached,
                f"model.train({mode}) does not reach the head {head!r}, which is not frozen.",
            )
        _compare_with_eval_mode(model, original, head)


def _compare_with_eval_mode(model: nn.Module, original: nn.Module, head: str) -> None:
    """In train mode the frozen part gives what the ``original`` gives in eval mode."""
    trained_head = model.get_submodule(head)
    setattr(original, head, copy.deepcopy(trained_head).eval())
    model.train()
    trained_head.eval()  # only the frozen part is compared
    images, _ = _draw_batches(1)[0]
    with torch.no_grad():
        frozen = model(images)
        expected = original(images)
    require(
        torch.allclose(frozen, expected, atol=1e-3),
        "The statistics hold still, but in train mode the frozen part does not answer as in "
        "eval mode: its BatchNorm still normalises with those of the batch.",
    )


@checks_exercise()
def check_group_by_depth(answer: Callable) -> None:
    """``answer(model, lr, decay) -> groups``: lr · decay^depth, the last child at depth 0."""
    lr = 0.02
    decay = 0.3
    # The last of these leaves a part of a child trainable.
    for frozen in ((), ("stem", "bn"), ("block",), ("fc",), ("block.1",)):
        model = _Network()
        for name in frozen:
            model.get_submodule(name).requires_grad_(False)
        case = f"With {' and '.join(frozen)} frozen, " if frozen else ""
        _check_groups(answer(model, lr, decay), model, lr, decay, case)


def _check_groups(groups: object, model: nn.Module, lr: float, decay: float, case: str) -> None:
    """``case``: words before each sentence."""
    children = {
        name: [p for p in model.get_submodule(name).parameters() if p.requires_grad]
        for name in CHILDREN
    }
    trainable = [name for name in CHILDREN if children[name]]
    found = _read_groups(groups, model)
    for depth, name in enumerate(reversed(trainable)):
        expected = lr * decay**depth
        given = [found[id(parameter)] for parameter in children[name]]
        if depth:
            place = f"{name} is {depth} below the last child that is trained, {trainable[-1]},"
        else:
            place = f"{name} is the last child that is trained"
        require(
            all(math.isclose(one, given[0], rel_tol=1e-6) for one in given),
            f"{case}{name} has parameters with different learning rates: the depth counts "
            "children, not parameters.",
        )
        require(
            math.isclose(given[0], expected, rel_tol=1e-6),
            f"{case}{place} and gets {expected:.3g}, not {given[0]:.3g}.",
        )


def _read_groups(groups: object, model: nn.Module) -> dict[int, float]:
    """The learning rate of each trainable parameter, by its id."""
    if not isinstance(groups, list | tuple):
        fail("Return a list of groups.")
    require(
        all(isinstance(group, dict) and {"params", "lr"} <= set(group) for group in groups),
        'Each group is a dict with "params" and "lr".',
    )
    pairs = []  # (parameter, learning rate)
    for group in groups:
        params = group["params"]
        # As in PyTorch a group of one parameter may hold it without a list.
        params = [params] if isinstance(params, Tensor) else list(params)
        pairs += [(parameter, float(group["lr"])) for parameter in params]
    tensors = all(isinstance(parameter, Tensor) for parameter, _ in pairs)
    require(tensors, '"params" holds the parameters themselves, not their names.')
    found = {id(parameter): lr for parameter, lr in pairs}
    require(len(found) == len(pairs), "A parameter stands in two groups.")
    for name, parameter in model.named_parameters():
        grouped = id(parameter) in found
        require(parameter.requires_grad or not grouped, f"{name} is frozen and stands in a group.")
        require(grouped or not parameter.requires_grad, f"{name} is trained, in no group.")
    return found


@dataclass
class _Step:
    """One step of an optimizer: what it was given."""

    learning_rates: dict[int, float]  # of each parameter, by its id
    parameters: dict[int, Tensor]  # before the step, by the same ids
    gradients: dict[int, Tensor] = field(default_factory=dict)  # of those that have one


@contextmanager
def _record_steps() -> Iterator[list[_Step]]:
    """A list that gets every step of every optimizer inside."""
    steps: list[_Step] = []

    def note_before(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        pairs = [(p, float(g["lr"])) for g in optimizer.param_groups for p in g["params"]]
        learning_rates = {id(p): lr for p, lr in pairs}
        steps.append(_Step(learning_rates, {id(p): p.detach().clone() for p, _ in pairs}))

    def note_after(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        """Only now the gradients are there, if a closure has computed them."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        steps[-1].gradients = {id(p): p.grad.clone() for p in parameters if p.grad is not None}

    handles = [
        register_optimizer_step_pre_hook(note_before),
        register_optimizer_step_post_hook(note_after),
    ]
    try:
        yield steps
    finally:
        for handle in handles:
            handle.remove()


def _compute_features(model: nn.Module, images: Tensor, training: bool) -> Tensor:
    """What comes into ``fc`` of a copy (N, 32), with BatchNorm in this mode."""
    backbone = copy.deepcopy(model).train(training)
    backbone.fc = nn.Identity()
    with torch.no_grad():
        return backbone(images)


def _find_gradients(
    model: nn.Module,
    batches: Batches,
    heads: Sequence[list[Tensor]],
    training: bool = False,
    accumulate: bool = False,
) -> Tensor:
    """The oracle, unless something is done in another way: the head's gradients (steps, P).

    ``heads``: weight and bias, if there is one, before each step.
    """
    gradients = []
    for (images, targets), head in zip(batches, heads, strict=True):
        parts = [part.clone().requires_grad_() for part in head]
        logits = F.linear(_compute_features(model, images, training), *parts)
        loss = F.cross_entropy(logits, targets)
        gradients.append(parameters_to_vector(torch.autograd.grad(loss, parts)))
    stacked = torch.stack(gradients)
    return stacked.cumsum(dim=0) if accumulate else stacked


# fmt: off
# What a wrong answer makes of the gradients, and why.
GRADIENT_FAULTS: Sequence[tuple[str, Callable[..., Tensor]]] = (
    ("The head is trained on features in train mode, which BatchNorm normalises with the batch's "
     "own statistics: the backbone must be in eval mode.",
     partial(_find_gradients, training=True)),
    ("A step sees the gradients of all batches so far: call zero_grad before each backward.",
     partial(_find_gradients, accumulate=True)),
)
# fmt: on


@checks_exercise()
def check_probe(answer: Callable) -> None:
    """``answer(model, batches, num_classes, lr) -> model``: a new head is trained, only that."""
    model = _make_network()
    original = copy.deepcopy(model)
    batches = _draw_batches(4)
    try:
        with _record_steps() as steps:
            found = answer(model, batches, NUM_CLASSES, LR)
    except RuntimeError:  # what backward raises where nothing has a gradient
        all_frozen = not any(p.requires_grad for p in model.parameters())
        require(not all_frozen, "The new head is frozen too: freeze first, then make the head.")
        raise
    require(isinstance(found, nn.Module), "Return the model.")
    head = found.fc
    require(
        isinstance(head, nn.Linear),
        f"The new head fc is a {type(head).__name__}: it must be an nn.Linear, which gives logits.",
    )
    shape = tuple(head.weight.shape)
    require(
        shape == (NUM_CLASSES, 32),
        f"The weight of the new head fc has the shape {shape}, not {(NUM_CLASSES, 32)}: make a "
        f"new nn.Linear with {NUM_CLASSES} outputs.",
    )
    _check_backbone(found, original)
    _check_steps(steps, head, original, batches)


def _check_backbone(found: nn.Module, original: nn.Module) -> None:
    """Nothing but the head has moved or has gradients."""
    moved = _find_moved(found, original.state_dict(), "fc")
    parameters = {name for name, _ in original.named_parameters()}
    backbone = [p for name, p in found.named_parameters() if not name.startswith("fc.")]
    require(
        not parameters & set(moved) and all(p.grad is None for p in backbone),
        "The backbone has gradients or has changed: freeze its parameters; requires_grad = "
        "False on a module only sets an attribute that PyTorch never reads.",
    )
    # What has moved and is no parameter is a running statistic.
    require(
        not moved,
        "The running statistics of BatchNorm have moved: the backbone must not be in train mode.",
    )


def _check_steps(
    steps: list[_Step], head: nn.Linear, original: nn.Module, batches: Batches
) -> None:
    """The new head is stepped once a batch, along the gradient of that batch."""
    require(
        len(steps) == len(batches),
        f"One optimizer step per batch makes {len(batches)} steps, and here it took {len(steps)}.",
    )
    keys = [id(parameter) for parameter in head.parameters()]  # weight, bias
    for step in steps:
        require(
            set(keys) <= set(step.gradients),
            "The optimizer steps without the new head: which parameters does the optimizer hold?",
        )
    given = steps[0].learning_rates[keys[0]]
    require(
        math.isclose(given, LR, rel_tol=1e-6),
        f"The head is trained with the learning rate {given:.3g}, and lr is {LR}.",
    )
    heads = [[step.parameters[key] for key in keys] for step in steps]
    gradients = [parameters_to_vector([step.gradients[key] for key in keys]) for step in steps]
    diagnose(
        torch.stack(gradients),
        lambda other: other(original, batches, heads),
        _find_gradients,
        GRADIENT_FAULTS,
        "The head's gradients are not those of cross_entropy on each batch, in its turn.",
        tolerance=1e-4,
    )
