"""Images: `load_images` makes the splits of a data set, `ImageData` serves batches of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from course_utils.config import Config
from course_utils.data.augment import MAX_SHIFT, flip_and_shift
from course_utils.data.loaders import Augment, BatchDataset
from course_utils.data.shape_outlines import OUTLINES
from course_utils.data.shapes import make_shapes
from course_utils.data.sources import open_images
from course_utils.data.split import check_classes, split_stratified
from course_utils.data.twins import NamedImages, tell_leaked, tell_mixed
from course_utils.errors import CourseError

__all__ = ["ImageData", "Images", "load_images"]

FEWEST = 60  # images in train/ of somebody's own with which every lesson runs, in each profile


@dataclass(frozen=True)
class Images(Dataset):
    """Images in memory: ``images`` ``(N, H, W, 3)`` uint8, ``targets`` ``(N,)`` int64."""

    images: np.ndarray
    targets: np.ndarray
    transform: Callable | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = self.images[index]
        if self.transform is not None:
            image = self.transform(image=image)["image"]
        return image, int(self.targets[index])


@dataclass(frozen=True)
class ImageData:
    """The splits of one data set, and the loaders over them.

    ``mean`` and ``std`` are those of the training split's channels, in units of 255.
    ``open_test`` reads the test split; only the last lesson calls it. ``batch_size`` is at most
    the number of training images, so that lessons which divide it among processes get a batch.
    """

    name: str
    class_names: tuple[str, ...]
    train: Images
    val: Images
    mean: tuple[float, ...]
    std: tuple[float, ...]
    open_test: Callable[[], Images]
    batch_size: int

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def train_loader(
        self, seed: int = 0, batch_size: int | None = None, max_shift: int = MAX_SHIFT
    ) -> DataLoader:
        """Shuffled batches ``(images (B, 3, H, W) float32, targets (B,) int64)``, augmented.

        A whole batch at a time is flipped and shifted (`flip_and_shift`), normalised, and laid
        out as channels-last: on two cores this takes a tenth of the time that image by image
        takes. The last batch is dropped if it is not full, because BatchNorm needs more than one
        image.

        Args:
            seed: of the order, and of the augmentations.
            batch_size: B; None: that of these data. Never more than there are images.
            max_shift: pixels, as in `flip_and_shift`; 0: off. A training of a few epochs sees
                each image a few times only, so it needs less augmentation.
        """
        generator = torch.Generator().manual_seed(seed)
        augment = partial(flip_and_shift, generator=generator, max_shift=max_shift)
        return self._shuffled(augment, seed, batch_size)

    def plain_loader(self, seed: int = 0, batch_size: int | None = None) -> DataLoader:
        """As `train_loader`, in the same order, without augmentation.

        For experiments on overfitting, which augmentation would hide.
        """
        return self._shuffled(None, seed, batch_size)

    def eval_loader(self, images: Images | None = None) -> DataLoader:
        """Batches of the validation split (or of ``images``), in order, never augmented."""
        return self._batches(images or self.val).loader(batch_size=256)

    def _batches(self, images: Images, augment: Augment | None = None) -> BatchDataset:
        return BatchDataset(images.images, images.targets, self.mean, self.std, augment)

    def _shuffled(self, augment: Augment | None, seed: int, batch_size: int | None) -> DataLoader:
        return self._batches(self.train, augment).loader(
            min(batch_size or self.batch_size, len(self.train)),
            shuffle=True,
            drop_last=True,
            generator=torch.Generator().manual_seed(seed),
        )

    def take_train(self, num_images: int) -> "ImageData":
        """The same data with the first ``num_images`` training images only, classes in proportion.

        Raises:
            CourseError: when a class would be left without an image.
        """
        num_images = max(0, num_images)
        images, targets = self.train.images[:num_images], self.train.targets[:num_images]
        check_classes(targets, self.class_names, f"{num_images} training images")
        train = Images(images, targets)
        return replace(self, train=train, batch_size=min(self.batch_size, len(train)))

    def summarize(self) -> dict[str, object]:
        """Name, sizes and classes, as runs record them."""
        return {
            "name": self.name,
            "train": len(self.train),
            "val": len(self.val),
            "classes": self.num_classes,
            "image_shape": list(self.train.images.shape[1:]),
        }

    def describe(self) -> str:
        """One line: sizes, classes and shape."""
        return (
            f"{self.name}: {len(self.train):,} training and {len(self.val):,} validation images "
            f"of {self.num_classes} classes, {' × '.join(map(str, self.train.images.shape[1:]))}"
        )


def _read_test(dataset: str, seen: NamedImages | None = None) -> Images:
    """The test split of a data set; says which of its images were ``seen`` in training."""
    if dataset == "shapes":
        return Images(*make_shapes(2000, split="test"))
    _, targets, pick, names = open_images(dataset, "test")
    images = pick(np.arange(len(targets)))
    if seen is not None:
        tell_leaked(seen, NamedImages(images, targets, names), "test")
    return Images(images, targets)


def _check_number(dataset: str, found: int, config: Config) -> None:
    """Raise a CourseError if a folder has fewer images than lessons need, or than are asked for."""
    asked = FEWEST if config.num_train is None else config.num_train + config.num_val
    if found < min(FEWEST, asked):
        raise CourseError(
            f"{dataset}: train/ has {found:,} images, and the lessons need {FEWEST} or more, such "
            f"as {FEWEST // 3} in each of three classes: add images"
        )


def load_images(config: Config) -> ImageData:
    """Read the data set of ``config`` and split it, once and stratified, into train and validation.

    Of a folder of the user's own, it says which images are in both parts, or in two classes. The
    result can be pickled, so that a training can be sent to another process.

    Raises:
        CourseError: unknown data set; a folder, an archive, a sheet or an image that cannot be
            used; a folder with too few images; images that are all alike.
    """
    names: tuple[str, ...] = ()
    if config.dataset == "shapes":
        class_names = tuple(OUTLINES)
        num_train = 50_000 if config.num_train is None else config.num_train
        pool = make_shapes(num_train + config.num_val)
        targets, pick = pool[1], lambda index: pool[0][index]
    else:
        class_names, targets, pick, names = open_images(config.dataset, progress=config.progress)
    if names:
        _check_number(config.dataset, len(targets), config)
    train_index, val_index = split_stratified(
        targets, config.num_train, config.num_val, class_names=class_names
    )
    index = np.concatenate([train_index, val_index])
    images = pick(index)  # at once, so that one message names all damaged files
    train = Images(images[: len(train_index)], targets[train_index])
    val = Images(images[len(train_index) :], targets[val_index])
    std = train.images.std((0, 1, 2)) / 255
    if not std.all():
        raise CourseError(
            f"{config.dataset}: in all training images a channel has one and the same value: "
            "there is nothing to learn from"
        )
    seen = None
    if names:
        seen = NamedImages(images, targets[index], [names[i] for i in index])
        cut = len(train_index)
        first = NamedImages(train.images, train.targets, seen.names[:cut])
        tell_leaked(first, NamedImages(val.images, val.targets, seen.names[cut:]), "validation")
        tell_mixed(seen)
    return ImageData(
        name=config.dataset,
        class_names=class_names,
        train=train,
        val=val,
        mean=tuple((train.images.mean((0, 1, 2)) / 255).tolist()),
        std=tuple(std.tolist()),
        open_test=partial(_read_test, config.dataset, seen),
        batch_size=min(config.batch_size, len(train)),
    )
