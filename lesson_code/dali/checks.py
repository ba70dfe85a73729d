"""Checks of the exercises of lesson 11; none of them needs DALI."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from course_utils.checking.checking import Faults, checks_exercise, diagnose, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import Batches

__all__ = [
    "check_measure_quality",
    "check_plan_workers",
    "check_shuffle_stream",
    "check_to_batches",
]

# prepare_s, step_s, cores: divided without rounding, or far from a whole number
PLANS = (
    (0.25, 0.75, 8),
    (0.75, 0.25, 8),
    (0.55, 0.25, 8),
    (0.25, 0.25, 2),
    (0.5, 0.125, 5),
    (3.0, 0.0625, 64),
    (0.5, 0.125, 4),
    (2.0, 0.125, 5),
)

MIXED = "The pixels are mixed: reshape keeps their order in memory, permute moves axes."
NOT_DIVIDED = "The pixels are not divided by 255."
NOT_NORMALISED = "The images are not normalised."
STATISTICS = "pipeline.mean and pipeline.std have changed: make new arrays."
NOT_CONTIGUOUS = "The images are not contiguous: permute and transpose move no memory."
MEAN = np.array([0.5, 0.4, 0.3], dtype=np.float32)
STD = np.array([0.2, 0.3, 0.25], dtype=np.float32)


@checks_exercise()
def check_measure_quality(answer: Callable) -> None:
    """``answer(config, data) -> (pixels, squeezed, low, high)`` over the same seeds."""
    judge_experiment(run_experiment(answer))


@checks_exercise()
def check_plan_workers(answer: Callable) -> None:
    """``answer(prepare_s, step_s, cores) -> workers``, or a ValueError with the share waited."""
    for prepare_s, step_s, cores in PLANS:
        case = f"A batch takes {prepare_s} s, a step {step_s} s, {cores} cores"
        most = cores - 1  # one core is for the training itself
        right = math.ceil(prepare_s / step_s)
        try:
            found = answer(prepare_s, step_s, cores)
        except ValueError as error:
            need = f"{right} of {_count_workers(most)} {_are(right)} enough"
            require(right > most, f"{case}: no ValueError, {need}.")
            # Of a step's prepare_s / most seconds all but step_s are waited.
            waited_percent = 100 - 100 * most * step_s / prepare_s
            _check_message(case, str(error), waited_percent)
            continue
        few = f"{_count_workers(most)} {_are(most)} too few"
        require(right <= most, f"{case}: {few}, so raise ValueError.")
        require(isinstance(found, Integral), f"A number of workers is whole, not {found!r}.")
        require(found != 0, f"{case}: with 0 workers the main process prepares and trains in turn.")
        enough = f"{_count_workers(right)} {_are(right)}"
        require(found >= right, f"{case}: a data stall with {found}, {enough} needed.")
        require(found == right, f"{case}: {enough} enough, {found} are too many.")


def _count_workers(number: int) -> str:
    return "1 worker" if number == 1 else f"{number} workers"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _check_message(case: str, message: str, waited_percent: float) -> None:
    """One of the percentages in the message must be the right one."""
    percentages = [float(number) for number in re.findall(r"(\d+(?:\.\d+)?) ?%", message)]
    require(percentages, "The message of the ValueError names no percentage, such as 25%.")
    near = any(abs(number - waited_percent) < 0.6 for number in percentages)
    wrong = f"{waited_percent:.0f}% of the time is waited, not {percentages[0]:g}%."
    require(near, f"{case}: {wrong}")


class _Stream:
    """The numbers 0 to ``length - 1``, one at a time; counts how many have been read."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.read = 0

    def __iter__(self) -> Iterator[int]:
        for number in range(self.length):
            self.read += 1
            yield number


def _drain(rng: np.random.Generator, buffer: list) -> Iterable:
    return (buffer[place] for place in rng.permutation(len(buffer)))


