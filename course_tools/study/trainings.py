"""The trainings of a study: what identifies each one, and how it is run."""

import hashlib
import inspect
import json
import math
import textwrap
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path

import torch

from course_tools.study.declare import Study, load_study
from course_utils.config import Config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.errors import CourseError
from course_utils.measure.provenance import describe_value
from course_utils.results import STUDIES
from course_utils.study_results import Training, TrainingResult
from course_utils.training.fit import fit

__all__ = ["list_trainings", "make_key", "train"]

DIGITS = 16  # of a key: 64 bits
LESSONS = "lesson_code."
# PyTorch has one number of threads for a process, and a worker of Dask may train in several
_ONE_AT_A_TIME = threading.Lock()


def _list_sources(value: object) -> Iterator[str]:
    """The code of functions and classes of lessons in arguments of `fit`, however deep."""
    if isinstance(value, partial):
        value = (value.func, value.args, value.keywords)
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _list_sources(item)
        return
    named = value if isinstance(value, type) or inspect.isroutine(value) else type(value)
    if named.__module__.startswith(LESSONS):
        yield textwrap.dedent(inspect.getsource(named))


def make_key(study: Study, regime: str, variant: str, trial: str) -> str:
    """A digest of what a training is declared to be: it changes when the declaration does.

    That is: the config, how many examples, the arguments of `fit`, and the code of those of them
    that a lesson defines. A change of the course's own package is not in it:
    ``course study --check`` trains again and compares.
    """
    declared = study.regimes[regime]
    options = declared.variants[variant][trial]
    content = [
        asdict(declared.config),
        declared.few,
        describe_value(dict(options)),
        list(_list_sources(options)),
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:DIGITS]


def list_trainings(name: str, study: Study) -> list[Training]:
    """Everything that may be trained, in the order of the declaration.

    Every trial at every search seed, if its variant has a choice, and at every reported seed.
    """
    return [
        Training(name, regime, variant, trial, seed, make_key(study, regime, variant, trial))
        for regime, declared in study.regimes.items()
        for variant, trials in declared.variants.items()
        for trial in trials
        for seed in (*(study.search_seeds if len(trials) > 1 else ()), *study.seeds)
    ]


@cache  # a process trains many times on the same data
def _load(config: Config, few: int | None) -> ImageData:
    data = load_data(config)
    return data if few is None else data.take_train(few)


def train(training: Training, folder: Path = STUDIES) -> TrainingResult:
    """Run a training with one thread.

    Args:
        training: names in the study that is declared below ``folder``.
        folder: of the folders of lessons.

    Raises:
        CourseError: here the study is declared differently than where the training comes from,
            such as in an older copy of the course on another machine.
    """
    study = load_study(training.study, folder)
    regime = study.regimes[training.regime]
    options = regime.variants[training.variant][training.trial]
    if make_key(study, training.regime, training.variant, training.trial) != training.key:
        raise CourseError(
            f"the study {training.study} has changed since it was begun, or is another one on the "
            f"machine of a worker: run `course study {training.study}` again"
        )
    with _ONE_AT_A_TIME:
        data = _load(regime.config, regime.few)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # the numbers must not depend on how many run side by side
        try:
            run = fit(regime.config, data, seed=training.seed, save=False, **options)
        finally:
            torch.set_num_threads(threads)
    return TrainingResult(
        **asdict(training),
        metrics={
            name: round(value, 6) if math.isfinite(value) else None  # JSON has no NaN
            for name, value in run.metrics.items()
        },
        trained_parameters=run.trainable_parameters,
        saved_bytes=run.saved_bytes,
        seconds=round(run.time_s, 2),
    )
