"""Submissions that are odd or hostile."""

import csv
import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from functools import partial

import nbformat
import psutil
import pytest

from course_tools.cli import students
from course_tools.grade import check, exercises, kernel, sandbox, supervise
from course_tools.grade import grade as grade_module
from course_tools.grade.check import Limits, Result
from course_tools.grade.exercises import find_exercises, find_notebook, format_manifest
from course_tools.grade.grade import Graded, grade_submissions
from course_tools.grade.grades import write_grades
from course_tools.grade.progress import load_results, make_progress_table
from course_tools.grade.reading import read_submission
from course_tools.grade.sandbox import find_sandbox
from course_tools.grade.supervise import Supervisor
from course_tools.publish.release import clear_solutions
from course_tools.run.lessons import find_lessons
from course_utils.errors import CourseError
from course_utils.files import ROOT, write_atomically
from tests.tools.conftest import assert_one_line
from tests.tools.grade.conftest import GOOD, LESSON, STUBS, hand_in

LIMITS = Limits(time_s=300, memory_gib=3)  # no cell is without end; the machine may be busy


def read_rows(path):
    with path.open(encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def grade(course, tmp_path, monkeypatch):
    """Run ``course grade`` on what `hand_in` has put there; no notebook needs a kernel.

    Returns what is printed and the rows of the table.
    """

    def run(*options):
        table = tmp_path / "out" / "grades.csv"
        folder = str(tmp_path / "submitted")
        status, printed, _ = course("grade", folder, "--output", str(table), *options)
        assert status == 1
        return printed, read_rows(table)

    return run


def write_broken(tmp_path, name):
    path = tmp_path / "submitted" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("no notebook")


# --- names and files -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("student", "shown"),
    [
        pytest.param("\x1b]0;title\x07\x1b[31mann", "�]0;title��[31mann", id="escape"),
        pytest.param("=SUM(1)", "'=SUM(1)", id="formula"),
        pytest.param("@x", "'@x", id="at"),
        pytest.param("-1+1", "'-1+1", id="minus"),
        pytest.param("＝1+1", "'＝1+1", id="own-wide"),  # some spreadsheets take it for =
        pytest.param("[red]ann", "[red]ann", id="markup"),
        pytest.param("ann\nbob", "ann bob", id="newline"),
        (os.fsdecode(b"Jos\xe9"), r"Jos\xe9"),
        pytest.param("a" * 250, "a" * 250, id="own-long"),
    ],
)
def test_names_of_students(grade, tmp_path, student, shown):
    write_broken(tmp_path, f"{student}/05_mixup.ipynb")
    write_broken(tmp_path, "zoe/05_mixup.ipynb")
    printed, rows = grade()
    assert {row["student"] for row in rows} == {shown, "zoe"}
    assert all(line.isprintable() for line in printed.splitlines())
    assert (tmp_path / "out" / "grades_feedback" / student / "feedback.txt").is_file()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param("05_mixup.IPYNB", "is not a notebook", id="capitals"),
        pytest.param("05_mixup.ipynb.txt", "is not a notebook", id="txt"),
        pytest.param("report.pdf", "no notebook, only report.pdf is there", id="other"),
        pytest.param("all.zip", "no notebook, only all.zip is there", id="own-zip"),
    ],
)
def test_odd_files_get_a_row_and_a_sentence(grade, tmp_path, name, sentence):
    write_broken(tmp_path, f"ann/{name}")
    printed, rows = grade()
    assert sentence in printed
    assert all(sentence in row["what_happened"] for row in rows)


def test_an_empty_folder_and_a_folder_called_like_a_notebook(grade, tmp_path):
    (tmp_path / "submitted" / "ann").mkdir(parents=True)
    (tmp_path / "submitted" / "bob" / "05_mixup.ipynb").mkdir(parents=True)
    _, rows = grade()
    what = {row["student"]: row["what_happened"] for row in rows}
    assert what == dict.fromkeys(("ann", "bob"), "no notebook, nothing is there")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes on its disks")
def test_a_named_pipe_is_not_waited_for(grade, course, tmp_path):
    pipe = tmp_path / "submitted" / "ann" / "05_mixup.ipynb"
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    printed, rows = grade()
    assert "ann · 05_mixup: it is no file: hand in a notebook" in printed
    assert {row["points"] for row in rows} == {"0"}
    status, printed, _ = course("check", str(pipe))
    assert status == 1
    assert "is no file: give the path of an .ipynb file" in printed