def _shuffle(
    items: Iterable,
    buffer_size: int,
    rng: np.random.Generator,
    draw: Callable = np.random.Generator.integers,
    drain: Callable = _drain,
) -> Iterator:
    """The oracle; ``draw(rng, n)`` chooses a place, ``drain(rng, buffer)`` is what comes last."""
    stream = iter(items)
    held = list(itertools.islice(stream, buffer_size))
    for newest in stream:
        place = draw(rng, buffer_size)
        yield held[place]
        held[place] = newest
    yield from drain(rng, held)


def _shuffle_chunks(items: Iterable, buffer_size: int, rng: np.random.Generator) -> Iterator:
    chunk: list = []
    for item in items:
        if len(chunk) == buffer_size:
            yield from _drain(rng, chunk)
            chunk = []
        chunk.append(item)
    yield from _drain(rng, chunk)


STREAM_FAULTS: Faults = (
    (
        "so the stream is shuffled in chunks: refill the buffer after each item.",
        _shuffle_chunks,
    ),
    (
        "before the first one comes: hold at most buffer_size.",
        lambda items, buffer_size, rng: _drain(rng, list(items)),
    ),
    (
        "never come: yield what is left in the buffer at the end.",
        partial(_shuffle, drain=lambda rng, buffer: ()),
    ),
    (
        "What is left in the buffer at the end comes in no random order: draw it at random too.",
        partial(_shuffle, drain=lambda rng, buffer: buffer),
    ),
    (
        "The same rng gives two orders: draw all numbers with the rng that is given.",
        partial(_shuffle, draw=lambda rng, n: np.random.randint(n)),
    ),
    (
        "Every rng gives the same order: draw the places with the rng that is given.",
        lambda items, buffer_size, rng: _shuffle(items, buffer_size, np.random.default_rng(0)),
    ),
    (
        "Place 3 of the buffer is never drawn: rng.integers(n) gives 0 to n - 1.",
        partial(_shuffle, draw=lambda rng, n: rng.integers(max(1, n - 1))),
    ),
    (
        "Place 1 of the buffer is never drawn: rng.integers(n) gives 0 to n - 1.",
        partial(_shuffle, draw=lambda rng, n: 0),
    ),
    (
        "The places of the buffer are not equally likely.",
        partial(_shuffle, draw=lambda rng, n: min(rng.integers(n), rng.integers(n))),
    ),
)
STREAMS = ((20, 5), (3, 5), (0, 3), (6, 1), (12, 12))  # items, buffer_size
REPEATS = 300  # streams whose first item is counted


@checks_exercise(faults=STREAM_FAULTS)
def check_shuffle_stream(answer: Callable) -> None:
    """``answer(items, buffer_size, rng)``: the items in an order that a buffer allows."""
    for length, buffer_size in STREAMS:
        _check_stream(answer, length, buffer_size)

    def shuffle(length: int, buffer_size: int, seed: int) -> tuple:
        return tuple(answer(range(length), buffer_size, np.random.default_rng(seed)))

    same = shuffle(20, 5, 1) == shuffle(20, 5, 1)
    require(same, "The same rng gives two orders: draw all numbers with the rng that is given.")
    orders = {shuffle(20, 5, seed) for seed in range(9)}
    other = len(orders) > 1
    require(other, "Every rng gives the same order: draw the places with the rng that is given.")
    firsts = Counter(shuffle(9, 4, seed)[0] for seed in range(REPEATS))
    for place in range(4):
        missing = f"Place {place} of the buffer is never drawn: rng.integers(n) gives 0 to n - 1."
        require(firsts[place], missing)
    even = REPEATS / 4
    near = all(abs(firsts[place] - even) < 0.5 * even for place in range(4))  # 5 standard errors
    require(near, "The places of the buffer are not equally likely.")
    lasts = {shuffle(3, 5, seed) for seed in range(REPEATS)}
    require(
        len(lasts) == math.factorial(3),
        "What is left in the buffer at the end comes in no random order: draw it at random too.",
    )


