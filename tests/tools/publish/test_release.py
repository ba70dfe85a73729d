"""How a release is made, with toy lessons; what is in that of the course: tests/text."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module

import nbformat
import pytest

from course_tools.grade.exercises import MANIFEST, find_exercises
from course_tools.publish.colab import COLAB_PACKAGES, make_colab_cell
from course_tools.publish.release import clear_solutions, make_students_version, release
from course_tools.run.lessons import find_lessons
from course_utils.data.photos import describe_photos
from course_utils.errors import CourseError
from course_utils.results import list_results
from tests.lessons.cards import find_faults, write_toy_lesson
from tests.places import ROOT
from tests.tools.toy_lessons import write_course

MODULE = import_module("course_tools.publish.release")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Where toy lessons stand in for those of the course."""
    folder = tmp_path_factory.mktemp("course")
    write_course(folder / "notebooks")
    return folder


@pytest.fixture(scope="module")
def lessons(root):
    return find_lessons(root / "notebooks")


def release_toys(lessons, target, **options):
    """A release of toy lessons: with the course's package, and their own list of exercises."""
    root = lessons[0].path.parents[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "find_exercises", lambda: find_exercises(root))
        return release(lessons, target, **options)


@pytest.fixture(scope="module")
def released(lessons, tmp_path_factory):
    return release_toys(lessons, tmp_path_factory.mktemp("release") / "student")


@pytest.fixture
def few_files(monkeypatch):
    """A release copies little more than the lessons."""
    monkeypatch.setattr(MODULE, "COPIED", ("data/README.md", "LICENSE", "course_tools/cli"))


def read_student(folder, name):
    return nbformat.read(folder / "notebooks" / f"{name}.ipynb", as_version=4)


def test_the_release_has_the_students_versions(released, lessons):
    for lesson in lessons:
        student = read_student(released, lesson.name)
        assert student == make_students_version(lesson.read())
        nbformat.validate(student)


def test_a_students_version_has_no_solution_no_note_and_no_answer(lessons):
    student = make_students_version(lessons[1].read())
    cells = {cell.id: cell for cell in student.cells}
    before = {cell.id: cell for cell in lessons[1].read().cells}
    assert set(before) - set(cells) == {"note"}
    assert "2 * x" not in "".join(cell.source for cell in student.cells)
    changed = {name for name in cells if cells[name] != before[name]}
    assert changed == {"double", "triple", "figure", "claim"}
    assert not any(cells[name].outputs for name in ("figure", "claim"))
    assert cells["quadruple"].outputs


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


