"""Training batches made at once, not image by image: cheap augmentation for the data seam."""

from functools import partial

import torch
from torch.utils.data import DataLoader

from course_utils.data import ImageData
from course_utils.transforms import Batches

__all__ = ["batched_loader", "flip_and_shift"]

MAX_SHIFT = 4  # pixels, an eighth of the images' side


def flip_and_shift(
    images: torch.Tensor, generator: torch.Generator, max_shift: int = MAX_SHIFT
) -> torch.Tensor:
    """Mirror half of the images, and move each by whole pixels; what is missing is reflected.

    Args:
        images: ``(N, H, W, C)`` of any type; the result is a new tensor like it.
        generator: of the random numbers; each image has its own.
        max_shift: pixels up, down, left or right, less than H and W; 0: off.

    Source: K. He et al., Deep Residual Learning, 2016, section 4.2 (there with a black border).
    """
    count, height, width, _ = images.shape
    shifts = torch.randint(-max_shift, max_shift + 1, (2, count, 1), generator=generator)
    mirrored = torch.rand(count, 1, generator=generator) < 0.5
    rows = _reflect(torch.arange(height) + shifts[0], height)
    columns = _reflect(torch.arange(width) + shifts[1], width)
    columns = torch.where(mirrored, columns.flip(1), columns)
    return images[torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]


def _reflect(places: torch.Tensor, size: int) -> torch.Tensor:
    """Places outside of 0 to ``size - 1`` mirrored at the first and the last pixel."""
    return size - 1 - (size - 1 - places.abs()).abs()


def batched_loader(data: ImageData, seed: int = 0, batch_size: int | None = None) -> DataLoader:
    """Shuffled batches as from `ImageData.train_loader`, flipped and shifted a batch at a time.

    Batches are ``(images (B, 3, H, W) float32, targets (B,) int64)`` and lie in memory as
    channels-last. The order is that of ``data.train_loader(seed)``, the augmentation is another:
    `flip_and_shift`, nothing else. A last batch that is not full is dropped.

    Args:
        seed: of the order, and of the augmentations.
        batch_size: B; None: that of ``data``.
    """
    augment = partial(flip_and_shift, generator=torch.Generator().manual_seed(seed))
    batches = Batches(data.train.images, data.train.targets, data.mean, data.std, augment)
    size = min(batch_size or data.batch_size, len(batches))
    order = torch.Generator().manual_seed(seed)
    return batches.loader(size, shuffle=True, drop_last=True, generator=order)
