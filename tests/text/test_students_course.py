"""The students' course of the real lessons: no solution, no answer, and all else as it was."""

import ast
import html
import io
import re
import tokenize
from functools import cache
from importlib.metadata import packages_distributions

import nbformat

from course_tools.lesson_folder import is_for_teachers
from course_tools.publish.colab import COLAB_PACKAGES
from course_tools.publish.release import make_students_version, release
from course_tools.publish.sections import find_section, is_speakers_note
from lesson_code.find_the_bug.checks import read_script
from tests.places import ROOT
from tests.text.offenders import for_each_lesson, list_lessons, read_lessons

WINDOW = 24  # tokens: a line or two; shorter ones are the idioms of every training loop
TOKEN = re.compile(r"\w+|[^\w\s]")
SOLUTION = re.compile(r"### BEGIN SOLUTION\n(.*?)\s*### END SOLUTION", re.DOTALL)
NO_TEXT = (".safetensors", ".png", ".jpg", ".pyc")
ANSWERING = ("Experiment", "Verdict")
OWN = {"course_utils", "lesson_code", "IPython", "nvidia"}  # Colab is IPython; without DALI


def normalise(source):
    """Python's tokens without comments and layout."""
    kept = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP)
    found = tokenize.generate_tokens(io.StringIO(f"if 1:\n{source}\n").readline)
    return TOKEN.findall(" ".join(t.string for t in found if t.type in kept))[3:]


def find_tokens(text):
    return TOKEN.findall(re.sub(r"#.*", "", text))


def find_windows(tokens):
    return {tuple(tokens[i : i + WINDOW]) for i in range(len(tokens) - WINDOW + 1)}


def read_texts(folder):
    """Every text below ``folder`` by where it stands; a notebook's cells one by one."""
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".ipynb":
            for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
                text = cell.source
                if cell.cell_type == "markdown":
                    text = html.unescape(re.sub(r"<[^>]+>", " ", text))
                yield f"{path.name}, cell {number + 1}", text + str(cell.get("outputs", ""))
        elif path.is_file() and path.suffix not in NO_TEXT:
            yield str(path.relative_to(folder)), path.read_text(encoding="utf-8")


def read_given():
    """What lessons show on purpose: their code, and scripts with bugs in them."""
    given = [read_script(), repr(read_script())]  # the file, and an output that shows it
    for notebook in read_lessons().values():
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                given += re.findall(r"```python\n(.*?)```", cell.source, re.DOTALL)
            elif "nbgrader" not in cell.metadata:
                given.append(cell.source)
    return set().union(*(find_windows(find_tokens(text)) for text in given))


@cache
def read_solutions():
    """The tokens of each exercise's solution."""
    cells = [cell for notebook in read_lessons().values() for cell in notebook.cells]
    graded = [cell for cell in cells if cell.metadata.get("nbgrader", {}).get("solution")]
    return {
        cell.metadata.nbgrader.grade_id: normalise(SOLUTION.search(cell.source)[1])
        for cell in graded
    }


def find_leaks(texts, given):
    """Stretches of solutions in texts, but for those that the lessons give themselves."""
    solutions = read_solutions()
    secret = {x: name for name, tokens in solutions.items() for x in find_windows(tokens) - given}
    whole = {name: f" {' '.join(tokens)} " for name, tokens in solutions.items()}
    for where, text in texts:
        tokens = find_tokens(text)
        joined = f" {' '.join(tokens)} "
        yield from (f"{where}: {name}" for name, solution in whole.items() if solution in joined)
        leaks = {secret[x]: x for x in find_windows(tokens) & secret.keys()}
        yield from (f"{where}: {name}: {' '.join(leak)}" for name, leak in leaks.items())


def test_no_solution_is_found_in_the_release(tmp_path):
    released = release(list_lessons(), tmp_path / "student")
    assert len(read_solutions()) >= 43
    assert list(find_leaks(read_texts(released), read_given())) == []


def test_the_search_finds_a_planted_leak():
    name, solution = max(read_solutions().items(), key=lambda found: len(found[1]))
    half = " ".join(solution[: len(solution) // 2])
    [leak] = find_leaks([("here", half)], given=set())
    assert leak.startswith(f"here: {name}: ")


@for_each_lesson
def test_all_else_is_as_it_was(name, notebook):
    student, section = make_students_version(notebook), ""
    for key in ("course", "kernelspec"):
        assert student.metadata[key] == notebook.metadata[key]
    kept = [cell for cell in notebook.cells if not is_speakers_note(cell)]
    for old, new in zip(kept, student.cells, strict=True):
        if old.cell_type == "markdown":
            section = find_section(old.source, section)
        is_answer = bool(old.metadata.get("nbgrader", {}).get("solution"))
        is_cleared = "nbgrader" in old.metadata or section in ANSWERING
        expected = nbformat.from_dict(old)
        if old.cell_type == "code" and is_cleared:
            expected.outputs, expected.execution_count = [], None
        if is_answer:
            expected.source = new.source
        if new != expected or (is_answer and not is_stub(old.source, new.source)):
            yield f"cell {old.id}"


def is_stub(solution, source):
    """Whether an answer is left to write: the first line of the solution, and no more of it."""
    same_begin = source.splitlines()[0] == solution.splitlines()[0]
    return same_begin and source != solution and "raise NotImplementedError()" in source


@for_each_lesson
def test_a_student_sees_no_answer_before_the_prediction(name, notebook):
    """Neither the outputs of the experiment and its verdict nor what is meant for the teacher."""
    student, section, cleared = make_students_version(notebook), "", 0
    for cell in student.cells:
        if cell.cell_type == "markdown":
            section = find_section(cell.source, section)
            if "For the teacher" in cell.source:
                yield f"cell {cell.id} is for the teacher"
        elif section in ANSWERING:
            cleared += 1
            if cell.outputs:
                yield f"cell {cell.id} has outputs"
    assert cleared or name.startswith("00")
    assert any(cell.get("outputs") for cell in student.cells), "the rest keeps its outputs"


@for_each_lesson
def test_jupyter_finds_nothing_to_add(name, notebook):
    """Without the whole description of the language a notebook is unsaved as soon as it is open."""
    language = {"codemirror_mode", "nbconvert_exporter", "version", "file_extension", "mimetype"}
    student = make_students_version(notebook)
    assert language <= set(student.metadata.language_info)
    nbformat.validate(student)


def list_imported():
    """The top-level modules that lessons, and the code that students get, import."""
    sources = [*(ROOT / "course_utils").rglob("*.py"), *(ROOT / "lesson_code").rglob("*.py")]
    sources = [x for x in sources if not is_for_teachers(x.relative_to(ROOT).as_posix())]
    codes = [path.read_text(encoding="utf-8") for path in sources]
    for notebook in read_lessons().values():
        code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        codes += [re.sub(r"^%%.*", "", source) for source in code]
    for node in (node for code in codes for node in ast.walk(ast.parse(code))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_colab_gets_all_that_lessons_import():
    known = packages_distributions()
    packages = {known[name][0].lower() for name in set(list_imported()) - OWN if name in known}
    assert packages - {"packaging", "typing_extensions"} <= set(COLAB_PACKAGES)
