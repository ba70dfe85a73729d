"""From images in memory to batches: `BatchDataset`, and the seeds of loader processes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

__all__ = ["Augment", "BatchDataset", "seed_worker"]

Augment = Callable[[torch.Tensor], torch.Tensor]  # images (B, H, W, 3) uint8 to the same


def seed_worker(worker_id: int) -> None:
    """``worker_init_fn`` of a training loader: seed the transform of this worker process.

    Workers are copies of one process. Without this each of them, and each of them again in the
    next epoch, draws the *same* augmentations. ``torch.initial_seed()`` differs per worker and
    per epoch, so we seed albumentations from it. OpenCV's own threads are turned off: the
    workers already use the cores.
    """
    import cv2

    cv2.setNumThreads(0)
    worker = get_worker_info()
    assert worker is not None  # for the type checker: only a worker calls this
    dataset: Any = worker.dataset  # one that has a transform
    dataset.transform.set_random_seed(torch.initial_seed() % 2**32)


def _keep_batch(batch: object) -> object:
    """The collate function of a loader whose data set already returns batches."""
    return batch


@dataclass(frozen=True)
class BatchDataset(Dataset):
    """Images that are normalised, and augmented if asked, a batch at a time.

    This is about ten times as fast as image by image. A batch is
    ``(images (B, 3, H, W) float32, targets (B,) int64)``, with the channels last in memory.
    """

    images: np.ndarray  # (N, H, W, 3) uint8
    targets: np.ndarray  # (N,) int64
    mean: Sequence[float]  # of each channel, in units of 255
    std: Sequence[float]
    augment: Augment | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def __getitems__(self, index: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """What a `DataLoader` asks for when it wants these images as a batch."""
        pixels = torch.from_numpy(self.images[index])  # (B, H, W, 3) uint8
        if self.augment is not None:
            pixels = self.augment(pixels)
        images = pixels.float().div_(255)
        images.sub_(torch.tensor(self.mean)).div_(torch.tensor(self.std))
        # seen as (B, 3, H, W) with the channels last in memory, which convolutions prefer
        return images.permute(0, 3, 1, 2), torch.from_numpy(self.targets[index])

    def loader(self, batch_size: int, **options) -> DataLoader:
        """Batches of ``batch_size`` images; ``options`` go to the `DataLoader`."""
        return DataLoader(self, batch_size, collate_fn=_keep_batch, **options)
