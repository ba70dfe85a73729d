"""What becomes of a folder of submissions; no process is started but in the tests of one."""

import csv
from dataclasses import replace
from types import SimpleNamespace

import nbformat
import pytest

from course_tools.grade import supervise
from course_tools.grade.check import Limits, Result, check_notebook
from course_tools.grade.grade import grade_submissions
from course_tools.grade.grades import write_feedback, write_grades, write_totals
from course_tools.grade.limits import MachineFailure
from course_tools.grade.submissions import find_submissions
from course_tools.grade.supervise import Supervisor
from course_utils.errors import CourseError
from tests.tools.grade.conftest import LESSON, STUBS, hand_in, make_notebook
from tests.tools.toy_lessons import GOOD, IMPORT, write_course

LIMITS = Limits(time_s=20, memory_gib=3)


@pytest.fixture
def root(tmp_path):
    """Stands for the course, which no notebook should change."""
    folder = tmp_path / "course"
    (folder / "course_utils").mkdir(parents=True)
    (folder / "course_utils" / "a.py").write_text("a = 1")
    return folder


@pytest.fixture
def submitted(tmp_path):
    return tmp_path / "submitted"


@pytest.fixture
def grade(submitted, root, pretend_check):
    def run(check=pretend_check, **options):
        return grade_submissions(submitted, [LESSON], LIMITS, check, root=root, **options)

    return run


