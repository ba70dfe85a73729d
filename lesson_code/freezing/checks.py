"""Checks of the exercises of lesson 02."""

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.optimizer import register_optimizer_step_post_hook

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.oracles import Batches
from course_utils.checking.outputs import Output
from course_utils.checking.reports import describe_place, judge_report
from course_utils.study_results import read_study

__all__ = [
    "check_freeze_all_but",
    "check_group_by_depth",
    "check_probe",
    "check_report_variants",
]

NUM_CLASSES = 3
LR = 0.03  # of a new head


@checks_exercise()
def check_report_variants(answer: Callable) -> None:
    """``answer() -> (full, last, verdict)``: what the student measured, beside the study."""
    gap = judge_report(answer(), "full fine-tuning", "the last stage")
    study = read_study("freezing")
    for labels in (125, 500):
        mean = study.difference(f"photographs, {labels}", "last stage", "full fine-tuning").mean
        print(f"study, {labels} photographs: {100 * mean:+.1f} points, {describe_place(mean, gap)}")


def _draw_batches(count: int) -> Batches:
    """Images whose class is their brightness: a linear layer on random features can tell."""
    targets = [torch.arange(12) % NUM_CLASSES for _ in range(count)]
    return [(torch.randn(12, 3, 8, 8) + 3 * (y - 1).view(-1, 1, 1, 1), y) for y in targets]


def _make_network() -> nn.Sequential:
    """Convolutions with BatchNorm, then a head, and a child whose name begins like the head's."""
    children = OrderedDict(
        stem=nn.Conv2d(3, 4, 3),
        bn=nn.BatchNorm2d(4),
        block=nn.Sequential(nn.ReLU(), nn.Conv2d(4, 32, 3), nn.BatchNorm2d(32), nn.ReLU()),
        pool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        fc_norm=nn.LayerNorm(32),
        fc=nn.Linear(32, 5),
    )
    model = nn.Sequential(children)
    for images, _ in _draw_batches(3):
        model(images)  # BatchNorm's statistics are those of some data, not 0 and 1
    return model


def _find_moved(model: nn.Module, before: dict[str, Tensor], head: str) -> list[str]:
    """Names outside of ``head`` that changed; a frozen BatchNorm no longer counts its batches."""
    others = {name: x for name, x in model.state_dict().items() if not name.startswith(f"{head}.")}
    return [name for name in others if name in before and not before[name].equal(others[name])]


@checks_exercise()
def check_freeze_all_but(answer: Callable) -> Iterator[Output]:
    """``answer(model, head) -> model``: only ``head`` is trained, the rest never changes."""
    for head in ("fc", "block"):
        model, batches = _make_network(), _draw_batches(3)
        before = copy.deepcopy(model.state_dict())
        whole = {f"{head}.{name}" for name, _ in model.get_submodule(head).named_parameters()}
        found = answer(model, head)
        require(found is model, "Return the model that came, frozen in place, not another one.")
        trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
        require(whole <= set(trainable), f"The head must stay trainable as a whole, here {head!r}.")
        extra = ", ".join(sorted(set(trainable) - whole))
        require(not extra, f"{extra} would still be trained: requires_grad_(False).")
        model.train()
        stepped = SGD(trainable.values(), lr=0.1)
        for images, targets in batches:
            stepped.zero_grad()
            F.cross_entropy(model(images), targets).backward()
            stepped.step()
        moved = ", ".join(_find_moved(model, before, head))
        require(
            not moved,
            f"{moved} moved in training: BatchNorm's statistics have no gradient, and eval() is "
            "undone by the next train().",
        )
        part = model.get_submodule(head)
        for mode in (False, True):
            model.train(mode)
            reached = all(module.training == mode for module in part.modules())
            why = f"model.train({mode}) does not reach the head {head!r}, which is not frozen."
            require(reached, why)
        part.eval()  # only the frozen part is compared
        yield Output(
            model(images),
            "The statistics hold still, but in train mode the frozen part does not answer as in "
            "eval mode: its BatchNorm still normalises with those of the batch.",
            tolerance=1e-3,
        )


@checks_exercise()
def check_group_by_depth(answer: Callable) -> Iterator[Output]:
    """``answer(model, lr, decay) -> groups``: lr · decay^depth, the last child at depth 0."""
    # The last of these leaves a part of a child trainable.
    for frozen in ((), ("stem", "bn"), ("block",), ("fc",), ("block.1",)):
        model = _make_network()
        for name in frozen:
            model.get_submodule(name).requires_grad_(False)
        case = f"With {' and '.join(frozen)} frozen," if frozen else ""
        rates = _read_groups(answer(model, 0.02, 0.3), model)
        trained = list(dict.fromkeys(name.partition(".")[0] for name in reversed(rates)))
        for name, rate in reversed(rates.items()):
            child = name.partition(".")[0]
            place = f"{trained.index(child)} below the last child that is trained, {trained[0]},"
            if child == trained[0]:
                place = "the last child that is trained"
            yield Output(rate, f"{child} is {place} and gets {{right}}, not {rate:.3g}.", case)


