"""The baseline's input pipeline on NVIDIA DALI, for the data seam; runs without a GPU."""

import gc
import math
import os
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from course_utils.errors import CourseError
from lesson_code.dali.jpegs import JpegFiles, read_jpeg

__all__ = ["CHUNK", "DaliLoader", "affine_matrices", "draw_changes", "has_dali", "make_pipeline"]

CHUNK = 8  # training batches that DALI prepares at once: each operator is called for all of them
Changes = tuple[np.ndarray, np.ndarray, np.ndarray]

if hasattr(os, "register_at_fork"):  # a fork has no threads: to collect a pipeline waits for ever
    os.register_at_fork(before=gc.freeze, after_in_parent=gc.unfreeze)


def has_dali() -> bool:
    """Whether DALI is installed (the course installs it on Linux, x86-64)."""
    return bool(find_spec("nvidia")) and bool(find_spec("nvidia.dali"))


def affine_matrices(angle, scale, shift, size: int) -> np.ndarray:
    """``(N, 2, 3)``: from a place in a new image of ``size`` pixels to its place in the old one.

    The old image is scaled and then turned about its middle, and moved. The corner of the first
    pixel is 0, 0, and x comes first.

    Args:
        angle: ``(N,)`` in degrees, as albumentations turns.
        scale, shift: ``(N, 2)`` for x and y, the shift in pixels.
    """
    angle = np.deg2rad(angle)
    rows = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    turn = np.moveaxis(rows, 2, 0) / np.asarray(scale)[:, :, None]
    start = size / 2 - np.einsum("nij,nj->ni", turn, size / 2 + np.asarray(shift))
    return np.concatenate([turn, start[:, :, None]], axis=2).astype(np.float32)


def draw_changes(rng: np.random.Generator, count: int, size: int) -> Changes:
    """The random numbers of the baseline's augmentations for ``count`` images of ``size`` pixels.

    Returns three float32 arrays: ``matrices`` ``(count, 2, 3)``, see `affine_matrices` (rotation
    up to 15 degrees; scale up to 10 %, each axis its own; shift up to 8 %, in whole pixels), and
    ``gain`` and ``offset`` ``(count, 3)`` so that ``gain * image + offset``, in units of 0 to
    255, changes each channel by up to 20, and brightness and contrast by up to 20 %, both in half
    of the images.
    """
    shift = np.trunc(rng.uniform(-0.08, 0.08, (count, 2)) * size)
    angle, scale = rng.uniform(-15, 15, count), rng.uniform(0.9, 1.1, (count, 2))
    channels = rng.uniform(-20, 20, (count, 3)) * (rng.random((count, 1)) < 0.5)
    on = rng.random((count, 1)) < 0.5
    gain = np.repeat(1 + rng.uniform(-0.2, 0.2, (count, 1)) * on, 3, axis=1)
    offset = gain * channels + 255 * rng.uniform(-0.2, 0.2, (count, 1)) * on
    matrices = affine_matrices(angle, scale, shift, size)
    return matrices, gain.astype(np.float32), offset.astype(np.float32)


def make_pipeline(
    files: JpegFiles, mean, std, draw, *, crop=None, size=None, shard=(0, 1), gpu=False, **options
):
    """A DALI pipeline of normalised images ``(3, H, W)`` float32 and targets ``(1,)`` int32.

    Args:
        mean, std: of each channel, in units of 255.
        draw: ``() -> (matrices, gain, offset)`` for one batch, see `draw_changes`; None: neither
            augment nor shuffle.
        crop: side in pixels of the square in the middle that is decoded; None: all of the image.
        size: to which sides in pixels that is then resized; None: it stays.
        shard: ``(rank, number of ranks)``.
        gpu: decode and augment on a GPU.
        options: of DALI's pipelines: ``batch_size``, ``num_threads``, ``device_id``, ``seed``.
    """
    from nvidia.dali import fn, pipeline_def, types

    def change() -> Changes:
        matrices, gain, offset = draw()
        return matrices, -offset / gain, 1 / gain  # gain x + offset as (x - mean) / std

    order = {"shuffle_after_epoch": True, "shuffle_after_epoch_seed": options["seed"]}

    @pipeline_def
    def pipeline():
        codes, targets = fn.readers.file(
            name="Reader",
            files=[str(path) for path in files.paths],
            labels=list(files.targets),
            shard_id=shard[0],
            num_shards=shard[1],
            pad_last_batch=True,  # as many batches in every shard
            dont_use_mmap=True,  # to map a file costs more than to read a small one
            **({"stick_to_shard": True} if draw is None else order),
        )
        device = "mixed" if gpu else "cpu"
        images: Any  # a node of the graph
        if crop is None:
            images = fn.decoders.image(codes, device=device)
        else:  # only this part of the file is turned into pixels
            images = fn.decoders.image_crop(codes, device=device, crop=(crop, crop))
        if size is not None:
            images = fn.resize(images, size=(size, size))
        if draw is not None:
            matrices, low, width = fn.external_source(change, num_outputs=3)
            images = fn.warp_affine(images, matrix=matrices)
            images = fn.crop_mirror_normalize(  # to uint8, which cuts off at 0 and 255
                images, mean=low, std=width, dtype=types.DALIDataType.UINT8, output_layout="HWC"
            )
        images = fn.crop_mirror_normalize(
            images,
            mean=[255 * m for m in mean],
            std=[255 * s for s in std],
            dtype=types.DALIDataType.FLOAT,
            output_layout="CHW",
        )
        return images, targets.gpu() if gpu else targets

    return pipeline(**options)


