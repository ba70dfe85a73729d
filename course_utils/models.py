"""Models by name: ours, torchvision's and timm's."""

from collections.abc import Sequence
from functools import partial

from torch import nn

from course_utils.errors import CourseError
from course_utils.weights import read_backbone

__all__ = ["create_model"]

# name: (stride of the stem, channels of the stem, (channels, convolutions) of each stage)
PLAIN_STACKS = {
    "vgg_tiny": (2, 32, ((64, 1), (128, 1), (256, 1))),
    "vgg_small": (1, 24, ((64, 1), (128, 2), (256, 2))),
}


def create_model(name: str, num_classes: int, pretrained: bool = False) -> nn.Module:
    """A network that maps images ``(N, 3, H, W)`` to logits ``(N, num_classes)``.

    Args:
        name: ``"resnet_tiny"`` (ours: 0.46 million parameters, made for 32×32 images and two
            cores), ``"vgg_tiny"`` and ``"vgg_small"`` (ours, plain stacks of convolutions for
            short and for longer trainings from scratch), ``"resnet18"`` (torchvision's), or
            ``"timm/<name>"`` for any name of ``timm.list_models()``.
        num_classes: of the last layer, which is always new.
        pretrained: start from weights trained on other images (ours come with the course, those
            of torchvision and timm are downloaded once); False: random weights.

    Raises:
        CourseError: unknown name; pretrained weights that are not to be had, or not the ones
            their checksum names. Never a silent fall-back to random weights.
    """
    if name == "resnet_tiny":
        return _resnet_tiny(num_classes, pretrained)
    if name in PLAIN_STACKS:
        if pretrained:
            raise CourseError(f"{name} has no pretrained weights: use resnet_tiny, or none")
        return _plain_stack(num_classes, *PLAIN_STACKS[name])
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
        f"no model {name!r}: use resnet_tiny, vgg_tiny, vgg_small, resnet18 or timm/<a timm name>"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _resnet_tiny(num_classes: int, pretrained: bool) -> nn.Module:
    """timm's ResNet, one basic block a stage, made for trainings of a few hundred steps.

    Without the max-pool, which 32 pixels cannot afford; every block learns from the first step;
    and running statistics follow within an epoch (momentum 0.3), or validation accuracy jumps.
    """
    from timm.models.resnet import BasicBlock, ResNet

    model = ResNet(
        BasicBlock,
        layers=[1, 1, 1, 1],
        channels=(24, 48, 96, 128),
        num_classes=num_classes,
        zero_init_last=False,
        norm_layer=partial(nn.BatchNorm2d, momentum=0.3),
    )
    model.maxpool = nn.Identity()
    if pretrained:
        weights = read_backbone()
        head = {name: tensor for name, tensor in model.state_dict().items() if name[:3] == "fc."}
        model.load_state_dict(weights | head)
    return model


def _plain_stack(
    num_classes: int, stride: int, channels: int, stages: Sequence[tuple[int, int]]
) -> nn.Module:
    """Convolutions in the manner of VGG, with BatchNorm: a stem, then stages that halve the side.

    The maximum over what is left of the image goes to the last layer. No shortcuts: a network of
    so few layers trains without them, and each would be one more pass over memory.

    Source: K. Simonyan and A. Zisserman, 2015 (stacks of 3×3); K. Jordan, 94 % on CIFAR-10 in
    3.29 seconds, 2024 (the order convolution, pooling, normalisation).
    """

    def convolve(inputs: int, outputs: int, size: int = 3, **options) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, size, bias=False, **options)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]

    layers = convolve(3, channels, 4 if stride == 2 else 3, stride=stride, padding=1)
    for wider, depth in stages:
        first = convolve(channels, wider, padding=1)
        layers += [first[0], nn.MaxPool2d(2), *first[1:]]
        for _ in range(depth - 1):
            layers += convolve(wider, wider, padding=1)
        channels = wider
    return nn.Sequential(
        *layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes)
    )


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
