"""Toy lessons with all that the tools read in a lesson, and what a student answers in them.

`write_course` writes three: 00_start_here has the table of problems, 01_numbers a section of each
kind and two exercises, 02_scale the recipe of `tests.lessons.cards`. Nothing in them needs PyTorch.
"""

from pathlib import Path

import nbformat

from course_tools.run.lessons import Lesson, find_lessons
from course_utils.claims import CLAIM_MIME
from tests.lessons.cards import TOY_LIST, write_toy_lesson

IMPORT = "from course_utils.checking import require"
GOOD = {"double": "def double(x):\n    return 2 * x", "triple": "def triple(x):\n    return 3 * x"}
CHECKS = {
    "double": f"{IMPORT}\nrequire(double(2) == 4, 'Twice 2 is 4.')",
    "triple": f"{IMPORT}\nrequire(triple(2) == 6, 'Three times 2 is 6.')",
}
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJg"
    "gg=="
)
FIGURE = nbformat.v4.new_output("display_data", {"image/png": PIXEL})
TABLE = nbformat.v4.new_output(
    "execute_result", {"text/html": "<table><tr><td>1</td></tr></table>"}
)
PRINT = nbformat.v4.new_output("stream", text="seen\n")
CLAIM = {"text": "twice two is four", "kind": "identity", "holds": True, "value": 4.0}
GLOSSARY = "# Glossary\n\n### Toy\n\nA small thing. Lessons: [01](01_numbers.ipynb)\n"
START = """\
## What is my problem?

| symptom | first | lesson |
|---|---|---|
| too small | measure | [01](01_numbers.ipynb#Idea) |"""
QUESTION = """\
## Question

Which [toy](glossary.md#Toy) is largest?

<details><summary>A. the first</summary>Told later.</details>"""
IDEA = "## Idea\n\nA number is doubled, $2x$: see [the start](00_start_here.ipynb)."
HINT = "<details><summary>Hint</summary>Multiply.</details>"
ANSWER = "<details><summary>Worked answer</summary>Add it to itself.</details>"
NOTE = "<details><summary>For the teacher</summary>\n\n*Ask:* why?\n\n</details>"


def make_text(name: str, source: str, slide_type: str = "-") -> nbformat.NotebookNode:
    about = {"slideshow": {"slide_type": slide_type}}
    return nbformat.v4.new_markdown_cell(source, id=name, metadata=about)


def make_code(source: str, *outputs: dict, **about) -> nbformat.NotebookNode:
    """A code cell; ``about``: its metadata, and ``id``."""
    name = {"id": about.pop("id")} if "id" in about else {}
    cell = nbformat.v4.new_code_cell(source, metadata=about, **name)
    cell.outputs = [nbformat.from_dict(output) for output in outputs]
    return cell


def make_note(text: str) -> nbformat.NotebookNode:
    """What is for the teacher alone."""
    return make_text("note", NOTE.replace("*Ask:* why?", text), "notes")


def make_answer(name: str, source: str, points: int = 1) -> list[nbformat.NotebookNode]:
    """The cell of a solution, and that of its check."""
    head, _, body = source.partition("\n")
    solution = f"{head}\n    ### BEGIN SOLUTION\n{body}\n    ### END SOLUTION"
    about = {"schema_version": 3, "locked": False, "task": False}
    answer = about | {"grade_id": name, "grade": False, "solution": True}
    check = about | {"grade_id": f"check_{name}", "grade": True, "solution": False}
    check |= {"points": points, "locked": True}
    return [
        make_code(solution, id=name, nbgrader=answer),
        make_code(CHECKS.get(name, ""), id=f"check-{name}", nbgrader=check),
    ]


def _make_exercises() -> list[nbformat.NotebookNode]:
    cells = [make_text("exercises", "## Exercises\n\nDo one.")]
    for points, (name, source) in enumerate(GOOD.items(), 1):
        task = f"### {'★' * points} Exercise {points}: {name} ({5 * points} minutes)"
        cells.append(make_text(f"task-{name}", f"{task}\n\nWrite `{name}`.\n\n{HINT}"))
        cells += [*make_answer(name, source, points), make_text(f"worked-{name}", ANSWER)]
    return cells


def make_numbers() -> list[nbformat.NotebookNode]:
    """The cells of 01_numbers."""
    claim = nbformat.v4.new_output("display_data", {CLAIM_MIME: CLAIM, "text/plain": "holds"})
    title = "A small figure that says nothing"
    return [
        make_text("title", "# 01 · The numbers\n\nWhat it is about.", "slide"),
        make_text("question", QUESTION, "slide"),
        make_note("*Ask:* why?"),
        make_text("set-up", "## Set-up\n\nNothing is loaded."),
        make_code(IMPORT, id="imports", tags=["imports"]),
        make_code("ALPHA = 1  # of nothing", id="parameters", tags=["parameters"]),
        make_text("idea", IDEA, "slide"),
        make_text("scratch", "## From scratch\n\nFour times a number:", "slide"),
        make_code("def quadruple(x):\n    return 4 * x", PRINT, id="quadruple"),
        make_text("experiment", "## Experiment\n\n### Two dots\n\nThe dots are seeds:", "slide"),
        make_code(f'axis.set_title("{title}")', FIGURE, id="figure", tags=["hide-input"]),
        make_text("reading", "All dots lie on the right."),
        make_text("verdict", "## Verdict\n\nWhich answer was right?", "slide"),
        make_code("claim('twice two is four', 4)", claim, id="claim"),
        make_text("said", "It is the first."),
        *_make_exercises(),
        make_text("recap", "## Recap and sources\n\nThat is all.", "slide"),
    ]


def write(folder: Path, name: str, cells: list[nbformat.NotebookNode]) -> Path:
    """Write a lesson of these cells."""
    about = {"question": "Which?", "technique": "t", "seam": "s", "minutes": 1, "budget_s": 10}
    metadata = {"course": about, "kernelspec": KERNEL, "language_info": {"name": "python"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, folder / f"{name}.ipynb")
    return folder / f"{name}.ipynb"


def write_course(folder: Path) -> list[Lesson]:
    """Write the three lessons and their glossary into ``folder``."""
    start = [make_text("start", "# 00 · Start here"), make_text("problems", START)]
    write(folder, "00_start_here", [*start, make_code("print('seen')", PRINT, id="print")])
    write(folder, "01_numbers", make_numbers())
    text = TOY_LIST.replace("05_mixup", "01_numbers")
    write_toy_lesson(folder, "02_scale", text=text)
    (folder / "glossary.md").write_text(GLOSSARY, encoding="utf-8")
    return find_lessons(folder)
