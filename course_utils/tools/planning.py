"""What one ``course run`` was asked to do, and what of it an earlier run has already done."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from course_utils.image_sources import NAMED
from course_utils.profiles import Config
from course_utils.tools.lessons import ROOT, Lesson
from course_utils.weights import WEIGHTS

__all__ = ["Plan"]


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
        digest = hashlib.sha256()
        for cell in lesson.read().cells:
            digest.update(f"{cell.cell_type}\0{cell.source}\0".encode())
        package = ROOT / "course_utils"
        sources = [p for p in sorted(package.rglob("*.py")) if "tools" not in p.parts]
        weights = sorted(WEIGHTS.glob("*.safetensors"))
        for path in (*sources, *weights, ROOT / "requirements.lock"):
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
