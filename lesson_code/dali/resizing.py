"""Photographs that are enlarged and reduced in several ways, to train on and to validate on."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import cv2
import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.transforms.v2 import functional

from course_utils.data.image_data import ImageData
from course_utils.data.loaders import BatchDataset
from lesson_code.dali.jpegs import ENLARGED, QUALITY

__all__ = [
    "WAYS",
    "ValidateResized",
    "enlarge",
    "load_resized",
    "pass_half_size",
    "pass_large",
    "read_large_files",
    "read_small_files",
    "resize_to",
    "store_as_jpeg",
]

Resize = Callable[[np.ndarray], np.ndarray]  # images (N, H, W, 3) uint8 to the same shape
OPENCV = {"area": cv2.INTER_AREA, "linear": cv2.INTER_LINEAR, "nearest": cv2.INTER_NEAREST}


def resize_to(images: np.ndarray, side: int, way: str) -> np.ndarray:
    """Reduce images ``(N, H, W, 3)`` uint8 to ``(N, side, side, 3)``.

    Args:
        way: ``"area"``, ``"linear"`` and ``"nearest"`` are OpenCV's, and linear is its default.
            ``"antialiased"`` is torchvision's default, which is linear, too, but filters first.
    """
    if way == "antialiased":
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
        resized = functional.resize(pixels, [side, side], antialias=True)
        return np.ascontiguousarray(resized.permute(0, 2, 3, 1).numpy())
    flag = OPENCV[way]
    return np.stack([cv2.resize(image, (side, side), interpolation=flag) for image in images])


def enlarge(images: np.ndarray, factor: int = ENLARGED) -> np.ndarray:
    """Images ``(N, H, W, 3)`` with sides that are ``factor`` times as long, bicubic."""
    side = factor * images.shape[1]
    return np.stack([cv2.resize(x, (side, side), interpolation=cv2.INTER_CUBIC) for x in images])


def store_as_jpeg(images: np.ndarray) -> np.ndarray:
    """What is read from the JPEG files of these images, in the quality of `write_jpegs`."""

    def store(image: np.ndarray) -> np.ndarray:
        _, code = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
        return np.asarray(cv2.imdecode(code, cv2.IMREAD_COLOR_RGB))

    return np.stack([store(image) for image in images])


def pass_large(images: np.ndarray, way: str) -> np.ndarray:
    """Enlarge the images and reduce them to their own size again."""
    return resize_to(enlarge(images), images.shape[1], way)


def read_large_files(images: np.ndarray) -> np.ndarray:
    """As `pass_large` by area, and stored as JPEG files in between: lesson 11's training images."""
    return resize_to(store_as_jpeg(enlarge(images)), images.shape[1], "area")


def read_small_files(images: np.ndarray) -> np.ndarray:
    """What `read_large_files` gives, stored as JPEG files once more."""
    return store_as_jpeg(read_large_files(images))


def pass_half_size(images: np.ndarray, way: str) -> np.ndarray:
    """Reduce the images to half their sides, and enlarge them again, which is always bicubic."""
    return enlarge(resize_to(images, images.shape[1] // 2, way), factor=2)


def load_resized(data: ImageData, seed: int, resize: Resize) -> DataLoader:
    """The data seam: the course's loader of training images that were resized before."""
    images = resize(data.train.images)
    return replace(data, train=replace(data.train, images=images)).train_loader(seed)


WAYS: dict[str, Resize | None] = {  # to resize validation images; None: they stay
    "area": partial(pass_large, way="area"),  # as lesson 11 resizes its training files
    "linear": partial(pass_large, way="linear"),
    "antialiased": partial(pass_large, way="antialiased"),
    "never_enlarged": None,
    "half_area": partial(pass_half_size, way="area"),
    "half_antialiased": partial(pass_half_size, way="antialiased"),
    "half_nearest": partial(pass_half_size, way="nearest"),
}


@dataclass(eq=False)
class ValidateResized(L.Callback):
    """Validates on images that are resized in one way, and logs what other ways would give.

    Args:
        judged: of `WAYS`, what changes the validation images before the network sees them.
        others: the same, whose accuracy is logged as ``accuracy_<way>``.
    """

    judged: str
    others: tuple[str, ...] = ()
    _given: Tensor | None = field(default=None, init=False, repr=False)

    def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx, dataloader_idx=0):
        images, _ = batch
        self._given = images.clone()
        images.copy_(_change(images, WAYS[self.judged], trainer.val_dataloaders.dataset))

    def on_validation_batch_end(
        self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0
    ):
        _, targets = batch
        assert self._given is not None
        for name in self.others:
            images = _change(self._given, WAYS[name], trainer.val_dataloaders.dataset)
            hits = (pl_module.model(images).argmax(dim=1) == targets).float()
            options = {"on_step": False, "on_epoch": True, "batch_size": len(targets)}
            pl_module.log(f"accuracy_{name}", hits.mean(), **options)


def _change(images: Tensor, resize: Resize | None, dataset: BatchDataset) -> Tensor:
    """Normalised images ``(B, 3, H, W)`` after a change of their pixels."""
    if resize is None:
        return images
    mean, std = (torch.tensor(x, device=images.device) for x in (dataset.mean, dataset.std))
    pixels = (images.permute(0, 2, 3, 1) * std + mean).mul(255).round().byte()  # (B, H, W, 3)
    changed = torch.from_numpy(resize(pixels.cpu().contiguous().numpy())).to(images.device)
    return ((changed.float() / 255 - mean) / std).permute(0, 3, 1, 2)
