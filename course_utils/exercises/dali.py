"""Checks of the exercises of lesson 11; none of them needs DALI."""

import itertools
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from numbers import Integral
from unittest.mock import patch

import numpy as np
import torch

from course_utils.exercises.checking import checks_exercise, require

__all__ = ["check_plan_workers", "check_prefetch", "check_to_batches"]

# prepare_s, step_s, cores: divided without rounding, or far from a whole number
PLANS = ((0.25, 0.75, 8), (0.75, 0.25, 8), (0.55, 0.25, 8), (0.25, 0.25, 2), (0.5, 0.125, 5))
PLANS += ((3.0, 0.0625, 64), (0.5, 0.125, 4), (2.0, 0.125, 5))
END, ITEMS = object(), ((np.ones(3), np.ones(3)), np.ones(4), None, 0, torch.ones(2), (), "end", 1)
UNTOLD = "next() waits for ever after {} of {} batches: is it told of exceptions and of the end?"
LEFT = "After close() a thread is left behind: tell it to stop, and free it if it waits for room."
LEFT_LAST = "close() leaves the thread behind if it waits to hand over the end or an exception."
MIXED = "The pixels are mixed: reshape keeps their order in memory, permute moves axes."
MEAN, STD = np.float32([0.5, 0.4, 0.3]), np.float32([0.2, 0.3, 0.25])
# sentence to what becomes of the pixels; the first is right
PIXELS = {
    "": lambda x, mean, std: (x / 255 - mean) / std,
    "The pixels are not divided by 255.": lambda x, mean, std: (x - mean) / std,
    "The images are not normalised.": lambda x, mean, std: x / 255,
}


@checks_exercise
def check_plan_workers(answer: Callable) -> None:
    """``answer(prepare_s, step_s, cores) -> workers``, or a ValueError with the share waited."""
    for prepare_s, step_s, cores in PLANS:
        case, most = f"A batch takes {prepare_s} s, a step {step_s} s, {cores} cores", cores - 1
        right, share = math.ceil(prepare_s / step_s), 100 - 100 * most * step_s / prepare_s
        try:
            found = answer(prepare_s, step_s, cores)
        except ValueError as error:
            require(right > most, f"{case}: no ValueError, {right} of {most} workers are enough.")
            said = [float(number) for number in re.findall(r"(\d+(?:\.\d+)?) ?%", str(error))]
            require(said, "The message of the ValueError names no percentage, such as 25%.")
            near = any(abs(number - share) < 0.6 for number in said)
            require(near, f"{case}: {share:.0f}% of the time is waited, not {said[0]:g}%.")
            continue
        require(right <= most, f"{case}: {most} workers are too few, so raise ValueError.")
        require(isinstance(found, Integral), f"A number of workers is whole, not {found!r}.")
        require(found != 0, f"{case}: with 0 workers the main process prepares and trains in turn.")
        require(found >= right, f"{case}: training waits with {found}, {right} workers are needed.")
        require(found == right, f"{case}: {right} workers are enough, {found} are too many.")


def _wait(enough: Callable, seconds: float) -> bool:
    """Whether ``enough()`` comes true; counts looks, not time, as a machine may stand still."""
    return any(enough() or time.sleep(0.002) for _ in range(int(seconds / 0.002)))


class _Source:
    """An iterable that notes which thread prepares its batches, and how far ahead."""

    def __init__(self, items: tuple, depth: int, error: Exception | None = None) -> None:
        self.items, self.depth, self.error = items, depth, error
        self.begun, self.asked, self.most, self.by_main, self.doing = 0, 0, 0, False, ""

    def __iter__(self) -> Iterator:  # as a generator it refuses two threads at once
        for item in self.items:
            self.begun += 1
            self.most = max(self.most, self.begun - self.asked)
            self.by_main |= threading.current_thread() is self.consumer
            time.sleep(0.005)
            yield item
        if self.items is ITEMS and _wait(lambda: self.asked > len(ITEMS), 0.5):
            time.sleep(0.05)  # the consumer waits for a batch that never comes
        if self.error:
            raise self.error


def _take(stream: Iterator, source: _Source, number: int) -> None:
    """Take ``number`` batches, or all and the end; each in order, with ``depth`` begun ahead."""
    total, depth = len(source.items), source.depth
    for asked, item in enumerate((*source.items, END)[:number], start=1):
        source.asked, source.doing = asked, UNTOLD.format(asked - 1, total)
        try:
            found = next(stream, END)
        except Exception as error:
            require(error is not source.error or item is END, f"An error overtakes batch {asked}.")
            require("truth value" not in str(error), "Compare a batch by `is`, not by its values.")
            if item is END and isinstance(error, type(source.error)):
                return
            raise
        require(found is not END or item is not None, "The stream ends at a batch that is None.")
        require(found is not END or item is END, f"Only {asked - 1} of {total} batches come.")
        require(item is not END or not source.error, "The exception of the source is lost.")
        require(not source.by_main, "The batches are prepared by the thread that asks for them.")
        require(found is item, f"Batch {asked} is not the one that is due: keep all, in order.")
        begun = _wait(lambda: source.begun >= min(total, source.asked + depth), 1)
        require(begun, f"depth={depth}, batch {asked} in use: {source.begun - asked} begun ahead.")
        beyond = _wait(lambda: source.most > depth + 1, 0.03)
        require(not beyond, f"depth={depth}, and more than {depth + 1} are begun ahead: hold back.")


