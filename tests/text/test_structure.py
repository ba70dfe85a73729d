"""The form of a lesson, read off the file: no kernel is started."""

import ast
import re
from collections import defaultdict

import nbformat

from course_tools.grade.exercises import find_exercises
from course_tools.publish.cards import find_recipe
from course_tools.publish.minutes import find_core
from course_tools.publish.sections import is_card
from course_tools.run.key import digest_outputs
from course_tools.run.lessons import MEMORY_LIMIT_BYTES, NOTEBOOKS
from tests.lessons.cards import find_faults, has_cards
from tests.text.offenders import for_each, for_each_lesson, list_lessons, read_lessons

HEADINGS = [
    "Question",
    "Set-up",
    "Idea",
    "From scratch",
    "Check",
    "The library way",
    "Experiment",
    "Verdict",
    "Recipe",
    "Exercises",
    "Recap and sources",
]
# A lesson with a First result has the form of the third edition: short, and the answer comes first.
THIRD_EDITION = [*HEADINGS[:2], "First result", *HEADINGS[2:-1], "Going deeper", HEADINGS[-1]]
# Of all but Going deeper. Folded text and code do not count, and cards have a limit of their own.
MOST_CELLS, MOST_WORDS, MOST_VISIBLE_LINES = 80, 2800, 300
FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)
FEWEST_WORDS = 12  # of a Markdown cell between two code cells
PRACTICE = {  # lessons without a new technique
    "90_find_the_bug": [
        "Question",
        "Set-up",
        "First result",
        "Exercises",
        "Verdict",
        "Going deeper",
        "Recap and sources",
    ],
    "91_project": [
        "Question",
        "Set-up",
        "First result",
        "Idea",
        "Experiment",
        "Verdict",
        "Exercises",
        "Going deeper",
        "Recap and sources",
    ],
}

MOST_SEEN_LINES = 20  # of a cell, in a lesson of the second edition
IMPORTS_OR_DOCSTRING = ast.Import | ast.ImportFrom | ast.Expr


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


