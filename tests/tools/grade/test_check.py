"""Whatever a student hands in: it is graded within limits, and the report says what happened."""

import copy
import json
from dataclasses import replace

import nbformat
import psutil
import pytest

from course_tools.grade.check import Limits, Result, check_notebook
from course_tools.grade.exercises import MANIFEST, find_exercises, find_notebook, format_manifest
from course_tools.grade.kernel import LimitedKernel
from course_tools.grade.progress import find_key, load_results, make_progress_table, store_results
from course_tools.grade.reading import read_submission
from course_tools.run.lessons import find_lessons
from course_utils.errors import CourseError
from tests.tools.conftest import find_cell

LESSON = "05_mixup"
LESSONS = find_exercises()
SOURCE = next(lesson for lesson in find_lessons() if lesson.name == LESSON).read()
MIXUP = next(lesson for lesson in LESSONS if lesson.name == LESSON)
LIMITS = Limits(time_s=20, memory_gib=3)  # less than 6: one test fills it


def answer(**sources):
    """The solved notebook with other answers; None takes the cell of an answer away."""
    notebook = copy.deepcopy(SOURCE)
    for name, source in sources.items():
        if source is None:
            notebook.cells.remove(find_cell(notebook, name))
        else:
            find_cell(notebook, name).source = source
    return notebook


def take(*names):
    """The lesson with no other exercises than these."""
    chosen = tuple(exercise for exercise in MIXUP.exercises if exercise.name in names)
    return replace(MIXUP, exercises=chosen)


def check(notebook):
    return {result.exercise: result for result in check_notebook(notebook, MIXUP, LIMITS)}


def test_solutions_pass_with_all_points():
    results = check(answer())
    assert set(results) == {exercise.name for exercise in MIXUP.exercises}
    assert all(result.points == result.out_of > 0 for result in results.values())
    assert not any(result.message for result in results.values())


def test_faults_are_said_in_a_sentence_and_stop_nothing():
    good, last = (find_cell(SOURCE, x).source for x in ("mix_each", "train_and_validate"))
    results = check(
        answer(
            mix_each="def mix_each(images:\n    return images",
            cut_mix="hoard = []\nwhile True:\n    hoard.append(bytearray(2**28))",
            train_and_validate=f"np.ones(2**27)  # 1 GiB\n{last}",
        )
    )
    assert results["mix_each"].message.startswith("The cell is not Python: ")
    assert "line 1" in results["mix_each"].message
    assert results["cut_mix"].message == "It needs more than 3 GiB of memory."
    assert results["train_and_validate"].message == ""
    results = check(
        answer(
            mix_each=good.replace("def mix_each", "def mixEach"),
            cut_mix="import os\nos._exit(1)",
            train_and_validate=None,
        )
    )
    assert results["mix_each"].message.startswith("mix_each is not defined: only the imports")
    assert results["cut_mix"].message.startswith("It took the kernel down")
    assert results["train_and_validate"].message.startswith("The cell of the answer is gone")


def test_an_endless_loop_ends_at_the_time_limit():
    loop = "def mix_each(*arguments):\n    while True:\n        pass"
    limits = Limits(time_s=3, memory_gib=6)
    lesson = take("mix_each", "cut_mix", "fmix_mask")
    notebook = answer(mix_each=loop, cut_mix="input('?')")
    endless, asking, right = check_notebook(notebook, lesson, limits)
    assert endless.message == "It ran longer than 3 s: is there a loop without end?"
    assert asking.message.startswith("It asks for input")
    assert right.message == ""


def test_deleted_check_cells_and_own_cells():
    """The checks are the course's; helpers below the exercises and own imports are executed."""
    notebook = answer(
        check_mix_each=None,
        mix_each="def mix_each(*a):\n    return helper(*a)",
        cut_mix="def cut_mix(*a):\n    return textwrap.dedent('wrong')",
    )
    imports = next(c for c in notebook.cells if "imports" in c.metadata.get("tags", []))
    imports.source += "\nimport textwrap"
    good = find_cell(SOURCE, "mix_each").source.replace("def mix_each", "def helper")
    place = notebook.cells.index(find_cell(notebook, "mix_each"))
    notebook.cells.insert(place, nbformat.v4.new_code_cell(good))
    results = check(notebook)
    assert results["mix_each"].message == ""
    assert results["cut_mix"].message
    assert "textwrap" not in results["cut_mix"].message