def _check_stream(answer: Callable, length: int, buffer_size: int) -> None:
    """Each item comes once, and none is read too early or too late."""
    case = f"{length} items, buffer_size={buffer_size}"
    stream = _Stream(length)
    found: list = []
    for item in answer(stream, buffer_size, np.random.default_rng(0)):
        found.append(item)
        require(len(found) <= length, f"{case}: more items come than there are.")
        # One item may be in hand, beside those in the buffer.
        early = stream.read - buffer_size - len(found) <= 0
        read = f"{case}: {stream.read} items are read"
        require(
            early or len(found) > 1, f"{read} before the first one comes: hold at most buffer_size."
        )
        require(early, f"{read} before number {len(found)} comes: hold at most buffer_size.")
        late = stream.read < min(length, buffer_size + len(found) - 1)
        require(
            not late,
            f"{read} when number {len(found)} comes, so the stream is shuffled in chunks: "
            "refill the buffer after each item.",
        )
    missing = length - len(set(found))
    require(
        len(found) == length or not missing,
        f"{case}: {missing} never come: yield what is left in the buffer at the end.",
    )
    require(set(found) == set(range(length)), f"{case}: an item comes twice, or is none of them.")
    kept = buffer_size > 1 or found == list(range(length))
    require(kept, "A buffer of 1 cannot change the order.")


class _Pipeline:
    """Behaves as a DALI pipeline does, without DALI.

    Each run writes over the same arrays; an epoch's last batch repeats its last image until it is
    full. ``delivered`` holds a copy of what each run gives: images (N, H, W, C) and labels (N, 1).
    """

    def __init__(self, lengths: list[int], batch_size: int) -> None:
        """``lengths``: how many images each run has that are not repeated."""
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
        images, labels = self.delivered[0]
        self._images = images.copy()
        self._labels = labels.copy()

    def run(self) -> tuple[np.ndarray, np.ndarray]:
        images, labels = self.delivered[self.runs]
        self._images[:] = images
        self._labels[:] = labels
        self.runs += 1
        return self._images, self._labels


def _to_images(pixels: Tensor) -> Tensor:
    return pixels.permute(0, 3, 1, 2).contiguous()  # (N, H, W, C) -> (N, C, H, W)


def _mix(pixels: Tensor) -> Tensor:
    """A fault: (N, H, W, C) -> (N, C, H, W), and the shape alone is right."""
    n, height, width, channels = pixels.shape
    return pixels.reshape(n, channels, height, width)


def _normalise(pixels: Tensor, scale: float = 255) -> Tensor:
    """``pixels`` (N, H, W, C)."""
    return (pixels / scale - torch.from_numpy(MEAN)) / torch.from_numpy(STD)


def _normalise_channels_first(pixels: Tensor, scale: float = 255) -> Tensor:
    """``pixels`` (N, C, H, W)."""
    return _normalise(pixels.permute(0, 2, 3, 1), scale).permute(0, 3, 1, 2)


# What a wrong answer makes of uint8 pixels (N, H, W, C), and why.
PIXEL_FAULTS: Sequence[tuple[str, Callable[[Tensor], Tensor]]] = (
    (MIXED, lambda pixels: _mix(_normalise(pixels))),
    (MIXED, lambda pixels: _normalise_channels_first(_mix(pixels))),
    (NOT_DIVIDED, lambda pixels: _to_images(_normalise(pixels, scale=1))),
    (MIXED, lambda pixels: _mix(_normalise(pixels, scale=1))),
    (MIXED, lambda pixels: _normalise_channels_first(_mix(pixels), scale=1)),
    (NOT_NORMALISED, lambda pixels: _to_images(pixels / 255)),
    (MIXED, lambda pixels: _mix(pixels / 255)),
)


def _to_batches(
    pipeline: _Pipeline,
    num_images: int,
    batch_size: int,
    train: bool,
    convert: Callable[[Tensor], Tensor],
) -> Iterator[tuple[Tensor, Tensor]]:
    """An answer that is wrong only in what ``convert`` makes of the pixels."""
    waiting = num_images
    while waiting > 0:
        images, labels = pipeline.run()
        if waiting >= batch_size or not train:
            pixels = torch.tensor(images[:waiting])
            yield convert(pixels), torch.tensor(labels[:waiting, 0])
        waiting -= batch_size


