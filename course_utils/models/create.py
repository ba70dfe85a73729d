"""Models by name: ours, torchvision's and timm's."""

from torch import nn

from course_utils.errors import CourseError
from course_utils.models.airbench import WIDTHS, make_airbench94
from course_utils.models.backbone import load_backbone
from course_utils.models.convnet_small import make_convnet_small
from course_utils.models.plain import make_vgg_tiny
from course_utils.models.text_small import TextSmall

__all__ = ["create_model"]


def create_model(name: str, num_classes: int, pretrained: bool = False) -> nn.Module:
    """A network that maps images ``(N, 3, H, W)`` or tokens ``(N, T)`` to logits ``(N, C)``.

    Args:
        name: ``"convnet_small"`` (ours: 1.57 million parameters, for photographs of 32 × 32
            pixels), ``"vgg_tiny"`` (ours, a plain stack of convolutions for trainings from
            scratch), ``"airbench94"`` and ``"airbench94_half"`` (the network of a published
            record, and one of half its widths, for trainings from scratch), ``"resnet18"``
            (torchvision's), ``"timm/<name>"`` for any name of ``timm.list_models()``, or, for
            texts, ``"text_small"`` (ours: a transformer of 1.3 million parameters).
        num_classes: C, of the last layer, which is always new.
        pretrained: start from weights trained on other images (ours come with the course, those
            of torchvision and timm are downloaded once); False: random weights.

    Raises:
        CourseError: unknown name; pretrained weights that are missing, damaged, or cannot be
            downloaded. Random weights never take their place silently.
    """
    if name == "convnet_small":
        return make_convnet_small(num_classes, pretrained)
    if name in ("vgg_tiny", *WIDTHS) and pretrained:
        raise CourseError(f"{name} has no pretrained weights: use convnet_small, or none")
    if name == "text_small":
        return _make_text_small(num_classes, pretrained)
    if name in WIDTHS:
        return make_airbench94(num_classes, WIDTHS[name])
    if name == "vgg_tiny":
        return make_vgg_tiny(num_classes)
    try:
        if name == "resnet18":
            return _torchvision_resnet18(num_classes, pretrained)
        if name.startswith("timm/"):
            return _timm_model(name.removeprefix("timm/"), num_classes, pretrained)
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise CourseError(
            f"pretrained weights of {name} could not be fetched ({_first_line(error)}): connect "
            "to a network once (they are cached), or use pretrained=False"
        ) from None
    raise CourseError(
        f"no model {name!r}: use convnet_small, vgg_tiny, airbench94, airbench94_half, resnet18, "
        "timm/<a timm name>, or text_small for texts"
    )


def _make_text_small(num_classes: int, pretrained: bool) -> nn.Module:
    model = TextSmall(num_classes)
    if pretrained:
        load_backbone(model, "text_small")
    return model


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _torchvision_resnet18(num_classes: int, pretrained: bool) -> nn.Module:
    from torchvision.models import ResNet18_Weights, resnet18

    model = resnet18(weights=ResNet18_Weights.DEFAULT if pretrained else None)
    model.fc = nn.Linear(model.fc.in_features, num_classes)
    return model


def _timm_model(name: str, num_classes: int, pretrained: bool) -> nn.Module:
    import timm

    if not timm.is_model(name):
        near = ", ".join(timm.list_models(f"{name[:6]}*")[:3]) or "timm.list_models() lists them"
        raise CourseError(f"timm has no model {name!r} (some near: {near})")
    return timm.create_model(name, pretrained=pretrained, num_classes=num_classes)
