"""The form of a lesson, read off the file: no kernel is started."""

import ast
import re
from collections import defaultdict

import nbformat
import pytest

from course_utils.tools.run.key import digest_outputs
from course_utils.tools.run.lessons import MEMORY_LIMIT_BYTES
from tests.conftest import find_notebooks

HEADINGS = [
    "Question",
    "Set-up",
    "Idea",
    "From scratch",
    "Proof",
    "The library way",
    "Experiment",
    "Verdict",
    "Exercises",
    "Recap and sources",
]
PRACTICE = ["Question", "Set-up", "Exercises", "Verdict", "Recap and sources"]  # no new technique

IMPORTS_OR_DOCSTRING = ast.Import | ast.ImportFrom | ast.Expr


@pytest.fixture
def notebook(notebook_path):
    return nbformat.read(notebook_path, as_version=4)


def cells_of(notebook, kind):
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def parse(cell):
    """The cell's statements; a script that the cell writes is Python too."""
    return ast.parse(re.sub(r"^%%writefile .*\n", "", cell.source)).body


def is_script(cell):
    return cell.source.startswith("%%writefile")


def count_lines(cell):
    """Of a cell; a script that it writes has to import for itself, which is not counted."""
    lines = cell.source.count("\n") + 1
    if not is_script(cell):
        return lines
    return lines - next(n.lineno for n in parse(cell) if not isinstance(n, IMPORTS_OR_DOCSTRING))


def tagged(notebook, tag):
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def is_lesson(notebook_path):
    return not notebook_path.stem.startswith("00")


def is_practice(notebook_path):
    return notebook_path.stem.startswith("9")


def test_it_is_valid_and_knows_what_it_is(notebook):
    nbformat.validate(notebook)
    about = notebook.metadata["course"]
    needed = {"question", "technique", "seam", "minutes", "budget_s", "time_s", "key", "outputs"}
    assert needed <= set(about) <= needed | {"headline", "peak_mb", "dataset"}
    assert about["budget_s"] <= 180  # what it took is judged where it is executed
    assert about.get("peak_mb", 0) <= MEMORY_LIMIT_BYTES / 1e6
    assert set(notebook.metadata) == {"course", "kernelspec", "language_info"}


def test_headings_are_the_fixed_ones(notebook, notebook_path):
    text = "\n".join(cell.source for cell in cells_of(notebook, "markdown"))
    assert re.search(r"^# \d\d · ", text)
    if is_lesson(notebook_path):
        expected = PRACTICE if is_practice(notebook_path) else HEADINGS
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == expected
        assert re.search(r"Minutes: \d+ · Prerequisites: .+ · Seam: .+ · Budget: ", text)
        assert text.count("<details>") >= 2 + 2 * 3  # the prediction; a hint and answer each


def test_exercises_say_how_hard_they_are(notebook):
    text = "\n".join(cell.source for cell in cells_of(notebook, "markdown"))
    stars = re.findall(r"^### (★+) .*\((\d+) minutes\)$", text, re.MULTILINE)
    points = [
        cell.metadata["nbgrader"]["points"]
        for cell in notebook.cells
        if cell.metadata.get("nbgrader", {}).get("grade")
    ]
    assert [len(star) for star, _ in stars] == points == sorted(points)


def test_cells_are_short_and_explained(notebook, notebook_path):
    code, prose = cells_of(notebook, "code"), cells_of(notebook, "markdown")
    assert max(count_lines(cell) for cell in code) <= 30
    lengths = sorted(count_lines(cell) for cell in code if not is_script(cell))
    assert lengths[len(lengths) // 2] <= 12
    assert 0.95 <= len(prose) / len(code) <= 1.7
    if is_lesson(notebook_path):
        assert 25 <= len(notebook.cells) <= 100


def test_parameters_are_literals(notebook, notebook_path):
    if not is_lesson(notebook_path):
        return
    (cell,) = tagged(notebook, "parameters")
    for node in parse(cell):
        assert isinstance(node, ast.Assign)
        ast.literal_eval(node.value)
    for line in cell.source.splitlines():
        assert "#" in line, f"no unit or meaning beside {line}"


def test_no_output_was_edited_by_hand(notebook):
    """`course run --store` wrote the digest beside the outputs."""
    stored = notebook.metadata["course"]["outputs"]
    assert digest_outputs(notebook) == stored, "make the outputs again: course list --stale"


def test_outputs_are_those_of_one_clean_run(notebook, notebook_path):
    assert notebook_path.stat().st_size <= 500_000
    code = cells_of(notebook, "code")
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    text = "\n".join(str(output) for output in outputs)
    assert not re.search(r"/(?:work|root|home|tmp|Users)/", text), "a machine's path"
    assert not re.search(r"\d+/\d+ \[\d\d:\d\d|widget-view", text), "progress-bar residue"
    assert not tagged(notebook, "injected-parameters")


def test_checked_outputs_hold_claims_or_stable_text(notebook, notebook_path):
    checked = tagged(notebook, "nbval-check-output")
    assert checked or not is_lesson(notebook_path)
    for cell in checked:
        assert cell.outputs
        assert 'kind="effect"' not in cell.source, "effects differ between profiles"


def test_grading_metadata_are_complete(notebook):
    identifiers = []
    for cell in notebook.cells:
        if "nbgrader" in cell.metadata:
            about = cell.metadata["nbgrader"]
            assert about["schema_version"] == 3
            assert about["grade"] != about["solution"]
            assert ("### BEGIN SOLUTION" in cell.source) == about["solution"]
            identifiers.append(about["grade_id"])
    assert len(set(identifiers)) == len(identifiers)


def test_nothing_is_defined_in_two_notebooks():
    where = defaultdict(set)
    for path in find_notebooks():
        for cell in cells_of(nbformat.read(path, as_version=4), "code"):
            for node in parse(cell):
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    where[node.name].add(path.stem)
    assert not {name: places for name, places in where.items() if len(places) > 1}


def test_figures_are_labelled(notebook):
    """Every axes.set of a plot names both axes, and its title says what to see."""
    for cell in cells_of(notebook, "code"):
        if ".plot(" in cell.source and 'axis("off")' not in cell.source:
            assert "xlabel" in cell.source, cell.source
            assert "ylabel" in cell.source, cell.source
            assert "title" in cell.source, cell.source
