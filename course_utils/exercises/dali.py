"""Checks of the exercises of lesson 11; none of them needs DALI."""

import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from numbers import Integral
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from course_utils.exercises.checking import checks_exercise, diagnose, fail, require
from course_utils.exercises.oracles import Batches

__all__ = ["check_plan_workers", "check_prefetch", "check_to_batches"]

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

END = object()  # stands for the end of a stream
# Batches of all kinds: some are false, some have no truth value, one is None.
ITEMS = ((np.ones(3), np.ones(3)), np.ones(4), None, 0, torch.ones(2), (), "end", 1)
ERROR_ITEMS = (1, ValueError("a batch"), 2)  # one is an exception that was not raised yet

NO_END = "next() waits for ever after {} of {} batches: is it told of exceptions and of the end?"
LEFT = "After close() a thread is left behind: tell it to stop, and free it if it waits for room."
LEFT_LAST = "close() leaves the thread behind if it waits to hand over the end or an exception."
TOO_EARLY = "A thread runs before the first batch is asked for."
RAISED = "Batch {} is itself an exception object: it is raised, and has to be yielded as any other."
OTHER_ERROR = "The batches raise {}, and {} comes out of the generator."
NO_CLOSE = "close() never returns: does it wait for a thread that waits for room?"

MIXED = "The pixels are mixed: reshape keeps their order in memory, permute moves axes."
NOT_DIVIDED = "The pixels are not divided by 255."
NOT_NORMALISED = "The images are not normalised."
STATISTICS = "pipeline.mean and pipeline.std have changed: make new arrays."
NOT_CONTIGUOUS = "The images are not contiguous: permute and transpose move no memory."
MEAN = np.array([0.5, 0.4, 0.3], dtype=np.float32)
STD = np.array([0.2, 0.3, 0.25], dtype=np.float32)


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


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether ``condition()`` becomes true in time.

    Counts its looks, 2 ms apart, instead of reading the clock: on a machine that stands still
    for a second the thread under test gets no time either.
    """
    interval_s = 0.002
    for _ in range(int(timeout_s / interval_s)):
        if condition():
            return True
        time.sleep(interval_s)
    return False


class _Source:
    """An iterable that notes which thread prepares its batches, and how far ahead.

    ``depth`` is how many batches may be prepared ahead; ``error`` is raised after the last batch.
    """

    def __init__(self, items: tuple, depth: int, error: Exception | None = None) -> None:
        self.items = items
        self.depth = depth
        self.error = error
        self.consumer: threading.Thread | None = None  # the thread that asks for the batches
        self.asked = 0  # batches that the consumer has asked for
        self.begun = 0  # batches whose preparation has begun
        self.most_ahead = 0  # the largest difference of the two
        self.by_consumer = False  # whether the consumer has prepared one itself
        self.hang_message = ""  # the sentence if the consumer never comes back from its call

    def __iter__(self) -> Iterator:
        # A generator refuses two threads at once: "generator already executing".
        for item in self.items:
            self.begun += 1
            self.most_ahead = max(self.most_ahead, self.begun - self.asked)
            if threading.current_thread() is self.consumer:
                self.by_consumer = True
            time.sleep(0.005)
            yield item
        # Once the end comes late: the consumer then already waits for a batch that never comes.
        if self.items is ITEMS and _wait_until(lambda: self.asked > len(ITEMS), 0.5):
            time.sleep(0.05)
        if self.error:
            raise self.error


def _take(stream: Iterator, source: _Source, number: int) -> None:
    """Take ``number`` batches, or all and the end; each in order, with ``depth`` begun ahead."""
    total = len(source.items)
    for asked, item in enumerate((*source.items, END)[:number], start=1):
        source.asked = asked
        source.hang_message = NO_END.format(asked - 1, total)
        try:
            found = next(stream, END)
        except Exception as error:
            require(error is not source.error or item is END, f"An error overtakes batch {asked}.")
            require("truth value" not in str(error), "Compare a batch by `is`, not by its values.")
            require(error is not item, RAISED.format(asked))
            if item is END and isinstance(error, type(source.error)):
                return  # the source's exception has come, where it is due
            if item is END and source.error:
                fail(OTHER_ERROR.format(type(source.error).__name__, type(error).__name__))
            raise
        require(found is not END or item is not None, "The stream ends at a batch that is None.")
        require(found is not END or item is END, f"Only {asked - 1} of {total} batches come.")
        require(item is not END or not source.error, "The exception of the source is lost.")
        by_other = not source.by_consumer
        require(by_other, "The batches are prepared by the thread that asks for them.")
        require(found is item, f"Batch {asked} is not the one that is due: keep all, in order.")
        _check_depth(source, asked)


def _check_depth(source: _Source, asked: int) -> None:
    """While batch ``asked`` is in use, ``depth`` more are begun, and no more than one beyond."""
    depth = source.depth
    due = min(len(source.items), asked + depth)
    begun = _wait_until(lambda: source.begun >= due, 1)
    require(begun, f"depth={depth}, batch {asked} in use: {source.begun - asked} begun ahead.")
    # One more may be prepared while the queue is full.
    beyond = _wait_until(lambda: source.most_ahead > depth + 1, 0.03)
    require(not beyond, f"depth={depth}, and more than {depth + 1} are begun ahead: hold back.")


def _watch(answer: Callable, source: _Source, number: int, left: str = LEFT) -> None:
    """`_take` and close, in a thread, as a wrong answer may hang.

    The thread is a daemon, and so are the threads that it starts: none outlives the process.
    ``left`` is the sentence if a thread is left behind.
    """
    before = set(threading.enumerate())
    errors: list[BaseException] = []

    def run() -> None:
        try:
            stream = answer(source, source.depth)
            _take(stream, source, number)
            source.hang_message = NO_CLOSE
            stream.close()
        except BaseException as error:
            errors.append(error)

    consumer = threading.Thread(target=run, daemon=True)
    source.consumer = consumer
    # A wrong answer's thread may die of an exception: the sentence says enough, print no traceback.
    with patch.object(threading, "excepthook", lambda _: None):
        consumer.start()
        ended = _wait_until(lambda: not consumer.is_alive(), 2)
        if errors:
            raise errors[0]
        require(ended, source.hang_message)
        none_left = _wait_until(lambda: set(threading.enumerate()) <= before, 1.5)
        require(none_left, left)
    stopped = source.begun <= source.asked + source.depth + 3
    require(stopped, "After close() the thread goes on.")


@checks_exercise()
def check_prefetch(answer: Callable) -> None:
    """``answer(batches, depth)``: a generator, and a thread that prepares ``depth`` ahead."""
    everything = 99  # more batches than there are, so the end is taken too
    broken = OSError("image 7 is broken")
    _watch(answer, _Source(ITEMS[:3], 4), everything)
    _watch(answer, _Source(ITEMS, 1), everything)
    _watch(answer, _Source(ITEMS, 3), everything)
    _watch(answer, _Source(ITEMS[:3], 4, broken), everything)
    # Closed before the first batch, in the middle, and when only the end is left to hand over.
    _watch(answer, _Source(ITEMS, 2), 0, TOO_EARLY)
    _watch(answer, _Source(ITEMS * 5, 3), 2)
    _watch(answer, _Source(ITEMS[:3], 1), 2, LEFT_LAST)
    _watch(answer, _Source(ITEMS[:3], 1, broken), 2, LEFT_LAST)
    _watch(answer, _Source(ERROR_ITEMS, 1), everything)


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