def test_progress_is_kept_until_an_answer_changes(tmp_path):
    results = check(answer(cut_mix=None))
    kept, key = list(results.values()), find_key(SOURCE, MIXUP)
    store_results(tmp_path, LESSON, key, kept)
    assert load_results(tmp_path, LESSON, key) == kept
    changed = answer(cut_mix="def cut_mix(): pass")
    assert load_results(tmp_path, LESSON, find_key(changed, MIXUP)) is None
    table = make_progress_table(LESSONS, tmp_path)
    cells = dict(zip(table.columns[0].cells, table.columns[2].cells, strict=True))
    assert list(cells) == [LESSON, "all"]  # lessons that were not checked yet are not listed
    reached = MIXUP.points - results["cut_mix"].out_of
    assert 0 < reached < MIXUP.points
    assert cells[LESSON] == f"{reached} of {MIXUP.points}"
    assert cells["all"] == f"{reached} of {sum(lesson.points for lesson in LESSONS)}"
    (tmp_path / f"{LESSON}.json").write_text("{")
    assert load_results(tmp_path, LESSON) is None


FAKES = {
    "another checks": "import types\nchecks = types.SimpleNamespace(check_mix_each=print)",
    "another check": "checks.check_mix_each = lambda answer: None",
    "a check in the package": "import lesson_code.mixup.checks as m\nm.check_mix_each = print",
    "a failure without a word": (
        "from course_utils.checking import CheckFailed\n"
        "def mix_each(*arguments):\n    raise CheckFailed"
    ),
}


@pytest.mark.parametrize("fake", FAKES.values(), ids=FAKES)
def test_the_easy_ways_to_fool_a_check_fail(fake):
    notebook = answer(mix_each=f"mix_each = 1\n{fake}")
    [result] = check_notebook(notebook, take("mix_each"), LIMITS)
    assert result.points == 0
    assert result.message


def test_exit_in_one_answer_costs_no_other():
    good = find_cell(SOURCE, "mix_each").source
    late = find_cell(SOURCE, "cut_mix").source
    results = check(
        answer(mix_each=f"{good}\nexit()", cut_mix=f"import time\ntime.sleep(1)\n{late}")
    )
    assert results["cut_mix"].message == results["train_and_validate"].message == ""


def test_a_trial_below_a_right_function_costs_nothing():
    good = find_cell(SOURCE, "mix_each").source
    results = check(answer(mix_each=f"{good}\nmix_each(images, targets)", cut_mix="images"))
    assert results["mix_each"].message == ""
    assert results["cut_mix"].message.startswith("images is not defined")


def test_two_cells_of_one_answer_are_said():
    notebook = answer()
    notebook.cells.append(copy.deepcopy(find_cell(SOURCE, "mix_each")))
    results = check(notebook)
    assert results["mix_each"].message.startswith("There are two cells of this answer")
    assert results["cut_mix"].message == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"nbformat": 5, "nbformat_minor": 0}',
        '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [1]}',
        '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "code"}]}',
    ],
)
def test_what_is_no_notebook_is_one_sentence(text, tmp_path):
    path = tmp_path / f"{LESSON}.ipynb"
    path.write_text(text)
    with pytest.raises(CourseError, match=r"is not a notebook .*: save it again") as found:
        read_submission(path)
    assert "\n" not in str(found.value)


def test_what_limits_had_a_part_in_is_not_kept(tmp_path):
    slow = [Result("mix_each", 0, 1, "It ran longer than 3 s: is there a loop without end?")]
    store_results(tmp_path, LESSON, "key", slow)
    assert load_results(tmp_path, LESSON, "key") is None
    assert load_results(tmp_path, LESSON) == slow  # the table shows it all the same


