"""``course pretrain``: make the backbone that the lessons on transfer start from.

The images are Tiny ImageNet: 200 classes, 100,000 training and 10,000 validation photographs of
64 × 64 pixels, reduced to 32 × 32. They are never part of the repository.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.data.augment import flip_and_shift
from course_utils.errors import CourseError
from course_utils.measure.memory import count_parameters
from course_utils.measure.provenance import describe_making
from course_utils.models.backbone import load_backbone, write_backbone
from course_utils.models.create import create_model

__all__ = ["Recipe", "Split", "pretrain", "read_split"]

MODEL = "convnet_small"
SIZE = 32  # pixels, height and width
MEAN = (0.485, 0.456, 0.406)  # ImageNet's, in units of 255
STD = (0.229, 0.224, 0.225)
LAYOUT = "expected train/<class>/images/*.JPEG, val/images/*.JPEG and val/val_annotations.txt"
SOURCE = "Tiny ImageNet (Stanford CS231N, 2015; from ImageNet, J. Deng et al., 2009), 32 × 32"


@dataclass(frozen=True)
class Recipe:
    """SGD with Nesterov momentum; a straight line up to the peak, and a straight line to zero."""

    epochs: int = 12
    batch_size: int = 256
    peak_lr: float = 0.2
    warmup: float = 0.2  # share of all steps
    momentum: float = 0.9
    weight_decay: float = 5e-4  # of convolutions and fc; norms and biases have none
    label_smoothing: float = 0.1
    small_size: int = 24  # pixels of the images at first: about half the work
    small_share: float = 0.5  # of all steps


@dataclass(frozen=True)
class Split:
    """Images ``(N, 32, 32, 3)`` uint8 and their class indices ``(N,)`` int64."""

    images: Tensor
    targets: Tensor


def _decode(path: Path) -> np.ndarray:
    """One JPEG as ``(32, 32, 3)`` uint8, red first; each pixel is the mean of those it covers."""
    # reading a named pipe would never end
    image = cv2.imread(str(path), cv2.IMREAD_COLOR_RGB) if path.is_file() else None
    if image is None:
        raise CourseError(f"cannot read the image {path}: replace or delete it")
    return cv2.resize(image, (SIZE, SIZE), interpolation=cv2.INTER_AREA)


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise CourseError(f"{path} is not a text in UTF-8: {LAYOUT}") from None


def read_split(folder: Path, split: str) -> Split:
    """All images of ``"train"`` or ``"val"``; classes are in the order of their names.

    Raises:
        CourseError: a folder of another layout, an image that cannot be read.
    """
    annotations = folder / "val" / "val_annotations.txt"
    classes = sorted(path.name for path in (folder / "train").glob("*") if path.is_dir())
    numbers = {name: number for number, name in enumerate(classes)}
    if len(classes) < 2 or not annotations.is_file():
        raise CourseError(f"{folder} is not Tiny ImageNet: {LAYOUT}")
    if split == "train":
        paths = sorted((folder / "train").glob("*/images/*.JPEG"))
        names = [path.parts[-3] for path in paths]
    else:
        rows = [line.split("\t") for line in _read_lines(annotations)]
        if any(len(row) < 2 for row in rows):
            raise CourseError(f"{annotations} has a line without a class: {LAYOUT}")
        paths = [folder / "val" / "images" / row[0] for row in rows]
        names = [row[1] for row in rows]
    if not paths or not set(names) <= set(classes):
        raise CourseError(f"{folder} has no {split} images of its classes: {LAYOUT}")
    with ThreadPoolExecutor() as pool:
        images = np.stack(list(pool.map(_decode, paths)))
    targets = torch.tensor([numbers[name] for name in names])
    return Split(torch.from_numpy(images), targets)


def _normalize(images: Tensor) -> Tensor:
    """Pixels ``(N, H, W, 3)`` uint8 to ``(N, 3, H, W)`` float32, channels last in memory."""
    mean, std = (255 * torch.tensor(values) for values in (MEAN, STD))
    return ((images.float() - mean) / std).permute(0, 3, 1, 2)


def _make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    kernels = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    groups = [
        {"params": kernels, "weight_decay": recipe.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, recipe.peak_lr, momentum=recipe.momentum, nesterov=True)


def _lr_factor(step: int, total_steps: int, warmup: float) -> float:
    """Share of the peak learning rate at ``step``, counted from 0."""
    warmup_steps = int(warmup * total_steps)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return (total_steps - step) / (total_steps - warmup_steps)


def _train(
    model: nn.Module, train: Split, recipe: Recipe, seed: int, report: Callable[[str], object]
) -> None:
    """Pretrain ``model`` in place, in fp32."""
    generator = torch.Generator().manual_seed(seed)
    batch_size = min(recipe.batch_size, len(train.images))
    steps = len(train.images) // batch_size  # per epoch; a smaller last batch is left out
    total_steps = recipe.epochs * steps
    optimizer = _make_optimizer(model, recipe)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: _lr_factor(step, total_steps, recipe.warmup)
    )
    model.train()
    for epoch in range(recipe.epochs):
        order = torch.randperm(len(train.images), generator=generator)[: steps * batch_size]
        losses = []
        for step, batch in enumerate(order.view(steps, batch_size), start=epoch * steps):
            images = _normalize(flip_and_shift(train.images[batch], generator))
            if step < recipe.small_share * total_steps:
                images = F.interpolate(images, size=recipe.small_size, mode="area")
            logits = model(images)
            loss = F.cross_entropy(
                logits, train.targets[batch], label_smoothing=recipe.label_smoothing
            )
            loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        report(f"epoch {epoch + 1} of {recipe.epochs}: training loss {np.mean(losses):.3f}")


@torch.no_grad()
def _measure_accuracy(model: nn.Module, split: Split) -> float:
    model.eval()
    batches = zip(split.images.split(500), split.targets.split(500), strict=True)
    right = sum((model(_normalize(x)).argmax(1) == y).sum().item() for x, y in batches)
    return right / len(split.targets)


def pretrain(
    images: Path,
    folder: Path,
    seed: int = 0,
    recipe: Recipe | None = None,
    report: Callable[[str], object] = print,
) -> dict:
    """Train the backbone, write it into ``folder``, and return what its JSON says.

    Args:
        images: folder with Tiny ImageNet.
        seed: of the initial weights, the order and the augmentation.
        report: called with one line per epoch.

    Raises:
        CourseError: ``images`` is not such a folder.
    """
    recipe = recipe or Recipe()
    train, val = read_split(images, "train"), read_split(images, "val")
    num_classes = int(train.targets.max()) + 1
    torch.manual_seed(seed)
    model = create_model(MODEL, num_classes).to(memory_format=torch.channels_last)
    start = time.perf_counter()
    _train(model, train, recipe, seed, report)
    time_s = time.perf_counter() - start
    about = {
        "command": f"course pretrain --images {images.name} --seed {seed}",
        "model": MODEL,
        "parameters": count_parameters(model) - count_parameters(model.get_submodule("fc")),
        "data": f"{SOURCE}: {len(train.images):,} training, {len(val.images):,} validation images "
        f"of {num_classes} classes",
        "seed": seed,
        "recipe": asdict(recipe),
        "val_accuracy": _measure_accuracy(model, val),
        "time_s": round(time_s, 1),
    } | describe_making()
    write_backbone(model, MODEL, about, folder)
    load_backbone(model, MODEL, folder)
    stored = {"val_accuracy_of_stored_weights": _measure_accuracy(model, val)}
    write_backbone(model, MODEL, about | stored, folder)
    return about | stored
