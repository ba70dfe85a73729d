"""Freezing the first part of a network."""

from torch import nn

from course_utils.errors import CourseError

__all__ = ["freeze_before", "list_frozen"]


def freeze_before(model: nn.Module, first_trained: str) -> nn.Module:
    """Freeze all children of ``model`` that stand before ``first_trained``, and return it.

    Frozen: no gradients, and BatchNorm2d works with its running statistics and leaves them alone,
    in training too. So are the model's own parameters, such as the positions of a transformer,
    which enter before its blocks. Changes the model in place: `timm.utils.freeze` replaces each
    frozen BatchNorm2d by one whose numbers are buffers, so that they no longer count as
    parameters.

    Args:
        first_trained: name of a child, such as ``"layer3"`` or ``"fc"``; with the name of the
            first child nothing is frozen.

    Raises:
        CourseError: no child of that name.
    """
    frozen = list_frozen(model, first_trained)
    if frozen:  # timm takes an empty list for the whole model
        from timm.utils import freeze

        freeze(model, frozen)
        for parameter in model.parameters(recurse=False):
            parameter.requires_grad_(False)
    return model


def list_frozen(model: nn.Module, first_trained: str) -> list[str]:
    """Names of the children of ``model`` before ``first_trained``, which `freeze_before` freezes.

    Raises:
        CourseError: no child of that name.
    """
    children = [name for name, _ in model.named_children()]
    if first_trained not in children:
        raise CourseError(f"no child {first_trained!r} to train from: use {', '.join(children)}")
    return children[: children.index(first_trained)]
