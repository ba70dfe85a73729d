"""What one ``course run`` was asked to do, and what of it an earlier run has already done."""

import ast
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from course_utils.config import Config
from course_utils.data.photos import PHOTOS
from course_utils.data.sources import NAMED
from course_utils.errors import CourseError
from course_utils.files import ROOT
from course_utils.models.backbone import WEIGHTS
from course_utils.results import RESULTS
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

    @property
    def folder(self) -> Path:
        return self.build / self.config.profile

    def key(self, lesson: Lesson) -> str:
        """Changes whenever the lesson would have to be executed again."""
        cells = lesson.read().cells
        text = "".join(f"{cell.cell_type}\0{cell.source}\0" for cell in cells)
        digest = hashlib.sha256(text.encode())
        reads_results = "course_utils.results" in text
        results = sorted(RESULTS.glob("*.json")) if reads_results else []
        package = ROOT / "course_utils"
        sources = [p for p in sorted(package.rglob("*.py")) if "tools" not in p.parts]
        weights = sorted(WEIGHTS.glob("*.safetensors"))
        photos = sorted(PHOTOS.glob("*.json"))  # it has the checksum of every sheet
        for path in (*sources, *weights, *photos, *results, ROOT / "requirements.lock"):
            digest.update(path.read_bytes())
        config = self.config
        asked = (config.profile, config.dataset, config.first_seed, sorted(self.parameters.items()))
        digest.update(repr(asked).encode())
        own_images = [] if config.dataset in NAMED else Path(config.dataset).rglob("*")
        for path in sorted(own_images):
            digest.update(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}".encode())
        return digest.hexdigest()

    def output_path(self, lesson: Lesson) -> Path:
        return self.folder / lesson.path.name

    def state_path(self, lesson: Lesson) -> Path:
        return self.folder / "state" / f"{lesson.name}.json"

    def load_state(self, lesson: Lesson) -> dict | None:
        """The entry of an earlier run of the unchanged lesson that passed, or None."""
        if not self.output_path(lesson).exists():
            return None
        try:
            state = json.loads(self.state_path(lesson).read_text(encoding="utf-8"))
            return dict(state["entry"]) if state["key"] == self.key(lesson) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None
