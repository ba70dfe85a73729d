"""The baseline's image transforms (albumentations) and the seeding that they need in workers."""

import os
from collections.abc import Sequence

import torch
from torch.utils.data import get_worker_info

__all__ = ["eval_transform", "seed_worker", "train_transform"]

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # or its import asks the network for news


def _normalize(mean: Sequence[float], std: Sequence[float]) -> list:
    import albumentations as A
    from albumentations.pytorch import ToTensorV2

    return [A.Normalize(mean=mean, std=std, max_pixel_value=255), ToTensorV2()]


def train_transform(mean: Sequence[float], std: Sequence[float], seed: int | None = None):
    """Augment, normalise and convert one image.

    The result maps ``image`` ``(H, W, 3)`` uint8 to ``{"image": (3, H, W) float32}``.

    Args:
        mean, std: of each channel, in units of 255.
        seed: of the augmentations in this process; None: unpredictable.
    """
    import albumentations as A
    import cv2

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
    return A.Compose([*augment, *_normalize(mean, std)], seed=seed)


def eval_transform(mean: Sequence[float], std: Sequence[float]):
    """As `train_transform`, with no augmentation: what validation and test images get."""
    import albumentations as A

    return A.Compose(_normalize(mean, std))


def seed_worker(worker_id: int) -> None:
    """``worker_init_fn`` of every training loader: seed the transform of this worker process.

    Workers are copies of one process. Without this each of them, and each of them again in the
    next epoch, draws the *same* augmentations. ``torch.initial_seed()`` differs per worker and
    per epoch, so we seed albumentations from it. OpenCV's own threads are turned off: the
    workers already use the cores.
    """
    import cv2

    cv2.setNumThreads(0)
    get_worker_info().dataset.transform.set_random_seed(torch.initial_seed() % 2**32)
