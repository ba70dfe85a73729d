"""What one ``course run`` was asked to do, and which lessons are already finished."""

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from course_utils.config import PROFILES, Config, load_config
from course_utils.errors import CourseError
from course_utils.results import LessonResult
from course_utils.tools.run.key import lesson_key
from course_utils.tools.run.lessons import Lesson

__all__ = ["Plan", "parse_parameters"]

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
        try:
            parameters[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parameters[name] = value  # a word needs no quotes
    return parameters


@dataclass(frozen=True)
class Plan:
    """What one ``course run`` was asked to do."""

    config: Config  # decides profile, data set and first seed
    build: Path
    time_limit_s: float
    force: bool = False
    parameters: dict = field(default_factory=dict)
    dataset_chosen: bool = False  # by a person; else every lesson runs on its own data set
    stop_after_s: float = math.inf  # no lesson is started later than this

    def config_of(self, lesson: Lesson) -> Config:
        """The settings of one lesson: they differ in the data set, if nobody chose one."""
        default = PROFILES[self.config.profile].dataset
        if self.dataset_chosen or self.config.dataset != default or default == "cifar10":
            return self.config
        return load_config(
            self.config.profile, dataset=lesson.dataset, first_seed=self.config.first_seed
        )

    def is_on_own_data(self, lesson: Lesson) -> bool:
        """Whether the lesson runs on the data set that its text and its claims are about."""
        return self.config_of(lesson).dataset == lesson.dataset

    @property
    def folder(self) -> Path:
        return self.build / self.config.profile

    def key(self, lesson: Lesson) -> str:
        """Changes whenever the lesson would have to be executed again."""
        return lesson_key(lesson.read(), self.config_of(lesson), self.parameters)

    def output_path(self, lesson: Lesson) -> Path:
        return self.folder / lesson.path.name

    def is_finished(self, lesson: Lesson, result: LessonResult | None) -> bool:
        """Whether ``result``, of an earlier run, is still that of the lesson as it is now."""
        if result is None or not self.output_path(lesson).exists():
            return False
        return result.key == self.key(lesson)