def tagged_for_grading(notebook):
    return [c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade")]


def is_lesson(name):
    return not name.startswith("00")  # which has no technique


@for_each_lesson
def test_it_is_valid_and_knows_what_it_is(name, notebook):
    nbformat.validate(notebook)
    about = notebook.metadata["course"]
    needed = {"question", "technique", "seam", "minutes", "budget_s", "time_s", "key", "outputs"}
    assert needed <= set(about) <= needed | {"headline", "peak_mb", "timing"}
    assert about["time_s"] > 0  # on the machine that stored it; `course run` warns over budget
    assert about["budget_s"] <= 240
    assert about.get("peak_mb", 0) <= MEMORY_LIMIT_BYTES / 1e6
    assert set(notebook.metadata) == {"course", "kernelspec", "language_info"}


@for_each_lesson
def test_headings_are_the_fixed_ones(name, notebook):
    text = "\n".join(cell.source for cell in cells_of(notebook, "markdown"))
    assert re.search(r"^# \d\d · ", text)
    if is_lesson(name):
        usual = THIRD_EDITION if "\n## First result\n" in text else HEADINGS
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PRACTICE.get(name, usual)
        assert re.search(r"Minutes: \d+ · Prerequisites: .+ · Seam: .+ · Budget: ", text)
        assert text.count("<details>") >= 2 + 2 * 3  # the prediction; a hint and answer each


@for_each_lesson
def test_exercises_say_how_hard_they_are(name, notebook):
    text = "\n".join(cell.source for cell in cells_of(notebook, "markdown"))
    stars = re.findall(r"^### (☆|★+) .*\((\d+) minutes\)$", text, re.MULTILINE)
    points = [cell.metadata["nbgrader"]["points"] for cell in tagged_for_grading(notebook)]
    assert [len(star) for star, _ in stars] == points == sorted(points)


@for_each_lesson
def test_three_exercises_or_more_and_one_finds_a_bug(name, notebook):
    if is_lesson(name):
        assert len(tagged_for_grading(notebook)) >= 3
        text = "\n".join([name, *(cell.source for cell in notebook.cells)])
        assert re.search("find.the.bug", text, re.IGNORECASE)


@for_each(lambda: [(lesson.name, lesson) for lesson in list_lessons() if has_cards(lesson)])
def test_a_recipe_has_the_fixed_form(name, lesson):
    return find_faults(lesson)


@for_each_lesson
def test_cells_are_short_and_explained(name, notebook):
    code, prose = cells_of(notebook, "code"), cells_of(notebook, "markdown")
    assert max(count_lines(cell) for cell in code if not is_card(cell)) <= 30  # cards: test_cards
    ordinary = [cell for cell in code if not is_script(cell) and not is_card(cell)]
    lengths = sorted(map(count_lines, ordinary))
    assert lengths[len(lengths) // 2] <= 12
    assert 0.95 <= len(prose) / len(code) <= 1.7
    if is_lesson(name):
        assert 25 <= len(notebook.cells) <= 150


@for_each_lesson
def test_the_core_of_a_lesson_is_short_and_its_answer_comes_first(name, notebook):
    core = find_core(notebook)
    if not any(re.search(r"^## First result$", cell.source, re.M) for cell in core):
        return  # it has the form of the second edition
    prose = [FOLDED.sub("", cell.source) for cell in core if cell.cell_type == "markdown"]
    code = [c for c in core if c.cell_type == "code" and not is_folded(c) and not is_card(c)]
    if len(core) > MOST_CELLS:
        yield f"{len(core)} cells"
    if (words := sum(len(source.split()) for source in prose)) > MOST_WORDS:
        yield f"{words} words"
    if (lines := sum(map(count_seen, code))) > MOST_VISIBLE_LINES:
        yield f"{lines} visible lines of code"
    figures = [n for n, cell in enumerate(core) if "image/png" in str(cell.get("outputs"))]
    if not figures or figures[0] > len(core) / 5:
        yield "no figure in the first fifth"
    yield from (
        f"a cell of few words: {between.source}"
        for before, between, after in zip(core, core[1:], core[2:], strict=False)
        if before.cell_type == after.cell_type == "code"
        and between.cell_type == "markdown"
        and len(between.source.split()) < FEWEST_WORDS
    )


@for_each_lesson
def test_code_that_only_draws_is_folded(name, notebook):
    """`course run --store` writes both; a cell that a reader folded by hand has no tag."""
    for cell in cells_of(notebook, "code"):
        hidden = "hide-input" in cell.metadata.get("tags", [])
        is_folded = cell.metadata.get("jupyter", {}).get("source_hidden", False)
        if not hidden == is_folded == (cell.metadata.get("cellView") == "form"):
            yield f"cell {cell.id}"


@for_each_lesson
def test_parameters_are_literals(name, notebook):
    if not is_lesson(name):
        return
    (cell,) = tagged(notebook, "parameters")
    for node in parse(cell):
        assert isinstance(node, ast.Assign)
        ast.literal_eval(node.value)
    for line in cell.source.splitlines():
        if "#" not in line:
            yield f"no unit or meaning beside {line}"


@for_each_lesson
def test_no_output_was_edited_by_hand(name, notebook):
    """`course run --store` wrote the digest beside the outputs."""
    stored = notebook.metadata["course"]["outputs"]
    assert digest_outputs(notebook) == stored, "make the outputs again: course list --stale"


@for_each_lesson
def test_outputs_are_those_of_one_clean_run(name, notebook):
    assert (NOTEBOOKS / f"{name}.ipynb").stat().st_size <= 500_000
    code = cells_of(notebook, "code")
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    text = "\n".join(str(output) for output in outputs)
    assert not re.search(r"/(?:work|root|home|tmp|Users)/", text), "a machine's path"
    assert not re.search(r"\d+/\d+ \[\d\d:\d\d|widget-view", text), "progress-bar residue"
    assert not tagged(notebook, "injected-parameters")


@for_each_lesson
def test_checked_outputs_hold_claims_or_stable_text(name, notebook):
    checked = tagged(notebook, "nbval-check-output")
    assert checked or not is_lesson(name)
    for cell in checked:
        assert cell.outputs
        assert 'kind="effect"' not in cell.source, "effects differ between profiles"


@for_each_lesson
def test_grading_metadata_are_complete(name, notebook):
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
    for name, notebook in read_lessons().items():
        for cell in cells_of(notebook, "code"):
            for node in [] if is_card(cell) else parse(cell):  # a card is a file of its own
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    where[node.name].add(name)
    assert not {name: places for name, places in where.items() if len(places) > 1}


@for_each_lesson
def test_figures_are_labelled(name, notebook):
    """Every axes.set of a plot names both axes, and its title says what to see."""
    for cell in cells_of(notebook, "code"):
        if ".plot(" in cell.source and 'axis("off")' not in cell.source:
            missing = [x for x in ("xlabel", "ylabel", "title") if x not in cell.source]
            if missing:
                yield f"cell {cell.id} has no {', '.join(missing)}"


def is_folded(cell):
    hidden = cell.metadata.get("jupyter", {}).get("source_hidden")
    return hidden or "hide-input" in cell.metadata.get("tags", [])


def find_long_cells(notebook):
    """The first line of each code cell that a reader sees and that is too long; cards may be."""
    seen = [
        cell for cell in cells_of(notebook, "code") if not is_folded(cell) and not is_card(cell)
    ]
    return [cell.source.split("\n")[0] for cell in seen if count_seen(cell) > MOST_SEEN_LINES]


def count_seen(cell):
    """Lines without those that mark where a solution begins and ends."""
    return count_lines(cell) - len(re.findall(r"^ *### (?:BEGIN|END) ", cell.source, re.MULTILINE))


@for_each_lesson
def test_a_lesson_with_a_recipe_shows_no_long_cell(name, notebook):
    return find_long_cells(notebook) if find_recipe(notebook) else []


def test_a_long_cell_is_found_unless_it_is_folded_or_a_card():
    long = "x = 1\n" * MOST_SEEN_LINES
    notebook = nbformat.v4.new_notebook()
    for metadata in (
        {},
        {"tags": ["card"]},
        {"tags": ["hide-input"]},
        {"jupyter": {"source_hidden": True}},
    ):
        notebook.cells.append(nbformat.v4.new_code_cell(long + "0", metadata=metadata))
    notebook.cells.append(nbformat.v4.new_code_cell(long.strip()))
    assert find_long_cells(notebook) == ["x = 1"]


def list_bindings(cell):
    """What each name at the top of a cell stands for: an import's origin, or the cell's own."""
    found = {}
    for node in parse(cell):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", "")
            for alias in node.names:
                found[alias.asname or alias.name.split(".")[0]] = (module, alias.name)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = cell.id
        else:
            stored = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and is_stored(n)]
            found |= dict.fromkeys(stored, cell.id)
    return found


def is_stored(name):
    return isinstance(name.ctx, ast.Store)


def find_overwritten(notebook):
    """Names that a card gives another meaning, and that a cell below reads as the lesson's.

    A lesson's exercises stand below its cards: where a card calls its stand-in ``images``, an
    exercise must not mean the lesson's. To import the same thing again changes nothing.
    """
    code = cells_of(notebook, "code")
    lesson, changed, overwritten = {}, set(), set()
    for cell in code:
        bindings = list_bindings(cell)
        if is_card(cell):
            same = {name for name, meaning in bindings.items() if lesson.get(name) == meaning}
            changed |= (bindings.keys() & lesson.keys()) - same
            continue
        nodes = [n for statement in parse(cell) for n in ast.walk(statement)]
        read = {n.id for n in nodes if isinstance(n, ast.Name) and not is_stored(n)}
        own = {n.id for n in nodes if isinstance(n, ast.Name) and is_stored(n)}
        own |= {n.arg for n in nodes if isinstance(n, ast.arg)}
        overwritten |= (read & changed) - own - bindings.keys()
        changed -= bindings.keys()
        lesson |= bindings
    return sorted(overwritten)


@for_each_lesson
def test_cards_change_nothing_for_the_cells_below(name, notebook):
    for overwritten in find_overwritten(notebook):
        yield f"call {overwritten} otherwise in the card"


def test_a_name_that_a_card_overwrites_is_found():
    def make(*sources):
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        cells[1].metadata["tags"] = ["card"]
        return nbformat.v4.new_notebook(cells=cells)

    lesson = "import torch\nfrom torch import nn\nimages, lam = 1, 2\ndef mix(): ..."
    card = "import torch\nfrom torch import nn\n{}"
    exercise = "def answer(images):\n    return nn, torch, images\nmix(), lam"
    assert find_overwritten(make(lesson, card.format("images = 3"), exercise)) == []
    assert find_overwritten(make(lesson, card.format("lam = 3"), exercise)) == ["lam"]
    assert find_overwritten(make(lesson, card.format("def mix(): ..."), exercise)) == ["mix"]
    assert find_overwritten(make(lesson, "import numpy as nn", exercise)) == ["nn"]
    assert find_overwritten(make(lesson, card.format("new = 3"), "new = 4\nnew")) == []
    assert find_overwritten(make(lesson, card.format("lam = 3"), "lam = 4\nlam", "lam")) == []


def test_no_card_is_taken_for_an_answer():
    """An answer that lost its metadata is found by the function that it defines."""
    names = {x.name.replace("_", "") for lesson in find_exercises() for x in lesson.exercises}
    assert names
    kinds = ast.FunctionDef | ast.ClassDef
    offenders = [
        f"{name}: {cell.id} defines {node.name}"
        for name, notebook in read_lessons().items()
        for cell in filter(is_card, notebook.cells)
        for node in parse(cell)
        if isinstance(node, kinds) and node.name.replace("_", "").casefold() in names
    ]
    assert offenders == []
