"""Networks and batches that are measured: those of practice on a GPU, small ones on a CPU."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torchvision.models import VisionTransformer, resnet18, resnet50, vit_b_16

__all__ = ["LARGE", "SMALL", "Scale"]


@dataclass(frozen=True)
class Scale:
    """Two networks and the batches that they are trained on.

    ``steps``: training steps in one timed call; ``accumulated``: images in one step of an
    optimizer, divided into the micro-batches of ``micro_batches``.
    """

    name: str
    convolutional: str
    transformer: str
    make_convolutional: Callable[[], nn.Module]
    make_transformer: Callable[[], nn.Module]
    pixels: int
    batch_size: int
    accumulated: int
    micro_batches: tuple[int, ...]
    steps: int
    photo_size: tuple[int, int]  # width and height of the JPEGs that are decoded
    photos: int
    loader_seconds: float

    def make_batch(self, device: torch.device, images: int | None = None) -> tuple[Tensor, Tensor]:
        """Random images ``(N, 3, H, W)`` float32 and targets ``(N,)``, on the device."""
        shape = (images or self.batch_size, 3, self.pixels, self.pixels)
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(shape, generator=generator)
        targets = torch.randint(10, shape[:1], generator=generator)
        return inputs.to(device), targets.to(device)


LARGE = Scale(
    name="large",
    convolutional="ResNet-50",
    transformer="ViT-B/16",
    make_convolutional=resnet50,
    make_transformer=vit_b_16,
    pixels=224,
    batch_size=128,
    accumulated=256,
    micro_batches=(256, 128, 64, 32, 16),
    steps=4,
    photo_size=(500, 375),
    photos=1024,
    loader_seconds=8.0,
)
SMALL = Scale(
    name="small",
    convolutional="ResNet-18",
    transformer="ViT of 0.8 M parameters",
    make_convolutional=lambda: resnet18(num_classes=10),
    make_transformer=lambda: VisionTransformer(
        image_size=32,
        patch_size=4,
        num_layers=4,
        num_heads=4,
        hidden_dim=128,
        mlp_dim=512,
        num_classes=10,
    ),
    pixels=32,
    batch_size=16,
    accumulated=32,
    micro_batches=(32, 16, 8, 4, 2),
    steps=1,
    photo_size=(125, 94),
    photos=64,
    loader_seconds=0.5,
)