@pytest.mark.parametrize("what", ["notebook", "folder", "student", "dangling"])
def test_links_are_refused(grade, tmp_path, what):
    submitted = tmp_path / "submitted"
    (submitted / "ann").mkdir(parents=True)
    links = {
        "notebook": ("ann/05_mixup.ipynb", ROOT / "notebooks" / "05_mixup.ipynb"),
        "folder": ("ann/05_mixup", ROOT / "notebooks"),
        "student": ("bob", ROOT / "notebooks"),
        "dangling": ("ann/05_mixup.ipynb", tmp_path / "nowhere.ipynb"),
    }
    name, target = links[what]
    (submitted / name).symlink_to(target)
    printed, rows = grade()
    assert "it is a link: hand in the file itself" in printed
    assert {row["points"] for row in rows} == {"0"}


def test_a_file_that_would_fill_the_memory_is_not_read(tmp_path):
    path = tmp_path / "05_mixup.ipynb"
    with path.open("wb") as file:
        file.truncate(2**40)  # it takes no place on the disk
    with pytest.raises(CourseError, match="has more than 256 MiB: clear its outputs"):
        read_submission(path)


@pytest.mark.parametrize(
    "content",
    [
        b"\xc4\x85\x00binary",
        b"",
        b"[]",
        b"{}",
        b"null",
        b'{"nbformat": 99, "nbformat_minor": 0, "cells": []}',
        b'{"nbformat": 4, "nbformat_minor": 5, "metadata": 3, "cells": 7}',
        pytest.param(b"[" * 100_000, id="nested"),
        pytest.param('{"nbformat": 4}'.encode("utf-16"), id="utf16"),
    ],
)
def test_a_damaged_notebook_is_one_sentence(course, tmp_path, content):
    path = tmp_path / "05_mixup.ipynb"
    path.write_bytes(content)
    status, printed, _ = course("check", str(path))
    assert status == 1
    assert "is not a notebook" in printed
    assert "save it again in Jupyter" in printed


def test_a_notebook_that_an_editor_of_windows_saved_is_read(tmp_path):  # own
    path = tmp_path / "05_mixup.ipynb"
    text = (ROOT / "notebooks" / path.name).read_text(encoding="utf-8")
    path.write_bytes(text.replace("\n", "\r\n").encode("utf-8-sig"))
    cells = nbformat.reads(text, as_version=4).cells
    assert [x.source for x in read_submission(path).cells] == [x.source for x in cells]


def test_a_formula_as_message_is_text(tmp_path):
    result = Result("mix_each", 0, 1, "=HYPERLINK(1)")
    entry = Graded("ann", "ann", "05_mixup", "05_mixup.ipynb", (result,))
    write_grades([entry], tmp_path / "grades.csv")
    [row] = read_rows(tmp_path / "grades.csv")
    assert row["what_happened"] == "'=HYPERLINK(1)"
    assert (tmp_path / "grades.csv").read_bytes().startswith(b"\xef\xbb\xbf")


# --- a student's progress ---------------------------------------------------------------------

RESULT = {"exercise": "mix_each", "points": 1, "out_of": 1, "message": ""}


@pytest.mark.parametrize(
    "change",
    [
        {"points": "a word"},
        {"message": None},
        {"points": float("nan")},
        pytest.param({"points": 7}, id="own-more"),
        pytest.param({"points": -1}, id="own-less"),
        pytest.param({"points": True}, id="own-bool"),
    ],
)
def test_damaged_progress_is_no_progress(tmp_path, change):
    lessons = find_exercises()
    for name in ("04_warmup_cosine", "05_mixup"):  # of another lesson too
        entry = {"key": "k", "results": [RESULT | change]}
        (tmp_path / f"{name}.json").write_text(json.dumps(entry))
    assert load_results(tmp_path, "05_mixup", "k") is None
    table = make_progress_table(lessons, tmp_path)
    assert list(table.columns[2].cells) == [f"0 of {sum(x.points for x in lessons)}"]


@pytest.mark.parametrize("text", ['{"key": "k", "res', "[]", "5", "[" * 100_000])
def test_truncated_progress_is_no_progress(tmp_path, text):
    (tmp_path / "05_mixup.json").write_text(text)
    assert load_results(tmp_path, "05_mixup", "k") is None


def test_an_empty_word_is_no_lesson_to_check(course):  # for check
    status, printed, _ = course("check", "")
    assert status == 1
    assert "no lesson '' with exercises: choose from" in printed


# --- the sandbox, where there is none -----------------------------------------------------------


