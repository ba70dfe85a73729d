"""Checks of the exercises of lesson 02."""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises.checking import checks_exercise, require

__all__ = ["check_freeze_all_but", "check_group_by_depth", "check_probe"]

NUM_CLASSES = 3


class _Network(nn.Module):
    """Convolutions with BatchNorm, then a head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.act = nn.ReLU()
        self.block = nn.Sequential(nn.Conv2d(4, 32, 3), nn.BatchNorm2d(32), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(32, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.pool(self.block(self.act(self.bn(self.stem(images)))))
        return self.fc(features.flatten(1))


def _batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Images whose class is their brightness: a linear layer on random features can tell."""
    targets = [torch.arange(12) % NUM_CLASSES for _ in range(count)]
    return [(torch.randn(12, 3, 8, 8) + 3 * (y - 1).view(-1, 1, 1, 1), y) for y in targets]


def _warm_up(model: nn.Module) -> nn.Module:
    """Give BatchNorm statistics of some data, so that they are not 0 and 1."""
    with torch.no_grad():
        for images, _ in _batches(3):
            model.train()(images)
    return model


def _train(model: nn.Module, batches: list) -> None:
    model.train()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for images, targets in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(images), targets).backward()
        optimizer.step()


def _find_moved(model: nn.Module, before: dict) -> list[str]:
    """Names that changed; a frozen BatchNorm no longer counts its batches."""
    after = model.state_dict()
    return [name for name in after if name in before and not torch.equal(after[name], before[name])]


@checks_exercise
def check_freeze_all_but(answer: Callable) -> None:
    """``answer(model, head) -> model``: only ``head`` is trained, the rest never changes."""
    for head in ("fc", "block"):
        model = _warm_up(_Network())
        before, original = copy.deepcopy(model.state_dict()), copy.deepcopy(model).eval()
        found = answer(model, head)
        require(isinstance(found, nn.Module), "Return the model.")
        require(found is model, "Freeze in place and return the model that came, not another one.")
        trainable = [name for name, p in found.named_parameters() if p.requires_grad]
        of_head = [name for name in trainable if name.startswith(f"{head}.")]
        require(
            len(of_head) == len(list(getattr(original, head).parameters())),
            f"The head must stay trainable as a whole, here {head!r}.",
        )
        extra = sorted(set(trainable) - set(of_head))
        require(not extra, f"{', '.join(extra)} would still be trained: requires_grad_(False).")
        _train(found, _batches(3))
        moved = [name for name in _find_moved(model, before) if not name.startswith(f"{head}.")]
        require(
            not moved,
            f"{', '.join(moved)} moved in training: BatchNorm's statistics have no gradient, and "
            "eval() is undone by the next train().",
        )
        setattr(original, head, copy.deepcopy(getattr(model, head)).eval())
        model.train()
        getattr(model, head).eval()
        images = _batches(1)[0][0]
        with torch.no_grad():
            frozen, expected = model(images), original(images)
        require(
            torch.allclose(frozen, expected, atol=1e-3),
            "The statistics hold still, but in train mode the frozen part does not answer as in "
            "eval mode: its BatchNorm still normalises with those of the batch.",
        )


@checks_exercise
def check_group_by_depth(answer: Callable) -> None:
    """``answer(model, lr, decay) -> groups``: lr · decay^depth, the last child at depth 0."""
    for frozen in ((), ("stem", "bn")):
        model, lr, decay = _Network(), 0.02, 0.3
        for name in frozen:
            getattr(model, name).requires_grad_(False)
        names = [name for name in ("stem", "bn", "block", "fc") if name not in frozen]
        expected = {id(p) for name in names for p in getattr(model, name).parameters()}
        groups = answer(model, lr, decay)
        require(isinstance(groups, list | tuple), "Return a list of groups.")
        require(
            all(isinstance(group, dict) and {"params", "lr"} <= set(group) for group in groups),
            'Each group is a dict with "params" and "lr".',
        )
        groups = [
            group | {"params": [p] if isinstance(p := group["params"], torch.Tensor) else list(p)}
            for group in groups
        ]
        tensors = all(isinstance(p, torch.Tensor) for group in groups for p in group["params"])
        require(tensors, '"params" holds the parameters themselves, not their names.')
        rates = [(id(p), group["lr"]) for group in groups for p in group["params"]]
        found = dict(rates)
        require(len(found) == len(rates), "A parameter stands in two groups.")
        require(not set(found) - expected, "A frozen parameter stands in a group.")
        require(set(found) == expected, "A trainable parameter stands in no group.")
        head = found[id(model.fc.weight)]
        require(abs(head - lr) < 1e-12, f"The last child gets lr = {lr}, not {head:.3g}.")
        for depth, name in enumerate(reversed(names)):
            rate = lr * decay**depth
            for parameter in getattr(model, name).parameters():
                given = found[id(parameter)]
                require(
                    abs(given - rate) < 1e-12,
                    f"{name} is {depth} below the last child with parameters and gets "
                    f"{rate:.3g}, not {given:.3g}.",
                )


@checks_exercise
def check_probe(answer: Callable) -> None:
    """``answer(model, batches, num_classes) -> model``: a new head is trained, and only that."""
    right = []  # of several models, as a head that is not trained may be right by luck
    for _ in range(3):
        model = _warm_up(_Network())
        before, batches = copy.deepcopy(model.state_dict()), _batches(60)
        found = answer(model, batches, NUM_CLASSES)
        require(isinstance(found, nn.Module), "Return the model.")
        head = found.fc
        require(
            isinstance(head, nn.Linear) and head.out_features == NUM_CLASSES,
            f"The new head fc must have {NUM_CLASSES} outputs.",
        )
        moved = [name for name in _find_moved(found, before) if not name.startswith("fc.")]
        parameters = {name for name, _ in _Network().named_parameters()}
        backbone = [p for name, p in found.named_parameters() if not name.startswith("fc.")]
        require(
            not parameters & set(moved) and all(p.grad is None for p in backbone),
            "The backbone has gradients or has changed: freeze its parameters; requires_grad = "
            "False on a module only sets an attribute that nobody reads.",
        )
        require(
            not moved,
            "The running statistics of BatchNorm have moved: the backbone must not be in train "
            "mode.",
        )
        found.eval()
        with torch.no_grad():
            right += [(found(images).argmax(dim=1) == targets) for images, targets in batches]
    share = torch.cat(right).float().mean()
    require(
        share > 0.75,
        f"After training {share:.0%} of the images are right, with a new head in the optimizer "
        "it is nearly all: which parameters does the optimizer hold?",
    )
