"""Put an executed notebook back among the sources, with lean outputs."""

import base64
import io
from pathlib import Path

import nbformat
from PIL import Image

from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.results import LessonResult
from course_utils.tools.run.lessons import Lesson

__all__ = ["store_outputs"]

KEPT = ("kernelspec", "language_info")
LANGUAGE = ("name", "file_extension", "mimetype", "pygments_lexer")


def _shrink_png(encoded: str) -> str:
    """The same picture in 256 colours: less than half the bytes, and hardly a difference."""
    picture = Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB")
    shrunk = io.BytesIO()
    picture.quantize(256).save(shrunk, "png", optimize=True)
    return min(base64.b64encode(shrunk.getvalue()).decode() + "\n", encoded, key=len)


def store_outputs(lesson: Lesson, executed: Path, result: LessonResult) -> None:
    """Replace the lesson's notebook by its execution, without papermill's traces.

    The time and the memory of ``result`` are written into the notebook's metadata.

    Raises:
        CourseError: when it was executed with parameters of its own, or edited meanwhile.
    """
    notebook = nbformat.read(executed, as_version=4)
    if any("injected-parameters" in cell.metadata.get("tags", []) for cell in notebook.cells):
        raise CourseError(f"{lesson.name} ran with -p parameters: run it without to store it")
    source = lesson.read()
    if [cell.source for cell in notebook.cells] != [cell.source for cell in source.cells]:
        raise CourseError(f"{lesson.name} was edited while it ran: run it again to store it")
    notebook.metadata = {key: notebook.metadata[key] for key in KEPT}
    notebook.metadata["course"] = source.metadata["course"] | {
        "time_s": round(result.time_s),
        "peak_mb": round(result.peak_memory_bytes / 1e6),
    }
    language = notebook.metadata["language_info"]
    notebook.metadata["language_info"] = {key: language[key] for key in LANGUAGE}
    for cell in notebook.cells:
        for key in ("papermill", "execution"):
            cell.metadata.pop(key, None)
        if not cell.metadata.get("tags", True):
            del cell.metadata["tags"]
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output["data"]["image/png"] = _shrink_png(output["data"]["image/png"])
    write_atomically(lesson.path, nbformat.writes(notebook) + "\n")