def test_a_student_can_check_in_the_release(lessons, root, tmp_path):
    """In the released course, with its own package and manifest: a stub is not written yet."""
    released = release_toys(lessons, tmp_path / "student")
    commands = released / "course_tools" / "cli" / "students.py"
    text = commands.read_text(encoding="utf-8")
    commands.write_text(text.replace("– not written yet", "– waits for you"), encoding="utf-8")
    assert find_exercises(released) == find_exercises(root)
    command = [sys.executable, "-m", "course_tools", "check"]
    done = subprocess.run(
        [*command, "notebooks/01_numbers.ipynb"], cwd=released, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert "– waits for you: double, triple" in done.stdout
    assert re.search(r"all +0 of 1 lessons begun +0 of 3", done.stdout)


def test_the_same_source_gives_the_same_release(released, lessons, tmp_path):
    again = release_toys(lessons, tmp_path / "student")
    for path in sorted(again.rglob("*")):
        if path.is_file() and "build" not in path.parts:
            assert path.read_bytes() == (released / path.relative_to(again)).read_bytes(), path


@pytest.mark.usefixtures("few_files")
def test_work_in_a_release_is_not_lost(lessons, tmp_path):
    folder = release_toys(lessons, tmp_path / "student")
    release_toys(lessons, folder)  # nothing was done in it
    notebook = folder / "notebooks" / "01_numbers.ipynb"
    notebook.write_text(notebook.read_text().replace("NotImplementedError()", "ValueError()"))
    with pytest.raises(CourseError, match=r"holds work \(notebooks/01_numbers.ipynb\)"):
        release_toys(lessons, folder)
    assert "ValueError()" in notebook.read_text()


def test_another_folder_is_not_overwritten(lessons, tmp_path):
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(CourseError, match="is no release"):
        release_toys(lessons, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years"


def test_a_damaged_manifest_is_said(tmp_path):
    (tmp_path / MANIFEST).write_text(json.dumps({"lessons": [{}]}))
    with pytest.raises(CourseError, match="take it from the release again"):
        find_exercises(tmp_path)


def test_the_colab_cell_pins_versions_of_the_lock():
    locked = set(re.findall(r"^\S+==\S+", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    pins = re.findall(r"'(\S+==\S+)'", make_colab_cell("https://example.org/c.git").source)
    assert len(pins) == len(COLAB_PACKAGES)
    assert set(pins) <= locked


@pytest.mark.usefixtures("few_files")
def test_the_colab_cell_does_nothing_elsewhere_and_installs_there(lessons, tmp_path, monkeypatch):
    folder = release_toys(lessons, tmp_path / "student", colab="https://example.org/c.git")
    cells = read_student(folder, "01_numbers").cells
    first = next(cell for cell in cells if cell.cell_type == "code")
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
    assert list((released / "data" / "weights").glob("*.safetensors"))
    assert describe_photos(released / "data" / "photos") == describe_photos()
    assert len(list((released / "data" / "photos").glob("*.jpg"))) == 20
    assert list_results(released / "data" / "results") == list_results()
    for name in ("LICENSE", "README.md", "Makefile", "requirements.lock", "set_up.py"):
        assert (released / name).exists()
    assert not (released / "tests").exists()


@pytest.mark.usefixtures("few_files")
def test_photographs_may_be_left_out(lessons, tmp_path, monkeypatch):
    """``data/README.md`` says how: delete the folder. Nothing else may be missing."""
    monkeypatch.setattr(MODULE, "COPIED", (*MODULE.COPIED, "data/no_photos"))
    with pytest.raises(FileNotFoundError, match="no_photos"):
        release_toys(lessons, tmp_path / "student")
    monkeypatch.setattr(MODULE, "MAY_BE_LEFT_OUT", "data/no_photos")
    folder = release_toys(lessons, tmp_path / "student")
    assert not (folder / "data" / "no_photos").exists()
    assert (folder / "data" / "README.md").exists()


@pytest.mark.usefixtures("few_files")
def test_nothing_of_a_released_folder_is_lost(lessons, tmp_path):
    folder = release_toys(lessons, tmp_path / "student")
    kept = (".git/config", "build/progress/05.json", ".venv/pyvenv.cfg", "notebooks/runs/1/a.json")
    for name in (*kept, "course_utils.egg-info/PKG-INFO"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    release_toys(lessons, folder)
    for name in kept:
        assert (folder / name).read_text() == "mine"
    for name in ("notes.txt", "notebooks/mine/a.py", "README.md", "mine/runs/notes.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        before = (folder / name).read_text() if (folder / name).exists() else None
        (folder / name).write_text("mine")
        with pytest.raises(CourseError, match=f"holds work .{name}"):
            release_toys(lessons, folder)
        assert (folder / name).read_text() == "mine"
        (folder / name).unlink() if before is None else (folder / name).write_text(before)


def read_set_up(makefile):
    """The commands that make the environment."""
    return re.search(r": requirements\.lock pyproject\.toml\n((?:\t.*\n)+)", makefile.read_text())[
        1
    ]


def test_both_makefiles_set_up_alike():
    student = ROOT / "course_tools" / "publish" / "student" / "Makefile"
    assert read_set_up(ROOT / "Makefile") == read_set_up(student)


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