def test_a_cell_that_passes_once_and_never_again_harms_no_other(tmp_path):
    once = "import pathlib\nif pathlib.Path('x').exists():\n    exit()\npathlib.Path('x').touch()"
    with LimitedKernel("y = 1", str(tmp_path), time_s=20, memory_gib=6) as kernel:
        assert kernel.execute(once) == ""
        assert kernel.execute("z = y") == ""
        assert kernel.execute("exit()").startswith("It took the kernel down")
        assert kernel.execute("assert z == 1") == ""  # after a replay without the first cell


def test_no_process_of_an_answer_outlives_the_check(tmp_path):
    """A daemon has another parent and another session: it is found by its environment."""
    start = "import subprocess, sys\nsleep = [sys.executable, '-S', '-c', 'import time; "
    start += "time.sleep(300)']\npid = subprocess.Popen(sleep, start_new_session=True).pid\n"
    with LimitedKernel("", str(tmp_path), time_s=20, memory_gib=6) as kernel:
        assert kernel.execute(f"{start}print(pid, file=open('pid', 'w'))") == ""
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_a_file_that_grows_without_end_fills_no_disk(tmp_path):
    with LimitedKernel("", str(tmp_path), time_s=20, memory_gib=6) as kernel:
        problem = kernel.execute("open('large', 'wb').truncate(2**40)")
    assert problem == "The cell stopped with OSError: [Errno 27] File too large"


def test_a_package_that_an_answer_writes_is_not_imported_in_its_next_kernel(tmp_path):
    write = "import os\nos.mkdir('course_utils')\nopen('course_utils/__init__.py', 'w')"
    with LimitedKernel("import course_utils.files", str(tmp_path), time_s=20, memory_gib=6) as new:
        assert new.execute(write) == ""
        assert new.execute("exit()").startswith("It took the kernel down")
        assert new.execute("import course_utils.files") == ""


def test_escape_sequences_of_an_answer_do_not_reach_the_terminal(tmp_path):
    with LimitedKernel("", str(tmp_path), time_s=20, memory_gib=6) as kernel:
        problem = kernel.execute(r"raise ValueError('\x1b[2J \ud800')")
    assert problem.isprintable()


@pytest.mark.parametrize("words", ["05", "mixup", "05_mixup", "5"])
def test_a_lesson_to_check_is_found_by_number_and_name(words):
    assert find_notebook(words, LESSONS).name == "05_mixup.ipynb"


@pytest.mark.parametrize("word", ["", "77", "01"])
def test_a_lesson_without_exercises_is_no_lesson_to_check(word):
    others = [lesson for lesson in LESSONS if not lesson.name.startswith("01")]
    with pytest.raises(CourseError, match=rf"no lesson '{word}' with exercises: choose from 00_"):
        find_notebook(word, others)


@pytest.mark.parametrize(
    "change",
    [{"imports": None}, {"name": 5}, {"exercises": [{}]}, {"exercises": None}, {"cell_ids": 5}],
)
def test_a_damaged_manifest_is_one_sentence(change, tmp_path):
    manifest = json.loads(format_manifest([MIXUP]))
    assert find_exercises(write_manifest(tmp_path, manifest)) == [MIXUP]
    manifest["lessons"][0] |= change
    with pytest.raises(CourseError, match=r"is damaged .*: take it from the release again"):
        find_exercises(write_manifest(tmp_path, manifest))


def write_manifest(folder, manifest):
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("metadata", [None, "a word", {"solution": True}, {"grade_id": 5}])
def test_a_lesson_whose_exercises_are_damaged_is_named(metadata, tmp_path):
    notebook = answer()
    cell = find_cell(notebook, "check_cut_mix")
    if metadata is None:
        notebook.cells.remove(cell)
    else:
        cell.metadata["nbgrader"] = nbformat.from_dict(metadata)
    (tmp_path / "notebooks").mkdir()
    nbformat.write(notebook, tmp_path / "notebooks" / f"{LESSON}.ipynb")
    with pytest.raises(CourseError, match=r"05_mixup.ipynb: its exercises are damaged .* git"):
        find_exercises(tmp_path)
