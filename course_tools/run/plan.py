"""What one ``course run`` was asked to do, and which lessons are already finished."""

import ast
import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from course_tools.run.key import NAMED_DATA, digest_file, lesson_key
from course_tools.run.lessons import Lesson
from course_utils.config import PROFILES, Config
from course_utils.errors import CourseError
from course_utils.results import LessonResult

__all__ = ["Plan", "parse_parameters"]

LONGEST_VALUE = 1000  # characters of a parameter on the command line
OPTIONS = {"PROFILE": "--profile", "DATASET": "--dataset", "FIRST_SEED": "--first-seed"}


def parse_parameters(assignments: Sequence[str]) -> dict:
    """Names and values for the parameters cell, from texts like ``NAME=VALUE``.

    Raises:
        CourseError: another form; a parameter that has an option of its own.
    """
    parameters = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise CourseError(f"-p {text}: write it as NAME=VALUE")
        if name in OPTIONS:  # course.json says what they were
            raise CourseError(f"-p {name}: say it with {OPTIONS[name]}")
        if len(value) > LONGEST_VALUE:
            raise CourseError(f"-p {name}: give a value of at most {LONGEST_VALUE} characters")
        parameters[name] = _parse_value(name, value)
    return parameters


def _parse_value(name: str, text: str) -> object:
    """A number, a string, a list … as Python writes it; anything else is a string of its own."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # the last two: nested deeply
        return text  # a word needs no quotes
    if not _can_be_written(value):
        raise CourseError(f"-p {name}: give a number, a string, a list or a dictionary")
    return value


def _can_be_written(value: object) -> bool:
    """Whether papermill writes ``value`` into a cell as it is; a set would become a string."""
    if isinstance(value, list | tuple):
        return all(map(_can_be_written, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and _can_be_written([*value.values()])
    return value is None or isinstance(value, bool | int | float | str)


def _name_data(dataset: str) -> str:
    """A data set in the name of a folder; two folders of images with one name are told apart."""
    if dataset in NAMED_DATA:
        return dataset
    digest = hashlib.sha256(os.fsencode(dataset)).hexdigest()
    return f"{Path(dataset).name[:40]}-{digest[:6]}"


@dataclass(frozen=True)
class Plan:
    """What one ``course run`` was asked to do."""

    config: Config  # decides profile, data set and first seed
    build: Path
    time_limit_s: float
    force: bool = False
    parameters: dict = field(default_factory=dict)
    stop_after_s: float = math.inf  # no lesson is started later than this
    jobs: int = 1  # so many lessons that rest on no times are executed side by side

    @property
    def is_on_default_data(self) -> bool:
        """Whether lessons run on the profile's data set; in `quick` their claims are about it."""
        return self.config.dataset == PROFILES[self.config.profile].dataset

    @property
    def folder(self) -> Path:
        """Where all of this run lies: one folder for each profile, data set and first seed.

        So a run on somebody's own images leaves that of the course in ``build/quick`` alone.
        """
        parts = [self.config.profile]
        if not self.is_on_default_data:
            parts.append(_name_data(self.config.dataset))
        if self.config.first_seed:
            parts.append(f"seed{self.config.first_seed}")
        return self.build / "-".join(parts)

    def key(self, lesson: Lesson) -> str:
        """Changes whenever the lesson would have to be executed again."""
        return lesson_key(lesson.read(), self.config, self.parameters)

    def output_path(self, lesson: Lesson) -> Path:
        return self.folder / lesson.path.name

    def digest_notebook(self, lesson: Lesson) -> str:
        """A digest of the lesson's executed notebook; empty if there is none."""
        path = self.output_path(lesson)
        return digest_file(path) if path.is_file() else ""

    def is_finished(self, lesson: Lesson, result: LessonResult | None, notebook: str) -> bool:
        """Whether ``result``, of an earlier run, is still that of the lesson as it is now.

        ``notebook`` is what `digest_notebook` was after that run: a notebook that is damaged or
        gone since is made again.
        """
        if result is None or not notebook or self.digest_notebook(lesson) != notebook:
            return False
        return result.key == self.key(lesson)