def _compare_pixels(images: Tensor, pixels: Tensor) -> str:
    """The sentence for ``images`` (N, C, H, W) that are wrong in no known way, with one number.

    ``pixels`` (N, H, W, C) are those of the run.
    """
    right = _to_images(_normalise(pixels))
    place = divmod(int((images - right).abs().nan_to_num(torch.inf).argmax()), right[0].numel())
    number, (channel, rest) = place[0], divmod(place[1], right[0, 0].numel())
    row, column = divmod(rest, right.shape[-1])
    found, due = (values[number, channel, row, column].item() for values in (images, right))
    level = pixels[number, row, column, channel].item()
    where = f"In channel {channel}, row {row}, column {column} of image {number}"
    return f"{where} the level {level} becomes {found:.3f}, (x / 255 - mean) / std is {due:.3f}."


def _check_batch(batch: tuple, pipeline: _Pipeline, run: int, length: int) -> None:
    """``batch`` is that of the run with this number, without the images that are repeated."""
    expected = {"images": (torch.float32, length, 3, 5, 7), "targets": (torch.int64, length)}
    for (name, kind), part in zip(expected.items(), batch, strict=True):
        found = (part.dtype, *part.shape)
        require(found == kind, f"The {name} are {found}, not {kind}.")
    kept = np.array_equal(pipeline.mean, MEAN) and np.array_equal(pipeline.std, STD)
    require(kept, STATISTICS)
    images, targets = batch
    raw, labels = (torch.from_numpy(array) for array in pipeline.delivered[run])
    diagnose(
        images,
        lambda convert: convert(raw[:length]),
        lambda pixels: _to_images(_normalise(pixels)),
        PIXEL_FAULTS,
        _compare_pixels(images, raw[:length]),
        tolerance=1e-4,
    )
    require(images.is_contiguous(), NOT_CONTIGUOUS)
    require(targets.equal(labels[:length, 0]), "The targets are not the labels of the images.")


@checks_exercise(
    faults=[(why, partial(_to_batches, convert=convert)) for why, convert in PIXEL_FAULTS]
)
def check_to_batches(answer: Callable) -> None:
    """``answer(pipeline, num_images, batch_size, train)``: batches of an epoch, and the next's."""
    for num_images, batch_size in ((10, 4), (9, 4), (8, 4), (3, 4)):
        for train in (False, True):
            _check_two_epochs(answer, num_images, batch_size, train)


def _check_two_epochs(answer: Callable, num_images: int, batch_size: int, train: bool) -> None:
    lengths = [min(batch_size, num_images - i) for i in range(0, num_images, batch_size)]
    runs = len(lengths)  # of an epoch
    pipeline = _Pipeline(lengths * 3, batch_size)  # one epoch more than is asked for
    due = num_images // batch_size if train else runs  # in training a short batch is dropped
    case = f"train={train}, {num_images} images in batches of {batch_size}"
    for first in (0, runs):  # the run with which the epoch begins
        batches: Batches = []
        copies: Batches = []
        for number, batch in enumerate(answer(pipeline, num_images, batch_size, train)):
            require(number < due, f"{case}: {due} batches are due, and more come.")
            in_time = pipeline.runs <= first + number + 1
            require(in_time, "A later run comes before the yield.")
            _check_batch(batch, pipeline, first + number, lengths[number])
            images, targets = batch
            batches.append((images, targets))
            copies.append((images.clone(), targets.clone()))
        require(len(batches) == due, f"{case}: {due} batches are due, {len(batches)} come.")
        made = pipeline.runs - first
        require(made == runs, f"{case}: an epoch of the pipeline has {runs} runs, not {made}.")
        # Later runs have written over the pipeline's arrays, so a batch without a copy has changed.
        for (images, targets), (old_images, old_targets) in zip(batches, copies, strict=True):
            require(images.equal(old_images), "Images change with the next run: copy them.")
            require(targets.equal(old_targets), "Targets change with the next run: copy them.")
