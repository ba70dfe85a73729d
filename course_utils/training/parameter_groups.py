"""Parameter groups: no weight decay on norms, a learning rate for the head, one for each stage."""

from collections.abc import Callable

from torch.optim import Optimizer

from course_utils.training.lit_classifier import NamedParameters

__all__ = ["group_parameters", "make_grouped"]


def group_parameters(
    named_parameters: NamedParameters,
    *,
    lr: float,
    head_lr: float | None = None,
    layer_decay: float = 1.0,
    weight_decay: float = 0.0,
    decay_norms: bool = True,
) -> list[dict]:
    """Groups for a PyTorch optimizer, one or two for each child of the model that is trained.

    A child is what stands before the first dot of a name (``layer4`` of
    ``layer4.0.conv1.weight``), in the order of the model; the last one is the head. With d
    children between a child and the head, the child gets the learning rate
    ``lr × layer_decay ** (d + 1)``.

    Args:
        named_parameters: ``(name, parameter)`` pairs in the order of the model.
        lr: of the head, and the start of the layer-wise decay.
        head_lr: of the head instead of ``lr``; None: ``lr``.
        layer_decay: factor per child, in (0, 1]; 1: the same learning rate for all children.
        weight_decay: of weights, ≥ 0; 0: off.
        decay_norms: False: no weight decay for parameters with one dimension, which are norms'
            weights and all biases.

    Raises:
        ValueError: no parameter; ``layer_decay`` outside (0, 1].

    Source: J. Howard and S. Ruder, ULMFiT, 2018 (discriminative fine-tuning);
    `timm.optim.param_groups_layer_decay`.
    """
    if not named_parameters or not 0 < layer_decay <= 1:
        raise ValueError(
            f"{len(named_parameters)} parameters and layer_decay {layer_decay}: give one parameter "
            "or more, and a factor above 0 and at most 1"
        )
    children = list(dict.fromkeys(name.partition(".")[0] for name, _ in named_parameters))
    groups: dict[tuple[str, bool], dict] = {}
    for name, parameter in named_parameters:
        child = name.partition(".")[0]
        distance = len(children) - 1 - children.index(child)  # 0 for the head
        child_lr = lr * layer_decay**distance
        if distance == 0 and head_lr is not None:
            child_lr = head_lr
        decays = decay_norms or parameter.ndim > 1
        group = groups.setdefault(
            (child, decays),
            {"params": [], "lr": child_lr, "weight_decay": weight_decay if decays else 0.0},
        )
        group["params"].append((name, parameter))
    return list(groups.values())


def make_grouped(
    optimizer: Callable[..., Optimizer], named_parameters: NamedParameters, **options
) -> Optimizer:
    """``optimizer`` over `group_parameters`: one argument of `fit`.

    ``make_optimizer=partial(make_grouped, torch.optim.AdamW, lr=1e-3, layer_decay=0.7)``
    """
    return optimizer(group_parameters(named_parameters, **options))