def test_a_sandbox_that_is_asked_for_and_missing_is_refused(course, tmp_path, monkeypatch):
    write_broken(tmp_path, "ann/05_mixup.ipynb")
    monkeypatch.setattr(sandbox, "PROGRAM", "no-such-program")
    asked = ("grade", str(tmp_path / "submitted"), "--output", str(tmp_path / "grades.csv"))
    assert_one_line(course(*asked, "--sandbox"), "no sandbox, no-such-program is not installed")
    assert not (tmp_path / "grades.csv").exists()
    status, printed, _ = course(*asked)
    assert (status, "no sandbox, no-such-program is not installed" in printed) == (1, True)
    _, printed, _ = course(*asked, "--no-sandbox")
    assert "no sandbox, as you asked: answers run with your rights" in printed


# --- answers that attack the grading --------------------------------------------------------------

SLEEP = "import time; time.sleep(300)"


def read_pid_free(mark):
    """Processes that an answer of this test left behind."""
    return [p for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or [])]


def attack(source):
    """A right answer that does something else first."""
    return f"{source}\n{GOOD['double']}"


@pytest.fixture(scope="module")
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture(scope="module", params=["plain", "sandbox"])
def hostile(request, tmp_path_factory, server):
    """A class whose students attack one another; what became of each, and of the course.

    ``double`` of most is right only if the attack succeeds.
    """
    if request.param == "sandbox":
        found, missing = find_sandbox(None)
        if not found:
            pytest.skip(missing)
    folder = tmp_path_factory.mktemp(request.param)
    submitted, course, mark = folder / "submitted", folder / "course", uuid.uuid4().hex
    (course / "course_utils").mkdir(parents=True)
    (course / "course_utils" / "checks.py").write_text("right = True")
    (folder / "mine.txt").write_text("mine")
    tamper = "import course_utils.checking.checking as m\n"
    tamper += "def write(path):\n    with open(path, 'a') as file:\n"
    tamper += "        file.write('\\ndef require(*a): pass\\n')\nwrite(m.__file__)"
    start = f"import subprocess, sys\nsleep = [sys.executable, '-S', '-c', {SLEEP!r}, {mark!r}]\n"
    daemon = start + "subprocess.Popen(sleep, start_new_session=True)"
    respawn = (
        "import os\nif os.fork() == 0:\n    os.setsid()\n    import subprocess, sys, time\n"
        f"    code = 'import subprocess, sys, time\\nfor _ in range(300):\\n    time.sleep(1)'\n"
        f"    subprocess.Popen([sys.executable, '-S', '-c', code, {mark!r}])\n    os._exit(0)"
    )
    hand_in(submitted, "a_tamper/01_numbers.ipynb", double=f"{GOOD['double']}\n{tamper}")
    victim = str(course / "course_utils" / "checks.py")
    hand_in(submitted, "b_clone/01_numbers.ipynb", double=attack(f"open({victim!r}, 'w')"))
    kill = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time; time.sleep(9)"
    hand_in(submitted, "c_kill/01_numbers.ipynb", triple=kill)
    hand_in(submitted, "d_daemon/01_numbers.ipynb", double=attack(daemon))
    hand_in(submitted, "e_respawn/01_numbers.ipynb", double=attack(respawn))
    lesson = str(ROOT / "notebooks" / "05_mixup.ipynb")
    hand_in(submitted, "f_read/01_numbers.ipynb", double=attack(f"open({lesson!r})"))
    others = str(submitted / "z_good")
    hand_in(
        submitted, "g_copy/01_numbers.ipynb", double=attack(f"import os; os.listdir({others!r})")
    )
    mine = f"import os; os.remove({str(folder / 'mine.txt')!r})"
    hand_in(submitted, "h_delete/01_numbers.ipynb", double=attack(mine))
    connect = f"import socket; socket.create_connection(('127.0.0.1', {server}), 5)"
    hand_in(submitted, "i_network/01_numbers.ipynb", double=attack(connect))
    see = f"import psutil; psutil.Process({os.getpid()})"
    hand_in(submitted, "j_processes/01_numbers.ipynb", double=attack(see))
    hand_in(submitted, "y_stubs/01_numbers.ipynb", **STUBS)
    hand_in(submitted, "z_good/01_numbers.ipynb")
    graded = grade_submissions(
        submitted, [LESSON], LIMITS, Supervisor(request.param == "sandbox"), root=course
    )
    left = read_pid_free(mark)
    for process in left:
        process.kill()
    return request.param, {entry.student: entry for entry in graded}, left, folder


@pytest.mark.faults
def test_no_answer_changes_the_marks_of_another(hostile):
    _, graded, _, _ = hostile
    assert (graded["y_stubs"].points, graded["z_good"].points) == (0, 3)
    assert graded["y_stubs"].problem == graded["z_good"].problem == ""