def _read_groups(groups: Any, model: nn.Module) -> dict[str, float]:
    """The learning rate of each trainable parameter, by its name."""
    require(isinstance(groups, list | tuple), "Return a list of groups.")
    complete = all(isinstance(group, dict) and {"params", "lr"} <= set(group) for group in groups)
    require(complete, 'Each group is a dict with "params" and "lr".')
    pairs: list[tuple[Any, float]] = []
    for group in groups:
        # As in PyTorch a group of one parameter may hold it without a list.
        params = [group["params"]] if torch.is_tensor(group["params"]) else group["params"]
        pairs += [(parameter, float(group["lr"])) for parameter in params]
    tensors = all(torch.is_tensor(parameter) for parameter, _ in pairs)
    require(tensors, '"params" holds the parameters themselves, not their names.')
    found = dict(pairs)
    require(len(found) == len(pairs), "A parameter stands in two groups.")
    for name, parameter in model.named_parameters():
        grouped = parameter in found
        require(parameter.requires_grad or not grouped, f"{name} is frozen and stands in a group.")
        require(grouped or not parameter.requires_grad, f"{name} is trained, in no group.")
    return {name: found[p] for name, p in model.named_parameters() if p.requires_grad}


@checks_exercise()
def check_probe(answer: Callable) -> Iterator[Output]:
    """``answer(model, batches, num_classes, lr) -> model``: a new head is trained, only that."""
    model = _make_network()
    before = copy.deepcopy(model.state_dict())
    batches = _draw_batches(4)
    steps: list[dict[Any, tuple[float, Tensor]]] = []  # learning rates and gradients of each

    def note(stepped: Any, *_: Any) -> None:
        """Each answer draws its own head, so it becomes 0: then all have the same gradients."""
        pairs = [(p, group["lr"]) for group in stepped.param_groups for p in group["params"]]
        steps.append({p: (float(lr), p.grad.clone()) for p, lr in pairs if p.grad is not None})
        for p in steps[-1]:
            p.data.zero_()
            if len(steps) == 1:  # this gradient should not count where they add up
                p.grad.zero_()

    try:
        with register_optimizer_step_post_hook(note):
            found = answer(model, batches, NUM_CLASSES, LR)
    except RuntimeError:  # what backward raises where nothing has a gradient
        all_frozen = not any(p.requires_grad for p in model.parameters())
        require(not all_frozen, "The new head is frozen too: freeze first, then make the head.")
        raise
    require(isinstance(found, nn.Module), "Return the model.")
    parts = list(found.fc.parameters())  # weight, bias
    shape = tuple(parts[0].shape) if parts else ()
    require(
        isinstance(found.fc, nn.Linear) and shape == (NUM_CLASSES, 32),
        f"The new head fc is a {type(found.fc).__name__}, and its first parameter has the shape "
        f"{shape}: make a new nn.Linear with {NUM_CLASSES} outputs, which gives logits.",
    )
    moved = _find_moved(found, before, "fc")
    backbone = {name: p for name, p in found.named_parameters() if not name.startswith("fc.")}
    require(
        not set(moved) & set(backbone) and all(p.grad is None for p in backbone.values()),
        "The backbone has gradients or has changed: freeze its parameters; requires_grad = "
        "False on a module only sets an attribute that PyTorch never reads.",
    )
    require(  # what else has moved is a running statistic
        not moved,
        "The running statistics of BatchNorm have moved: the backbone must not be in train mode.",
    )
    why = f"One optimizer step per batch makes {len(batches)} steps, and here it took {len(steps)}."
    require(len(steps) == len(batches), why)
    require(
        all(part in step for step in steps for part in parts),
        "The optimizer steps without the new head: which parameters does the optimizer hold?",
    )
    lr = steps[0][parts[0]][0]
    why = f"The head is trained with the learning rate {lr:.3g}, and lr is {LR}."
    require(abs(lr - LR) < 1e-6, why)
    yield Output(
        torch.stack([torch.cat([step[p][1].flatten() for p in parts]) for step in steps[1:]]),
        "The head's gradients are not those of cross_entropy on each batch, in its turn.",
        tolerance=1e-4,
    )