class DaliLoader:
    """Batches ``(images (B, 3, H, W) float32, targets (B,) int64)`` of JPEG files, by DALI.

    One epoch at a time. A caller that stops early still waits for the rest of it to be read.

    Args:
        mean, std: of each channel, in units of 255.
        seed: of order and augmentations; the same on every rank.
        train: shuffle, augment, drop a last batch that is not full; else: every image once.
        crop, size: of `make_pipeline`.
        threads: of the CPU.
        shard: ``(rank, number of ranks)``; in training all ranks get as many batches.
        gpu: decode and augment on the current GPU, where the batches stay.

    Raises:
        CourseError: DALI is not installed, a file cannot be read, or a rank gets none.
    """

    def __init__(
        self,
        files: JpegFiles,
        mean: Sequence[float],
        std: Sequence[float],
        batch_size: int,
        *,
        seed: int = 0,
        train: bool = True,
        crop: int | None = None,
        size: int | None = None,
        threads: int = 2,
        shard: tuple[int, int] = (0, 1),
        gpu: bool = False,
    ):
        if not has_dali():
            raise CourseError("DALI is not installed: pip install '.[dali]' (Linux, x86-64)")
        if threads < 1:
            raise CourseError(f"DALI cannot work with {threads} threads: give it 1 or more")
        from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

        (rank, ranks), count = shard, len(files)
        if not 0 <= rank < ranks <= count:
            raise CourseError(f"rank {rank} of {ranks} gets none of {count} files: use fewer ranks")
        own = count * (rank + 1) // ranks - count * rank // ranks
        self.batch_size = min(batch_size, count // ranks)
        full, every = math.ceil(count / ranks) // self.batch_size, math.ceil(own / self.batch_size)
        self._length = full if train else every
        chunk = CHUNK * self.batch_size
        side = size or crop or len(read_jpeg(files.paths[0]))
        rng = np.random.default_rng([seed, rank])
        pipeline = make_pipeline(
            files,
            mean,
            std,
            partial(draw_changes, rng, chunk, side) if train else None,
            crop=crop,
            size=size,
            shard=shard,
            gpu=gpu,
            batch_size=chunk,
            num_threads=threads,
            device_id=torch.cuda.current_device() if gpu else None,
            seed=seed,
        )
        policy = LastBatchPolicy.FILL if train else LastBatchPolicy.PARTIAL
        try:
            self._chunks = DALIGenericIterator(
                [pipeline],
                ["images", "targets"],
                reader_name="Reader",
                auto_reset=True,
                last_batch_policy=policy,
            )
        except RuntimeError as error:  # it prepares the first batches at once
            raise _translate(error) from None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        left = self._length
        try:
            for (chunk,) in self._chunks:
                parts = (chunk["images"], chunk["targets"].flatten().long())
                for batch in zip(*(part.split(self.batch_size) for part in parts), strict=True):
                    if left:
                        yield batch
                    left = max(0, left - 1)
        except GeneratorExit:  # who stops early begins the next epoch anew
            while next(self._chunks, None):
                pass
            raise
        except RuntimeError as error:
            raise _translate(error) from None


def _translate(error: RuntimeError) -> CourseError:
    """DALI's report of many lines as one line that names the fix."""
    report = str(error).rpartition("encountered:")[2]
    lines = [line.strip() for line in report.splitlines() if line.strip()]
    return CourseError(f"DALI cannot read the images, write them again: {lines[0]}")