def read_table(path):
    with path.open(encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def test_a_bad_notebook_is_reported_and_stops_no_other(submitted, grade, tmp_path):
    hand_in(submitted, "ann/01_numbers/01_numbers.ipynb")
    hand_in(submitted, "ann/01_numbers/.ipynb_checkpoints/01_numbers-checkpoint.ipynb")
    hand_in(submitted, "bob/01_numbers.ipynb", double=STUBS["double"])
    hand_in(submitted, "cem/01_numbers.ipynb").write_text("this is not JSON")
    hand_in(submitted, "dan/homework.ipynb")
    seen = []
    graded = grade(check_notebook, on_graded=lambda all: seen.append(all[-1]))
    assert seen == graded
    points = [(entry.student, entry.points, entry.out_of) for entry in graded]
    assert points == [("ann", 3, 3), ("bob", 2, 3), ("cem", 0, 3), ("dan", 3, 3)]
    write_grades(graded, tmp_path / "grades.csv")
    rows = read_table(tmp_path / "grades.csv")
    what = {(row["student"], row["exercise"]): row["what_happened"] for row in rows}
    assert what["ann", "double"] == "passed"
    assert what["bob", "double"] == "double is not written yet."
    assert what["cem", "triple"].startswith("cem/01_numbers.ipynb is not a notebook")
    assert str(tmp_path) not in (tmp_path / "grades.csv").read_text("utf-8")  # students read it


@pytest.mark.parametrize(
    "name",
    ["numbers (1).ipynb", "01_numbers-Copy1.ipynb", "01_NUMBERS.IPYNB", "x.ipynb.txt", "x/y.ipynb"],
)
def test_a_renamed_notebook_is_graded(submitted, grade, name):
    hand_in(submitted, f"ann/{name}")
    [entry] = grade()
    assert (entry.lesson, entry.file, entry.points) == ("01_numbers", name, 3)


@pytest.mark.parametrize("names", [("01_numbers", "01_numbers-Copy1"), ("b/01_numbers", "a/c")])
def test_of_an_untouched_original_and_a_solved_copy_the_copy_counts(submitted, grade, names):
    hand_in(submitted, f"emil/{names[0]}.ipynb", **STUBS)
    solved = hand_in(submitted, f"emil/{names[1]}.ipynb")
    [entry] = grade()
    assert entry.points == 3
    assert entry.file == solved.relative_to(submitted / "emil").as_posix()
    assert entry.note == (f"of 2 notebooks of this lesson the best one counts: {names[1]}.ipynb")


def test_copies_with_the_same_code_are_checked_once(submitted, grade, pretend_check):
    for name in ("01_numbers", "backup/01_numbers", "01_numbers (1)"):
        path = hand_in(submitted, f"ann/{name}.ipynb")
        notebook = nbformat.read(path, as_version=4)
        notebook.cells.append(nbformat.v4.new_markdown_cell(f"This is {name}."))
        nbformat.write(notebook, path)
    [entry] = grade()
    assert (pretend_check.checked, entry.points) == (1, 3)
    assert entry.note.startswith("of 3 notebooks")


def test_a_damaged_copy_costs_nothing(submitted, grade):
    hand_in(submitted, "ann/01_numbers.ipynb").write_text("")
    hand_in(submitted, "ann/01_numbers (1).ipynb")
    assert [(entry.points, entry.problem) for entry in grade()] == [(3, "")]


def test_lessons_without_exercises_are_passed_over(submitted, grade, tmp_path):
    start = write_course(tmp_path / "notebooks")[0]
    for name in ("ann/00_start_here", "ann/.venv/x", "ben/00_start_here (1)"):
        path = submitted / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(start.read(), path)
    hand_in(submitted, "ann/01_numbers.ipynb")
    graded = grade()
    assert [(x.student, x.points, x.problem) for x in graded] == [
        ("ann", 3, ""),
        ("ben", 0, "no notebook of a lesson with exercises"),
    ]


def test_a_change_of_the_course_is_said_and_the_grading_goes_on(submitted, grade, root):
    hand_in(submitted, "ann/01_numbers.ipynb")
    hand_in(submitted, "ben/01_numbers.ipynb")

    def tamper(notebook, lesson, limits):
        (root / "course_utils" / "a.py").write_text("a = 2")
        return []

    ann, ben = grade(tamper)
    assert ann.alarm.startswith("while it was graded, course_utils/a.py changed in ")
    assert ben.alarm == ""  # it was changed before, and is so still


def test_no_submissions_and_a_notebook_of_nobody(tmp_path):
    with pytest.raises(CourseError, match=r"expected <student>/<lesson>.ipynb"):
        find_submissions(tmp_path)
    (tmp_path / "ann").mkdir()
    (tmp_path / "loose.ipynb").write_text("{}")
    with pytest.raises(CourseError, match="put it into its student's folder"):
        find_submissions(tmp_path)


def test_a_folder_that_cannot_be_read_is_said(tmp_path, monkeypatch):
    def refuse(folder, onerror):
        onerror(PermissionError(13, "Permission denied", str(folder)))
        return iter(())

    (tmp_path / "ann").mkdir()
    monkeypatch.setattr("course_tools.grade.submissions.os.walk", refuse)
    [[found]] = find_submissions(tmp_path)
    assert found.problem == "Permission denied: grade it again"


def test_totals_have_a_row_for_each_student(submitted, grade, tmp_path):
    hand_in(submitted, "ann/01_numbers.ipynb")
    hand_in(submitted, "ben/01_numbers.ipynb", double="wrong")
    (submitted / "cem").mkdir()
    write_totals(grade(), tmp_path / "totals.csv")
    assert (tmp_path / "totals.csv").read_bytes().startswith(b"\xef\xbb\xbf")  # for spreadsheets
    assert [list(row.values()) for row in read_table(tmp_path / "totals.csv")] == [
        ["ann", "3", "3", "3"],
        ["ben", "2", "2", "3"],
        ["cem", "", "0", "3"],
    ]


def test_each_student_gets_a_file_to_read(submitted, grade, tmp_path):
    hand_in(submitted, "ann/01_numbers.ipynb", triple="wrong")
    hand_in(submitted, "ben/01_numbers.ipynb")
    write_feedback(grade(), "ann", tmp_path / "feedback")
    text = (tmp_path / "feedback" / "ann" / "feedback.txt").read_text(encoding="utf-8")
    assert text == (
        "01_numbers: 1 of 3 points (01_numbers.ipynb)\n"
        "  ✓ double (1 of 1): passed\n  ✗ triple (0 of 2): wrong\n\nAll: 1 of 3 points\n"
    )
    assert [path.name for path in (tmp_path / "feedback").iterdir()] == ["ann"]


def test_an_answer_is_where_its_function_is_defined(submitted, grade):
    hand_in(submitted, "dora/homework.ipynb", metadata=False)
    [entry] = grade(check_notebook)
    assert (entry.lesson, entry.points) == ("01_numbers", 3)


def test_notebooks_of_older_formats_are_graded(submitted, grade):
    """Without ids of cells, as Colab and others write it."""
    notebook = make_notebook()
    notebook.nbformat_minor = 2
    for cell in notebook.cells:
        del cell["id"]
    path = submitted / "ann" / "01_numbers.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(nbformat.writes(notebook), encoding="utf-8")
    assert GOOD["double"] in {cell.source for cell in nbformat.read(path, as_version=4).cells}
    [entry] = grade(check_notebook)
    assert entry.points == 3


MACHINE = {
    "no kernel": MachineFailure("no kernel starts here"),
    "no room": MachineFailure("[Errno 28] No space left on device"),
    "imports": MachineFailure("the imports of the lesson do not run here: too slow"),
}


@pytest.mark.parametrize("failure", MACHINE.values(), ids=MACHINE)
def test_where_the_machine_fails_there_are_no_points_not_even_zero(
    submitted, grade, tmp_path, failure
):
    hand_in(submitted, "ann/01_numbers.ipynb")

    def fail(notebook, lesson, limits):
        raise failure

    graded = grade(fail)
    write_grades(graded, tmp_path / "grades.csv")
    write_totals(graded, tmp_path / "totals.csv")
    write_feedback(graded, "ann", tmp_path / "feedback")
    rows = read_table(tmp_path / "grades.csv")
    assert [row["points"] for row in rows] == ["", ""]
    assert {row["what_happened"] for row in rows} == {f"not graded: {failure}"}
    [total] = read_table(tmp_path / "totals.csv")
    assert (total["01_numbers"], total["points"]) == ("not graded", "not graded")
    text = (tmp_path / "feedback" / "ann" / "feedback.txt").read_text("utf-8")
    assert text.startswith("01_numbers: not graded")
    assert "0 of" not in text
    for path in tmp_path.rglob("*"):
        if path.suffix in (".csv", ".txt"):
            assert path.stat().st_mode & 0o077 == 0, path  # nobody else reads marks
    assert (tmp_path / "feedback").stat().st_mode & 0o077 == 0


def test_a_file_that_this_machine_cannot_read_is_not_graded(submitted, grade, monkeypatch):
    path = hand_in(submitted, "ann/01_numbers.ipynb")

    def refuse(self):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(type(path), "read_bytes", refuse)
    [entry] = grade()
    assert entry.ungraded
    assert entry.problem == ("not graded: ann/01_numbers.ipynb cannot be read: Permission denied")


def test_a_copy_that_was_not_graded_may_be_the_better_one(submitted, grade):
    hand_in(submitted, "ann/01_numbers.ipynb", **STUBS)
    hand_in(submitted, "ann/copy.ipynb")

    def check(notebook, lesson, limits):
        if any(cell.source == GOOD["double"] for cell in notebook.cells):
            raise MachineFailure("no room")
        return [Result.make(exercise, "wrong") for exercise in lesson.exercises]

    [entry] = grade(check)
    assert entry.ungraded


@pytest.mark.parametrize("error", [OSError(28, "No space left"), OSError(11, "x"), MemoryError()])
def test_a_supervisor_without_room_or_processes_is_the_machines_failure(monkeypatch, error):
    def refuse(*arguments):
        raise error

    monkeypatch.setattr(supervise, "write_package", refuse)
    with pytest.raises(MachineFailure, match="make room for temporary files, or set TMPDIR"):
        Supervisor(False, {})(make_notebook(), LESSON, LIMITS)


def test_a_temporary_folder_that_is_too_small_is_said_before_anything_runs(monkeypatch):
    monkeypatch.setattr(supervise.shutil, "disk_usage", lambda folder: SimpleNamespace(free=2**22))
    with pytest.raises(MachineFailure, match=r"has 4 MiB left, and .* takes 16: make room"):
        Supervisor(False, {}).require_room()


def test_what_a_killed_supervisor_did_not_reach_is_not_graded(tmp_path):
    (tmp_path / supervise.FOUND).write_text('{"double": ""}')
    double, triple = supervise._read_results(tmp_path, LESSON, supervise.NOT_REACHED)
    assert (double.graded, double.points) == (True, 1)
    assert (triple.graded, triple.message[:10]) == (False, "not graded")
    late = supervise._read_results(tmp_path, LESSON, supervise.TOO_LONG.format(9))[1]
    assert late.graded


SET = """
import os, warnings, random
torch = __import__("torch")
torch.set_default_dtype(torch.float64)
torch.set_default_device("meta")
torch.set_grad_enabled(False)
torch.use_deterministic_algorithms(True)
__import__("numpy").seterr(all="raise")
warnings.simplefilter("error")
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
"""
PRECISE = "import torch\nrequire(torch.tensor(double(2.0)).dtype == torch.float32, 'Not {}.')"


def test_right_answers_beside_other_defaults_and_in_a_file_of_their_own():
    notebook = make_notebook(double=f"%%writefile mine.py\n{GOOD['double']}")
    cells = notebook.cells
    cells.insert(2, nbformat.v4.new_code_cell("from mine import double"))
    check = f"{IMPORT}\n{PRECISE}"
    about = {"grade_id": "check_double", "grade": True, "solution": False}
    cells.insert(3, nbformat.v4.new_code_cell("edited", metadata={"nbgrader": about}))
    cells.insert(3, nbformat.v4.new_code_cell(SET))
    exercises = tuple(replace(exercise, check=check) for exercise in LESSON.exercises[:1])
    lesson = replace(LESSON, exercises=(*exercises, LESSON.exercises[1]))
    assert [result.message for result in check_notebook(notebook, lesson, LIMITS)] == ["", ""]


def test_a_full_disk_is_not_the_students_fault(tmp_path):
    full = "raise OSError(28, 'No space left on device')"
    with pytest.raises(MachineFailure, match="make room for temporary files, or set TMPDIR"):
        check_notebook(make_notebook(double=f"{GOOD['double']}\n{full}"), LESSON, LIMITS)