@pytest.mark.faults
def test_an_answer_that_changes_the_checks_gains_nothing(hostile):
    mode, graded, _, _ = hostile
    entry = graded["a_tamper"]
    if mode == "sandbox":  # it could not write, and its function is right
        assert (entry.points, entry.problem) == (3, "")
    else:
        assert entry.points == 0
        assert entry.problem.startswith("an answer changed the course's own files (course_utils/")


@pytest.mark.faults
def test_the_course_is_not_changed_or_it_is_said(hostile):
    mode, graded, _, folder = hostile
    text = (folder / "course" / "course_utils" / "checks.py").read_text()
    if mode == "sandbox":
        assert (text, graded["b_clone"].alarm) == ("right = True", "")
        assert (folder / "mine.txt").exists()
    else:  # as docs/teaching.md says
        assert graded["b_clone"].alarm.startswith("while it was graded, course_utils/checks.py")


@pytest.mark.faults
def test_an_answer_that_kills_its_parent_costs_only_what_comes_after(hostile):
    _, graded, _, _ = hostile
    messages = [result.message for result in graded["c_kill"].results]
    assert messages[0] == ""
    assert messages[1].startswith("not graded: an answer, or the machine, ended")


@pytest.mark.faults
def test_no_process_outlives_the_grading(hostile):
    _, graded, left, _ = hostile
    assert left == []
    assert graded["d_daemon"].points == 3


@pytest.mark.faults
def test_what_each_mode_promises(hostile):
    mode, graded, _, _ = hostile
    attacks = ("b_clone", "f_read", "g_copy", "h_delete", "i_network", "j_processes")
    lost = {student for student in attacks if graded[student].points < 3}
    assert lost == (set(attacks) if mode == "sandbox" else set())


@pytest.mark.faults
def test_the_grading_leaves_no_folder(temporary, tmp_path):
    kill = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time; time.sleep(9)"
    hand_in(tmp_path / "submitted", "ann/01_numbers.ipynb", double=kill)
    grade_submissions(tmp_path / "submitted", [LESSON], LIMITS, Supervisor(False), root=tmp_path)
    assert list(temporary.iterdir()) == []


@pytest.mark.faults
def test_a_whole_notebook_has_a_limit_of_time(tmp_path, monkeypatch):
    """Not only each cell: own cells may be many."""
    monkeypatch.setattr(supervise, "STARTING_S", 10)
    path = hand_in(tmp_path / "submitted", "ann/01_numbers.ipynb")
    notebook = nbformat.read(path, as_version=4)
    own = [nbformat.v4.new_code_cell("import time; time.sleep(1.5)") for _ in range(200)]
    notebook.cells[2:2] = own
    nbformat.write(notebook, path)
    limits = Limits(time_s=5, memory_gib=3)
    check = Supervisor(False)
    [entry] = grade_submissions(tmp_path / "submitted", [LESSON], limits, check, root=tmp_path)
    assert entry.results[1].message == "Not checked: the notebook took longer than 40 s altogether."


@pytest.mark.faults
def test_a_machine_that_is_too_busy_is_said(tmp_path, monkeypatch):
    """It is not a loop of the student's."""
    monkeypatch.setattr(kernel, "STARTING_S", 30)
    slow = kernel.LimitedKernel(
        "import time; time.sleep(99)", str(tmp_path), time_s=9, memory_gib=6
    )
    with slow, pytest.raises(CourseError, match="longer than 30 s, so try again when less runs"):
        slow.execute("1")


def test_messages_that_an_answer_writes_itself_are_read_with_suspicion(tmp_path):
    """A number that is no message, an exercise that does not exist, a file of a gigabyte."""
    for content in (b"5", b'{"double": 5, "other": ""}', b"[" * 10**5, b'{"a": "' + b"x" * 2**21):
        (tmp_path / supervise.FOUND).write_bytes(content)
        [double, triple] = supervise._read_results(tmp_path, LESSON, "not reached")
        assert double.message == triple.message == "not reached"
    (tmp_path / supervise.FOUND).unlink()
    os.mkfifo(tmp_path / supervise.FOUND)
    assert supervise.read_messages(tmp_path / supervise.FOUND) == {}


