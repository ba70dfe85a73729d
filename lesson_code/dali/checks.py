"""Checks of the exercises of lesson 11; none of them needs DALI."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from numbers import Integral

import numpy as np
import torch

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.outputs import Output

__all__ = [
    "check_measure_quality",
    "check_plan_workers",
    "check_shuffle_stream",
    "check_to_batches",
]


@checks_exercise()
def check_measure_quality(answer: Callable) -> None:
    """``answer(config, data) -> (pixels, squeezed, low, high)`` over the same seeds."""
    judge_experiment(run_experiment(answer))


# ---- ★ Plan the workers.

# prepare_s, step_s, cores: divided without rounding, or far from a whole number
PLANS = (
    (0.25, 0.75, 8),
    (0.75, 0.25, 8),
    (0.55, 0.25, 8),
    (0.5, 0.125, 5),
    (0.5, 0.125, 4),
    (2.0, 0.125, 5),
)


@checks_exercise()
def check_plan_workers(answer: Callable) -> Iterator[Output]:
    """``answer(prepare_s, step_s, cores) -> workers``, or a ValueError with the share waited."""
    for prepare_s, step_s, cores in PLANS:
        case = f"A batch takes {prepare_s} s, a step {step_s} s, {cores} cores:"
        most = cores - 1  # one core is for the training itself
        try:
            found = answer(prepare_s, step_s, cores)
        except ValueError as error:
            yield Output(1, "no ValueError, the cores are enough.", case=case)
            # Of a step's prepare_s / most seconds all but step_s are waited.
            waited = 100 - 100 * most * step_s / prepare_s
            said = [float(number) for number in re.findall(r"(\d+(?:\.\d+)?) ?%", str(error))]
            require(said, "The message of the ValueError names no percentage, such as 25%.")
            near = any(abs(number - waited) < 0.6 for number in said)
            require(near, f"{case} {waited:.0f}% of the time is waited, not {said[0]:g}%.")
            continue
        yield Output(0, f"{most} workers are too few, so raise ValueError.", case=case)
        require(isinstance(found, Integral), f"A number of workers is whole, not {found!r}.")
        require(found != 0, f"{case} with 0 workers the main process prepares and trains in turn.")
        stall = found * step_s < prepare_s
        stalls = f"a data stall with {found}, {{right}} workers are needed."
        many = f"{found} workers are too many, {{right}} would do."
        yield Output(found, stalls if stall else many, case=case)


# ---- ★★ Shuffle a stream: random numbers may be drawn in any way that gives every order.


class _Stream:
    """The numbers 0 to ``length - 1``, one at a time; counts how many have been read."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.read = 0

    def __iter__(self) -> Iterator[int]:
        for number in range(self.length):
            self.read += 1
            yield number


@checks_exercise()
def check_shuffle_stream(answer: Callable) -> None:
    """``answer(items, buffer_size, rng)``: the items in an order that a buffer allows."""
    for length, buffer_size in ((20, 5), (3, 5), (0, 3), (6, 1), (12, 12)):
        _check_stream(answer, length, buffer_size)

    def shuffle(length: int, buffer_size: int, seed: int) -> tuple:
        return tuple(answer(range(length), buffer_size, np.random.default_rng(seed)))

    same = shuffle(20, 5, 1) == shuffle(20, 5, 1)
    require(same, "The same rng gives two orders: draw all numbers with the rng that is given.")
    other = len({shuffle(20, 5, seed) for seed in range(9)}) > 1
    require(other, "Every rng gives the same order: draw the places with the rng that is given.")
    firsts = Counter(shuffle(9, 4, seed)[0] for seed in range(300))
    for place in range(4):
        missing = f"Place {place} of the buffer is never drawn: rng.integers(n) gives 0 to n - 1."
        require(firsts[place], missing)
    near = all(abs(firsts[place] - 75) < 37.5 for place in range(4))  # 5 standard errors
    require(near, "The places of the buffer are not equally likely.")
    lasts = {shuffle(3, 5, seed) for seed in range(300)}
    require(
        len(lasts) == 6,  # all orders of 3 items
        "What is left in the buffer at the end comes in no random order: draw it at random too.",
    )


def _check_stream(answer: Callable, length: int, buffer_size: int) -> None:
    """Each item comes once, and none is read too early or too late."""
    case = f"{length} items, buffer_size={buffer_size}:"
    stream = _Stream(length)
    found: list = []
    for item in answer(stream, buffer_size, np.random.default_rng(0)):
        found.append(item)
        require(len(found) <= length, f"{case} more items come than there are.")
        number = "the first one" if len(found) == 1 else f"number {len(found)}"
        read = f"{case} {stream.read} items are read"
        # One item may be in hand, beside those in the buffer.
        early = stream.read > buffer_size + len(found)
        require(not early, f"{read} before {number} comes: hold at most buffer_size.")
        late = stream.read < min(length, buffer_size + len(found) - 1)
        require(
            not late,
            f"{read} when {number} comes, so the stream is shuffled in chunks: "
            "refill the buffer after each item.",
        )
    left = length - len(found)
    require(left == 0, f"{case} {left} never come: yield what is left in the buffer at the end.")
    require(set(found) == set(range(length)), f"{case} an item comes twice, or is none of them.")
    kept = buffer_size > 1 or found == list(range(length))
    require(kept, "A buffer of 1 cannot change the order.")


