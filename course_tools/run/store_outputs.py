"""Put the outputs of an execution into the lesson's notebook, lean, with their key."""

import base64
import io
from pathlib import Path

import nbformat
from PIL import Image

from course_tools.run.dependencies import describe_code, parse_cell
from course_tools.run.key import digest_outputs
from course_tools.run.lessons import Lesson
from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.results import LessonResult

__all__ = ["FOLDED", "store_outputs"]

LANGUAGE = ("name", "file_extension", "mimetype", "pygments_lexer")
# of a cell with the tag hide-input; the first is for JupyterLab, the second for Colab
FOLDED = {"jupyter": {"source_hidden": True}, "cellView": "form"}


def _shrink_png(encoded: str) -> str:
    """The same picture in 256 colours: less than half the bytes, and hardly a difference."""
    picture = Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB")
    shrunk = io.BytesIO()
    picture.quantize(256).save(shrunk, "png", optimize=True)
    return min(base64.b64encode(shrunk.getvalue()).decode() + "\n", encoded, key=len)


def store_outputs(lesson: Lesson, executed: Path, result: LessonResult) -> None:
    """Put the outputs of an execution into the lesson's notebook, without papermill's traces.

    Prose and metadata stay as they are in the notebook: they may have changed since. The key of
    ``result``, its time and its memory, and a digest of the outputs are written into the metadata.
    The code of cells with the tag ``hide-input`` is folded.

    Raises:
        CourseError: when it was executed with parameters of its own, or its code edited meanwhile.
    """
    ran = nbformat.read(executed, as_version=4)
    if any("injected-parameters" in cell.metadata.get("tags", []) for cell in ran.cells):
        raise CourseError(f"{lesson.name} ran with -p parameters: run it without to store it")
    notebook = lesson.read()
    sources, executions = _list_code(notebook), _list_code(ran)
    if _describe(sources) != _describe(executions):
        raise CourseError(f"{lesson.name} was edited while it ran: run it again to store it")
    for cell, execution in zip(sources, executions, strict=True):
        cell.outputs = execution.outputs
        cell.execution_count = execution.execution_count
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                output["data"]["image/png"] = _shrink_png(output["data"]["image/png"])
        if "hide-input" in cell.metadata.get("tags", []):
            cell.metadata.update(nbformat.from_dict(FOLDED))
    notebook.metadata.pop("jupytext", None)  # where the lesson was written as text
    language = ran.metadata["language_info"]
    notebook.metadata["kernelspec"] = ran.metadata["kernelspec"]
    notebook.metadata["language_info"] = {key: language[key] for key in LANGUAGE}
    notebook.metadata["course"] |= {
        "time_s": round(result.time_s),
        "peak_mb": round(result.peak_memory_bytes / 1e6),
        "key": result.key,
        "outputs": digest_outputs(notebook),
    }
    write_atomically(lesson.path, nbformat.writes(notebook) + "\n")


def _describe(cells: list[nbformat.NotebookNode]) -> list[object]:
    """What the cells do: comments and layout may have changed since."""
    return [describe_code(parse_cell(cell.source)) for cell in cells]


def _list_code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]