@pytest.mark.faults
def test_a_table_that_cannot_be_written_is_refused_before_the_grading(course, tmp_path):  # own
    write_atomically(tmp_path / "subs" / "ann" / "05_mixup.ipynb", "no notebook")
    asked = ["grade", str(tmp_path / "subs"), "--output"]
    assert_one_line(course(*asked, str(tmp_path)), "is a folder: name a file with --output")
    among = str(tmp_path / "subs" / "grades.csv")  # its feedback would be graded as a student
    assert_one_line(course(*asked, among), "lies among the submissions: name a file elsewhere")
    assert [path.name for path in (tmp_path / "subs").iterdir()] == ["ann"]


def test_the_command_grades_a_renamed_lesson(tmp_path):
    """In a process of its own, from another folder, in the sandbox where there is one."""
    path = tmp_path / "submitted" / "ben" / "homework (1).ipynb"
    path.parent.mkdir(parents=True)
    shutil.copy(ROOT / "notebooks" / "01_baseline.ipynb", path)
    command = [sys.executable, "-m", "course_tools", "grade", "submitted", "--output"]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "x/grades.csv"], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ben · 01_baseline: 7 of 7 points" in done.stdout
    names = {found.name for found in (tmp_path / "x").iterdir()}
    assert names == {"grades.csv", "grades_totals.csv", "grades_feedback"}


# --- the command `check`, and folders that cannot be written ----------------------------------


@pytest.fixture
def untouched(tmp_path, monkeypatch):
    """A students' course where nobody has begun anything; no kernel can be started."""
    lessons = find_exercises()
    (tmp_path / "student" / "notebooks").mkdir(parents=True)
    (tmp_path / "student" / "exercises.json").write_text(format_manifest(lessons))
    for lesson in find_lessons():
        notebook = clear_solutions(lesson.read())
        nbformat.write(notebook, tmp_path / "student" / "notebooks" / lesson.path.name)
    for function in (find_exercises, find_notebook):
        here = partial(function, root=tmp_path / "student")
        monkeypatch.setattr(exercises, function.__name__, here)
    monkeypatch.setattr(students, "BUILD", tmp_path / "build")
    monkeypatch.setattr(check, "LimitedKernel", None)
    return tmp_path


def test_a_course_that_nobody_has_begun_is_checked_in_a_few_lines(course, untouched):
    status, printed, _ = course("check")
    assert status == 1
    assert "not begun yet: 00_start_here, 01_baseline, " in printed
    assert len(printed.splitlines()) < 10
    _, printed, _ = course("check", "05")
    assert "– not written yet: mixing_experiment, mix_each, cut_mix" in printed


def test_a_course_that_cannot_be_written_is_checked_all_the_same(course, untouched):
    (untouched / "build").write_text("a file in the folder's place")
    status, printed, _ = course("check", "05")
    assert status == 1
    assert "results are shown, and not kept" in printed.splitlines()[0]
    assert "– not written yet: mixing_experiment" in printed


@pytest.mark.parametrize("blocked", ["x", "x/y", "x/g_feedback"])
def test_a_table_that_cannot_be_written_is_said_before_anything_runs(
    course, tmp_path, monkeypatch, blocked
):
    write_broken(tmp_path, "ann/05_mixup.ipynb")
    place = tmp_path / "out [v2]" / blocked
    place.parent.mkdir(parents=True)
    place.write_text("a file in the folder's place")
    monkeypatch.setattr(grade_module, "grade_submissions", None)
    folder = tmp_path / "out [v2]" / ("x/y" if blocked == "x/y" else "x")
    table = str(folder / "g.csv")
    asked = ("grade", str(tmp_path / "submitted"), "--output", table)
    assert_one_line(course(*asked), r"(Not a directory|File exists): .*out \[v2\]/x")


def test_brackets_in_a_path_are_no_markup(course, tmp_path):
    write_broken(tmp_path, "ann/05_mixup.ipynb")
    table = tmp_path / "b[/bold] [v2]" / "grades.csv"
    _, printed, error = course("grade", str(tmp_path / "submitted"), "--output", str(table))
    assert error == ""
    assert str(table) in printed


def test_the_help_of_a_students_course_shows_what_students_need(tmp_path):
    """In a process of its own: the commands are registered when they are imported."""
    code = (
        "import pathlib, sys; exists = pathlib.Path.exists\n"
        "pathlib.Path.exists = lambda self: self.name == 'exercises.json' or exists(self)\n"
        "sys.argv = ['course', '--help']\nfrom course_tools.cli import main as cli\ncli.main()"
    )
    variables = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False
    )
    shown = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("│ ")}
    assert {"check", "doctor", "lab", "list", "race", "run"} <= shown, done.stderr
    assert not {"grade", "release", "slides", "site", "plan", "sync", "pretrain"} & shown
