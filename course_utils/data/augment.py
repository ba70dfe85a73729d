"""Augmentation: `flip_and_shift` for a batch, `train_transform` (albumentations) for an image."""

import os
from collections.abc import Sequence

import torch

__all__ = ["flip_and_shift", "train_transform"]

MAX_SHIFT = 4  # pixels, an eighth of the images' side

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # or its import asks the network for news


def train_transform(mean: Sequence[float], std: Sequence[float], seed: int | None = None):
    """Augment, normalise and convert one image.

    The result maps ``image`` ``(H, W, 3)`` uint8 to ``{"image": (3, H, W) float32}``.

    Args:
        mean, std: of each channel, in units of 255.
        seed: of the augmentations in this process; None: unpredictable.
    """
    import albumentations as A
    import cv2
    from albumentations.pytorch import ToTensorV2

    augment = [
        A.Affine(
            rotate=(-15, 15),
            translate_percent=(-0.08, 0.08),
            scale=(0.9, 1.1),
            border_mode=cv2.BORDER_REFLECT_101,
            p=1.0,
        ),
        A.RGBShift(r_shift_limit=20, g_shift_limit=20, b_shift_limit=20, p=0.5),
        A.RandomBrightnessContrast(brightness_limit=0.2, contrast_limit=0.2, p=0.5),
    ]
    convert = [A.Normalize(mean=mean, std=std, max_pixel_value=255), ToTensorV2()]
    return A.Compose([*augment, *convert], seed=seed)


def flip_and_shift(
    images: torch.Tensor,
    generator: torch.Generator,
    max_shift: int = MAX_SHIFT,
    flip_probability: float = 0.5,
) -> torch.Tensor:
    """Mirror half of the images, and move each by whole pixels; what is missing is reflected.

    Args:
        images: ``(N, H, W, C)`` of any type; the result is a new tensor like it.
        generator: of the random numbers; each image has its own.
        max_shift: pixels up, down, left or right, less than H and W; 0: off.
        flip_probability: of mirroring an image, in [0, 1]; 0: off.

    Source: K. He et al., Deep Residual Learning, 2016, section 4.2 (there with a black border).
    """
    count, height, width, _ = images.shape
    shifts = torch.randint(-max_shift, max_shift + 1, (2, count, 1), generator=generator)
    mirrored = torch.rand(count, 1, generator=generator) < flip_probability
    rows = _reflect(torch.arange(height) + shifts[0], height)
    columns = _reflect(torch.arange(width) + shifts[1], width)
    columns = torch.where(mirrored, columns.flip(1), columns)
    return images[torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]


def _reflect(places: torch.Tensor, size: int) -> torch.Tensor:
    """Places outside of 0 to ``size - 1`` mirrored at the first and the last pixel."""
    return size - 1 - (size - 1 - places.abs()).abs()