# ---- ★★★ The batches of a pipeline.

MEAN = np.array([0.5, 0.4, 0.3], dtype=np.float32)
STD = np.array([0.2, 0.3, 0.25], dtype=np.float32)


class _Pipeline:
    """Behaves as a DALI pipeline does, without DALI.

    Each run writes over the same arrays; ``delivered`` holds a copy of what it gives: images
    (N, H, W, C) and labels (N, 1). After the first ``lengths[run]`` of them the last is repeated.
    """

    def __init__(self, lengths: list[int], batch_size: int) -> None:
        rng = np.random.default_rng(0)
        self.runs = 0
        self.mean = MEAN.copy()
        self.std = STD.copy()
        self.delivered = []
        for length in lengths:
            images = rng.integers(256, size=(batch_size, 5, 7, 3), dtype=np.uint8)
            numbers = np.arange(batch_size).clip(max=length - 1)  # the last one is repeated
            labels = rng.permutation(99)[numbers, None]
            self.delivered.append((images[numbers], labels))
        self._arrays = tuple(np.empty_like(array) for array in self.delivered[0])

    def run(self) -> tuple[np.ndarray, ...]:
        for array, delivered in zip(self._arrays, self.delivered[self.runs], strict=True):
            array[:] = delivered
        self.runs += 1
        return self._arrays


@checks_exercise()
def check_to_batches(answer: Callable) -> Iterator[Output]:
    """``answer(pipeline, num_images, batch_size, train)``: batches of an epoch, and the next's."""
    sizes = ((10, 4), (9, 4), (8, 4), (3, 4))
    for (num_images, batch_size), train in itertools.product(sizes, (False, True)):
        lengths = [min(batch_size, num_images - i) for i in range(0, num_images, batch_size)]
        runs = len(lengths)  # of an epoch
        pipeline = _Pipeline(lengths * 3, batch_size)  # one epoch more than is asked for
        due = num_images // batch_size if train else runs  # in training a short batch is dropped
        case = f"train={train}, {num_images} images in batches of {batch_size}: {due} batches are"
        for first in (0, runs):  # the run with which the epoch begins
            kept: list[tuple] = []  # each batch, and a copy of it
            for number, batch in enumerate(answer(pipeline, num_images, batch_size, train)):
                require(number < due, f"{case} due, and more come.")
                in_time = pipeline.runs <= first + number + 1
                require(in_time, "A later run comes before the yield.")
                yield from _list_pixels(batch, pipeline, first + number, lengths[number])
                kept.append((*batch, *(part.clone() for part in batch)))
            require(len(kept) == due, f"{case} due, {len(kept)} come.")
            made = pipeline.runs - first
            require(made == runs, f"{case} due, but the pipeline has {runs} runs, not {made}.")
            # Later runs have written over the pipeline's arrays.
            for images, targets, old_images, old_targets in kept:
                require(images.equal(old_images), "Images change with the next run: copy them.")
                require(targets.equal(old_targets), "Targets change with the next run: copy them.")


def _list_pixels(batch: tuple, pipeline: _Pipeline, run: int, length: int) -> Iterator[Output]:
    """``batch`` is that of the run with this number, without the images that are repeated."""
    expected = {"images": (torch.float32, length, 3, 5, 7), "targets": (torch.int64, length)}
    for (name, kind), part in zip(expected.items(), batch, strict=True):
        found = (part.dtype, *part.shape)
        require(found == kind, f"The {name} are {found}, not {kind}.")
    kept = np.array_equal(pipeline.mean, MEAN) and np.array_equal(pipeline.std, STD)
    require(kept, "pipeline.mean and pipeline.std have changed: make new arrays.")
    images, targets = batch
    pixels, labels = pipeline.delivered[run]
    level, pixel = pixels[0, 4, 1, 0], images[0, 0, 4, 1].item()
    yield Output(
        pixel,
        f"In channel 0, row 4, column 1 of image 0 the level {level} becomes {pixel:.3f}, "
        "(x / 255 - mean) / std is {right}.",
        tolerance=1e-4,
    )
    weights = torch.arange(3.0 * 5 * 7).cos()  # (105,), all different
    yield Output(
        images.flatten(1) @ weights,  # (N,)
        "Some pixels are not (x / 255 - mean) / std, or stand at another place.",
        tolerance=1e-4,
    )
    contiguous = images.is_contiguous()
    require(contiguous, "The images are not contiguous: permute and transpose move no memory.")
    same = np.array_equal(targets, labels[:length, 0])
    require(same, "The targets are not the labels of the images.")
