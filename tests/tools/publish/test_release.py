"""The students' course has no solution in it, and is a course that works."""

import ast
import html
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from importlib.metadata import packages_distributions
from pathlib import Path

import nbformat
import pytest

from course_tools.grade.exercises import MANIFEST, find_exercises
from course_tools.lesson_folder import is_for_teachers
from course_tools.publish.colab import COLAB_PACKAGES, make_colab_cell
from course_tools.publish.release import clear_solutions, make_students_version, release
from course_tools.publish.sections import find_section, is_speakers_note
from course_tools.run.lessons import find_lessons
from course_utils.data.photos import describe_photos
from course_utils.errors import CourseError
from course_utils.results import list_results
from lesson_code.find_the_bug.checks import read_script
from tests.lessons.cards import find_faults, write_toy_lesson
from tests.places import ROOT, find_notebooks

WINDOW = 24  # tokens: a line or two; shorter ones are the idioms of every training loop
TOKEN = re.compile(r"\w+|[^\w\s]")
SOLUTION = re.compile(r"### BEGIN SOLUTION\n(.*?)\s*### END SOLUTION", re.DOTALL)


def normalise(source):
    """Python's tokens without comments and layout."""
    kept = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP)
    found = tokenize.generate_tokens(io.StringIO(f"if 1:\n{source}\n").readline)
    return TOKEN.findall(" ".join(t.string for t in found if t.type in kept))[3:]


def find_windows(tokens, size):
    return {tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}


def find_leaks(solution, windows, given):
    """Stretches of the solution in a text, but for those that the lessons give themselves."""
    return (find_windows(solution, WINDOW) & windows) - given


def read_texts(folder):
    """Every text below ``folder`` by where it stands; a notebook's cells one by one."""
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".ipynb":
            for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
                text = cell.source
                if cell.cell_type == "markdown":
                    text = html.unescape(re.sub(r"<[^>]+>", " ", text))
                yield f"{path.name}, cell {number + 1}", text + str(cell.get("outputs", ""))
        elif path.is_file() and path.suffix not in (".safetensors", ".png", ".jpg", ".pyc"):
            yield str(path.relative_to(folder)), path.read_text(encoding="utf-8")


def read_given():
    """What lessons show on purpose: their code, and scripts with bugs in them."""
    given = set()
    for script in (read_script(), repr(read_script())):  # the file, and an output that shows it
        given |= find_windows(TOKEN.findall(re.sub(r"#.*", "", script)), WINDOW)
    for path in find_notebooks():
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                for script in re.findall(r"```python\n(.*?)```", cell.source, re.DOTALL):
                    given |= find_windows(TOKEN.findall(re.sub(r"#.*", "", script)), WINDOW)
            elif "nbgrader" not in cell.metadata:
                given |= find_windows(TOKEN.findall(re.sub(r"#.*", "", cell.source)), WINDOW)
    return given


def read_solutions():
    for path in find_notebooks():
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.metadata.get("nbgrader", {}).get("solution"):
                yield cell.metadata.nbgrader.grade_id, normalise(SOLUTION.search(cell.source)[1])


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    return release(find_lessons(), tmp_path_factory.mktemp("release") / "student")


def test_no_solution_is_found_in_the_release(released):
    given, solutions = read_given(), list(read_solutions())
    assert len(solutions) >= 43
    for where, text in read_texts(released):
        tokens = TOKEN.findall(re.sub(r"#.*", "", text))
        windows = find_windows(tokens, WINDOW)
        joined = f" {' '.join(tokens)} "
        for name, solution in solutions:
            assert f" {' '.join(solution)} " not in joined, f"{name} in {where}"
            leaks = find_leaks(solution, windows, given)
            assert not leaks, f"{name} in {where}: {' '.join(min(leaks))}"


