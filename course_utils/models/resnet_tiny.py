"""`resnet_tiny`: a residual network of 0.46 million parameters for 32 × 32 images."""

from functools import partial

from torch import nn

from course_utils.models.backbone import load_backbone

__all__ = ["make_resnet_tiny"]


def make_resnet_tiny(num_classes: int, pretrained: bool) -> nn.Module:
    """timm's ResNet, one basic block per stage, made for trainings of a few hundred steps.

    Without the max-pool, which 32 pixels cannot afford; every block learns from the first step;
    and running statistics follow within an epoch (momentum 0.3), or validation accuracy jumps.
    """
    from timm.models.resnet import BasicBlock, ResNet

    model = ResNet(
        BasicBlock,  # type: ignore[arg-type]  # timm annotates an instance, and takes the class
        layers=(1, 1, 1, 1),
        channels=(24, 48, 96, 128),
        num_classes=num_classes,
        zero_init_last=False,
        norm_layer=partial(nn.BatchNorm2d, momentum=0.3),
    )
    model.register_module("maxpool", nn.Identity())
    if pretrained:
        load_backbone(model, "resnet_tiny")
    return model
