"""Checks of the exercises of lesson 02."""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.exercises.checking import checks_exercise, fail, require
from course_utils.exercises.oracles import Batches

__all__ = ["check_freeze_all_but", "check_group_by_depth", "check_probe"]

NUM_CLASSES = 3
CHILDREN = ("stem", "bn", "block", "fc")  # those of `_Network` with parameters, in order


class _Network(nn.Module):
    """Convolutions with BatchNorm, then a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.act = nn.ReLU()
        self.block = nn.Sequential(nn.Conv2d(4, 32, 3), nn.BatchNorm2d(32), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(32, 5)

    def forward(self, images: Tensor) -> Tensor:
        features = self.block(self.act(self.bn(self.stem(images))))  # (N, 32, 4, 4)
        return self.fc(self.pool(features).flatten(1))  # (N, 32, 1, 1) -> (N, 32) -> (N, 5)


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
    for frozen in ((), ("stem", "bn")):
        model = _Network()
        for name in frozen:
            model.get_submodule(name).requires_grad_(False)
        trainable = [name for name in CHILDREN if name not in frozen]
        expected = {id(p) for name in trainable for p in model.get_submodule(name).parameters()}
        found = _read_groups(answer(model, lr, decay), expected)
        head_lr = found[id(model.fc.weight)]
        require(abs(head_lr - lr) < 1e-12, f"The last child gets lr = {lr}, not {head_lr:.3g}.")
        for depth, name in enumerate(reversed(trainable)):
            right_lr = lr * decay**depth
            for parameter in model.get_submodule(name).parameters():
                given = found[id(parameter)]
                require(
                    abs(given - right_lr) < 1e-12,
                    f"{name} is {depth} below the last child with parameters and gets "
                    f"{right_lr:.3g}, not {given:.3g}.",
                )


def _read_groups(groups: object, expected: set[int]) -> dict[int, float]:
    """The learning rate of each parameter, by its id; ``expected`` are the ids there should be."""
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
        pairs += [(parameter, group["lr"]) for parameter in params]
    tensors = all(isinstance(parameter, Tensor) for parameter, _ in pairs)
    require(tensors, '"params" holds the parameters themselves, not their names.')
    found = {id(parameter): lr for parameter, lr in pairs}
    require(len(found) == len(pairs), "A parameter stands in two groups.")
    require(not set(found) - expected, "A frozen parameter stands in a group.")
    require(set(found) == expected, "A trainable parameter stands in no group.")
    return found


@checks_exercise()
def check_probe(answer: Callable) -> None:
    """``answer(model, batches, num_classes) -> model``: a new head is trained, and only that."""
    # Of three models, as a head that is not trained may be right by luck.
    right = torch.cat([_run_probe(answer) for _ in range(3)])
    share = right.float().mean()
    require(
        share > 0.75,
        f"After training {share:.0%} of the images are right, with a new head in the optimizer "
        "it is nearly all: which parameters does the optimizer hold?",
    )


def _run_probe(answer: Callable) -> Tensor:
    """Which images the trained model classifies right: (images,), bool."""
    model = _make_network()
    before = copy.deepcopy(model.state_dict())
    batches = _draw_batches(60)
    found = answer(model, batches, NUM_CLASSES)
    require(isinstance(found, nn.Module), "Return the model.")
    head = found.fc
    require(
        isinstance(head, nn.Linear) and head.out_features == NUM_CLASSES,
        f"The new head fc must have {NUM_CLASSES} outputs.",
    )
    moved = _find_moved(found, before, "fc")
    parameters = {name for name, _ in _Network().named_parameters()}
    backbone = [p for name, p in found.named_parameters() if not name.startswith("fc.")]
    require(
        not parameters & set(moved) and all(p.grad is None for p in backbone),
        "The backbone has gradients or has changed: freeze its parameters; requires_grad = "
        "False on a module only sets an attribute that nobody reads.",
    )
    # What has moved and is no parameter is a running statistic.
    require(
        not moved,
        "The running statistics of BatchNorm have moved: the backbone must not be in train mode.",
    )
    found.eval()
    with torch.no_grad():
        return torch.cat([found(images).argmax(dim=1) == targets for images, targets in batches])