def test_the_search_finds_a_planted_leak():
    name, solution = max(read_solutions(), key=lambda found: len(found[1]))
    half = solution[: len(solution) // 2]
    assert find_leaks(solution, find_windows(half, WINDOW), given=set()), name


def test_all_else_is_as_it_was(released):
    for path in find_notebooks():
        source = nbformat.read(path, as_version=4)
        student = nbformat.read(released / "notebooks" / path.name, as_version=4)
        for key in ("course", "kernelspec"):
            assert student.metadata[key] == source.metadata[key]
        section = ""
        kept = [cell for cell in source.cells if not is_speakers_note(cell)]
        for old, new in zip(kept, student.cells, strict=True):
            section = find_section(old.source, section) if "source" in old else section
            if old.cell_type == "code" and section in ("Experiment", "Verdict"):
                old.outputs, old.execution_count = [], None
            if "nbgrader" not in old.metadata:
                assert new == old
                continue
            assert new.metadata == old.metadata
            assert new.id == old.id
            assert not new.outputs
            if old.metadata.nbgrader.solution:
                assert new.source != old.source
                assert "raise NotImplementedError()" in new.source
                assert new.source.splitlines()[0] == old.source.splitlines()[0]
            else:
                assert new.source == old.source


def test_a_student_sees_no_answer_before_the_prediction(released):
    """Neither the outputs of the experiment and its verdict nor what is meant for the teacher."""
    for path in find_notebooks():
        student = nbformat.read(released / "notebooks" / path.name, as_version=4)
        section, cleared = "", 0
        for cell in student.cells:
            if cell.cell_type == "markdown":
                section = find_section(cell.source, section)
                assert "For the teacher" not in cell.source
            elif cell.cell_type == "code" and section in ("Experiment", "Verdict"):
                assert not cell.outputs, f"{path.stem}: {cell.source[:40]}"
                cleared += 1
        assert cleared or path.stem.startswith("00")
        assert any(cell.get("outputs") for cell in student.cells), "the rest keeps its outputs"


def test_jupyter_finds_nothing_to_add(released):
    """Without the whole description of the language a notebook is unsaved as soon as it is open."""
    language = {"codemirror_mode", "nbconvert_exporter", "version", "file_extension", "mimetype"}
    for path in sorted((released / "notebooks").glob("*.ipynb")):
        student = nbformat.read(path, as_version=4)
        assert language <= set(student.metadata.language_info)
        nbformat.validate(student)


def test_hidden_tests_go_too():
    cell = nbformat.v4.new_code_cell(
        "assert f(1) == 2\n### BEGIN HIDDEN TESTS\nassert f(5) == 6\n### END HIDDEN TESTS",
        metadata={"nbgrader": {"grade": True, "solution": False, "locked": True}},
    )
    notebook = nbformat.v4.new_notebook(cells=[cell])
    assert clear_solutions(notebook).cells[0].source == "assert f(1) == 2"
    assert "f(5)" in cell.source, "the source has changed"


def test_a_solution_without_end_is_said():
    cell = nbformat.v4.new_code_cell("### BEGIN SOLUTION\nx = 1")
    with pytest.raises(CourseError, match="close every BEGIN with its END"):
        clear_solutions(nbformat.v4.new_notebook(cells=[cell]))


def test_a_student_can_check_in_the_release(tmp_path):
    """In the released course, with its own package and manifest: a stub is not written yet."""
    released = release(find_lessons(), tmp_path / "student")
    commands = released / "course_tools" / "cli" / "students.py"
    text = commands.read_text(encoding="utf-8")
    commands.write_text(text.replace("– not written yet", "– waits for you"), encoding="utf-8")
    assert find_exercises(released) == find_exercises(ROOT)
    command = [sys.executable, "-m", "course_tools", "check"]
    done = subprocess.run(
        [*command, "notebooks/01_baseline.ipynb"], cwd=released, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert "– waits for you: measure_change, paired_interval, evaluate" in done.stdout
    assert re.search(rf"all +0 of {len(find_exercises())} lessons begun +0 of ", done.stdout)


def test_the_same_source_gives_the_same_release(released, tmp_path):
    again = release(find_lessons(), tmp_path / "student")
    for path in sorted(again.rglob("*")):
        if path.is_file() and "build" not in path.parts:
            assert path.read_bytes() == (released / path.relative_to(again)).read_bytes(), path


def test_work_in_a_release_is_not_lost(tmp_path):
    lessons = find_lessons()[:2]
    folder = release(lessons, tmp_path / "student")
    release(lessons, folder)  # nothing was done in it
    notebook = folder / "notebooks" / "01_baseline.ipynb"
    notebook.write_text(notebook.read_text().replace("NotImplementedError()", "ValueError()"))
    with pytest.raises(CourseError, match=r"holds work \(notebooks/01_baseline.ipynb\)"):
        release(lessons, folder)
    assert "ValueError()" in notebook.read_text()


def test_another_folder_is_not_overwritten(tmp_path):
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(CourseError, match="is no release"):
        release(find_lessons()[:1], tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years"


def test_a_damaged_manifest_is_said(tmp_path):
    (tmp_path / MANIFEST).write_text(json.dumps({"lessons": [{}]}))
    with pytest.raises(CourseError, match="take it from the release again"):
        find_exercises(tmp_path)


def test_colab_gets_the_locked_versions_of_all_that_lessons_import():
    sources = [*(ROOT / "course_utils").rglob("*.py"), *(ROOT / "lesson_code").rglob("*.py")]
    sources = [x for x in sources if not is_for_teachers(x.relative_to(ROOT).as_posix())]
    codes = [path.read_text(encoding="utf-8") for path in sources]
    for path in find_notebooks():
        cells = nbformat.read(path, as_version=4).cells
        codes += [re.sub(r"^%%.*", "", c.source) for c in cells if c.cell_type == "code"]
    imported = set()
    for code in codes:
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    own = {
        "course_utils",
        "lesson_code",
        "IPython",
        "nvidia",
    }  # Colab is IPython; DALI says where it is absent
    known = packages_distributions()
    packages = {known[name][0].lower() for name in imported - own if name in known}
    assert packages - {"packaging", "typing_extensions"} <= set(COLAB_PACKAGES)
    locked = set(re.findall(r"^\S+==\S+", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    pins = re.findall(r"'(\S+==\S+)'", make_colab_cell("https://example.org/c.git").source)
    assert len(pins) == len(COLAB_PACKAGES)
    assert set(pins) <= locked


def test_the_colab_cell_does_nothing_elsewhere_and_installs_there(tmp_path, monkeypatch):
    folder = release(find_lessons()[:2], tmp_path / "student", colab="https://example.org/c.git")
    notebook = nbformat.read(folder / "notebooks" / "01_baseline.ipynb", as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    commands = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    monkeypatch.setattr(sys, "path", list(sys.path))
    exec(first.source, {})
    assert commands == []
    monkeypatch.setitem(sys.modules, "google.colab", object())
    exec(first.source, {})
    assert sys.path[0] == os.environ["PYTHONPATH"] == str(tmp_path / "course")
    (tmp_path / "course").mkdir()
    exec(first.source, {})  # after a restart: the clone is there
    install, clone, again = commands
    assert again == install
    assert install[1:4] == ["-m", "pip", "install"]
    assert clone[:2] == ["git", "clone"]
    assert "https://example.org/c.git" in clone
    for address in ("my-course", "https://", "https://example.org", "https://example.org/a b"):
        with pytest.raises(CourseError, match="give the https:// address"):
            make_colab_cell(address)


def test_the_release_brings_weights_photographs_results_and_its_licence(released):
    assert list(Path(released, "data", "weights").glob("*.safetensors"))
    assert describe_photos(released / "data" / "photos") == describe_photos()
    assert len(list((released / "data" / "photos").glob("*.jpg"))) == 20
    assert list_results(released / "data" / "results") == list_results()
    for name in ("LICENSE", "README.md", "Makefile", "requirements.lock"):
        assert (released / name).exists()
    assert not (released / "tests").exists()


def test_photographs_may_be_left_out(tmp_path, monkeypatch):
    """``data/README.md`` says how: delete the folder. Nothing else may be missing."""
    module = sys.modules[release.__module__]
    left_out = [name.replace("data/photos", "data/no_photos") for name in module.COPIED]
    monkeypatch.setattr(module, "COPIED", left_out)
    with pytest.raises(FileNotFoundError, match="no_photos"):
        release(find_lessons()[:1], tmp_path / "student")
    monkeypatch.setattr(module, "MAY_BE_LEFT_OUT", "data/no_photos")
    folder = release(find_lessons()[:1], tmp_path / "student")
    assert not (folder / "data" / "photos").exists()
    assert (folder / "data" / "README.md").exists()


def test_nothing_of_a_released_folder_is_lost(tmp_path):
    lessons = find_lessons()[:1]
    folder = release(lessons, tmp_path / "student")
    kept = (".git/config", "build/progress/05.json", ".venv/pyvenv.cfg", "notebooks/runs/1/a.json")
    for name in (*kept, "course_utils.egg-info/PKG-INFO"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    release(lessons, folder)
    for name in kept:
        assert (folder / name).read_text() == "mine"
    for name in ("notes.txt", "notebooks/mine/a.py", "README.md", "mine/runs/notes.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        before = (folder / name).read_text() if (folder / name).exists() else None
        (folder / name).write_text("mine")
        with pytest.raises(CourseError, match=f"holds work .{name}"):
            release(lessons, folder)
        assert (folder / name).read_text() == "mine"
        (folder / name).unlink() if before is None else (folder / name).write_text(before)


def test_both_makefiles_set_up_alike():
    recipe = re.compile(r"^\.venv/installed:.*?@touch", re.MULTILINE | re.DOTALL)
    student = (ROOT / "course_tools" / "publish" / "student" / "Makefile").read_text()
    assert recipe.search((ROOT / "Makefile").read_text())[0] == recipe.search(student)[0]


def test_the_release_keeps_cards_whole(tmp_path):
    def add_outputs(notebook):
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = [nbformat.v4.new_output("stream", text="0.5\n")]

    lesson = write_toy_lesson(tmp_path, change=add_outputs)
    student = make_students_version(lesson.read())
    assert student.cells == lesson.read().cells
    nbformat.write(student, lesson.path)
    assert find_faults(lesson) == []
