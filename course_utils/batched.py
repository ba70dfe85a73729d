"""Training batches made at once, not image by image: cheap augmentation for the data seam."""

from dataclasses import dataclass

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

from course_utils.data import ImageData

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


@dataclass(frozen=True)
class _Batches(Dataset):
    """Asked for a list of indices, the batch of these images, augmented and normalised."""

    images: torch.Tensor  # (N, H, W, 3) uint8
    targets: torch.Tensor  # (N,) int64
    mean: torch.Tensor  # of the channels, in units of 255
    std: torch.Tensor
    generator: torch.Generator

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        images = flip_and_shift(self.images[index], self.generator).float()
        images = images.div_(255).sub_(self.mean).div_(self.std)
        return images.permute(0, 3, 1, 2), self.targets[index]


def batched_loader(data: ImageData, seed: int = 0, batch_size: int | None = None) -> DataLoader:
    """Shuffled batches as from `ImageData.train_loader`, flipped and shifted a batch at a time.

    Batches are ``(images (B, 3, H, W) float32, targets (B,) int64)`` and lie in memory as
    channels-last. The order is that of ``data.train_loader(seed)``, the augmentation is another:
    `flip_and_shift`, nothing else. A last batch that is not full is dropped.

    Args:
        seed: of the order, and of the augmentations.
        batch_size: B; None: that of ``data``.
    """
    order = torch.Generator().manual_seed(seed)
    batches = _Batches(
        torch.from_numpy(data.train.images),
        torch.from_numpy(data.train.targets),
        torch.tensor(data.mean),
        torch.tensor(data.std),
        torch.Generator().manual_seed(seed),
    )
    size = min(batch_size or data.batch_size, len(batches))
    sampler = BatchSampler(RandomSampler(batches, generator=order), size, drop_last=True)
    return DataLoader(batches, sampler=sampler, batch_size=None, generator=order)