def _watch(answer: Callable, source: _Source, number: int, left: str = LEFT) -> None:
    """`_take` and close, in a thread as it may hang; a daemon, as what it starts then is too."""
    before, errors = set(threading.enumerate()), []

    def run() -> None:
        try:
            stream = answer(source, source.depth)
            _take(stream, source, number)
            source.doing = "close() never returns: does it wait for a thread that waits for room?"
            stream.close()
        except BaseException as error:
            errors.append(error)

    source.consumer = threading.Thread(target=run, daemon=True)
    with patch.object(threading, "excepthook", lambda _: None):  # of a wrong answer's thread
        source.consumer.start()
        ended = _wait(lambda: not source.consumer.is_alive(), 2)
        if errors:
            raise errors[0]
        require(ended, source.doing)
        require(_wait(lambda: set(threading.enumerate()) <= before, 1.5), left)
    require(source.begun <= source.asked + source.depth + 3, "After close() the thread goes on.")


@checks_exercise
def check_prefetch(answer: Callable) -> None:
    """``answer(batches, depth)``: a generator, and a thread that prepares ``depth`` ahead."""
    broken = OSError("image 7 is broken")
    for items, depth in ((ITEMS[:3], 4), (ITEMS, 1), (ITEMS, 3)):
        _watch(answer, _Source(items, depth), 99)
    _watch(answer, _Source(ITEMS[:3], 4, broken), 99)
    _watch(answer, _Source(ITEMS, 2), 0, "A thread runs before the first batch is asked for.")
    _watch(answer, _Source(ITEMS * 5, 3), 2)
    for error in (None, broken):
        _watch(answer, _Source(ITEMS[:3], 1, error), 2, LEFT_LAST)


class _Pipeline:
    """Each run writes over the same arrays; an epoch's last batch repeats its last image."""

    def __init__(self, lengths: list[int], size: int) -> None:
        draw, self.runs, self.delivered = np.random.default_rng(0), 0, []
        self.mean, self.std = MEAN.copy(), STD.copy()
        for length in lengths:
            images = draw.integers(256, size=(size, 5, 7, 3), dtype=np.uint8)
            numbers = np.arange(size).clip(max=length - 1)
            self.delivered.append((images[numbers], draw.permutation(99)[numbers, None]))
        self._buffers = [array.copy() for array in self.delivered[0]]

    def run(self) -> tuple[np.ndarray, np.ndarray]:
        for buffer, array in zip(self._buffers, self.delivered[self.runs], strict=True):
            buffer[:] = array
        self.runs += 1
        return tuple(self._buffers)


def _compare(batch: tuple, pipeline: _Pipeline, number: int, length: int) -> None:
    raw, labels, mean, std = map(torch.from_numpy, (*pipeline.delivered[number], MEAN, STD))
    right = {"images": (torch.float32, length, 3, 5, 7), "targets": (torch.int64, length)}
    for (name, kind), part in zip(right.items(), batch, strict=True):
        found = part.dtype, *part.shape
        require(found == kind, f"The {name} are {found}, not {kind}.")
    x, looks = raw[:length], []
    for said, f in PIXELS.items():
        early = f(x.reshape(-1, 3, 5, 7), mean.view(3, 1, 1), std.view(3, 1, 1))
        y = f(x, mean, std)
        looks += [(said, y.permute(0, 3, 1, 2)), (MIXED, y.reshape(-1, 3, 5, 7)), (MIXED, early)]
    names = [said for said, y in looks if torch.allclose(batch[0], y, 1e-4, 1e-4)]
    require("" in names, [*names, "The images are not (x / 255 - mean) / std of this run."][0])
    require(batch[0].is_contiguous(), "The images are not contiguous: permute moves no memory.")
    require(batch[1].equal(labels[:length, 0]), "The targets are not the labels of the images.")


@checks_exercise
def check_to_batches(answer: Callable) -> None:
    """``answer(pipeline, num_images, batch_size, train)``: batches of an epoch, and the next's."""
    for (total, size), train in itertools.product(((10, 4), (9, 4), (8, 4), (3, 4)), (False, True)):
        lengths = [min(size, total - start) for start in range(0, total, size)]
        pipeline, runs = _Pipeline(lengths * 3, size), len(lengths)
        due = total // size if train else runs
        case = f"train={train}, {total} images in batches of {size}"
        for first in (0, runs):
            kept = []
            for number, batch in enumerate(answer(pipeline, total, size, train)):
                require(number < due, f"{case}: {due} batches are due, and more come.")
                require(pipeline.runs <= first + number + 1, "A later run comes before the yield.")
                _compare(batch, pipeline, first + number, lengths[number])
                kept.append((*batch, *(part.clone() for part in batch)))
            require(len(kept) == due, f"{case}: {due} batches are due, {len(kept)} come.")
            made = pipeline.runs - first
            require(made == runs, f"{case}: an epoch of the pipeline has {runs} runs, not {made}.")
            for images, targets, *copies in kept:
                require(images.equal(copies[0]), "Images change with the next run: copy them.")
                require(targets.equal(copies[1]), "Targets change with the next run: copy them.")
