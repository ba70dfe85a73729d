"""Whatever a student hands in: it is graded within limits, and the report says what happened."""

import copy
import json
from dataclasses import replace

import nbformat
import psutil
import pytest
from rich.console import Console

from course_tools.grade.check import Limits, Result, check_notebook
from course_tools.grade.exercises import (
    MANIFEST,
    Exercise,
    LessonExercises,
    find_exercises,
    find_notebook,
    format_manifest,
)
from course_tools.grade.kernel import LimitedKernel
from course_tools.grade.progress import (
    find_key,
    load_results,
    make_prediction_table,
    make_progress_table,
    store_results,
)
from course_tools.grade.reading import read_submission
from course_utils.errors import CourseError
from course_utils.predictions import FILE, compare_prediction, record_prediction
from tests.tools.conftest import find_cell
from tests.tools.toy_lessons import GOOD, make_answer, make_code, make_text, write_course

NAME = "01_numbers"
IMPORTS = "import numpy as np\nfrom course_utils import checking"
ANSWERS = GOOD | {"halve": "def halve(x):\n    return x / 2"}
RIGHT = {"double": 8, "triple": 12, "halve": 2}  # of 4
CHECK = "from course_utils import checking\nchecking.require({}(4) == {}, 'Not {}.')"
LESSON = LessonExercises(
    name=NAME,
    imports=IMPORTS,
    exercises=tuple(
        Exercise(name, points, CHECK.format(name, right, right))
        for points, (name, right) in enumerate(RIGHT.items(), 1)
    ),
    cell_ids=(),
)
LESSONS = [LESSON, replace(LESSON, name="05_sums")]
LIMITS = Limits(time_s=20, memory_gib=2)  # less than 6: one test fills it


def make_source():
    """The lesson with its solutions."""
    cells = [make_code(IMPORTS, tags=["imports"]), make_text("exercises", "## Exercises")]
    for name, source in ANSWERS.items():
        answer, check = make_answer(name, source)
        check.source = CHECK.format(name, RIGHT[name], RIGHT[name])
        cells += [answer, check]
    return nbformat.v4.new_notebook(cells=cells)


SOURCE = make_source()


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
    chosen = tuple(exercise for exercise in LESSON.exercises if exercise.name in names)
    return replace(LESSON, exercises=chosen)


def check(notebook):
    return {result.exercise: result for result in check_notebook(notebook, LESSON, LIMITS)}


def test_solutions_pass_with_all_points():
    results = check(answer())
    assert set(results) == set(ANSWERS)
    assert all(result.points == result.out_of > 0 for result in results.values())
    assert not any(result.message for result in results.values())


def test_faults_are_said_in_a_sentence_and_stop_nothing():
    results = check(
        answer(
            double="def double(x:\n    return x",
            triple="hoard = []\nwhile True:\n    hoard.append(bytearray(2**28))",
            halve=f"np.ones(2**26)  # 512 MiB\n{ANSWERS['halve']}",
        )
    )
    assert results["double"].message.startswith("The cell is not Python: ")
    assert "line 1" in results["double"].message
    assert results["triple"].message == "It needs more than 2 GiB of memory."
    assert results["halve"].message == ""
    results = check(
        answer(
            double=GOOD["double"].replace("def double", "def Double"),
            triple="import os\nos._exit(1)",
            halve=None,
        )
    )
    assert results["double"].message.startswith("double is not defined: only the imports")
    assert results["triple"].message.startswith("It took the kernel down")
    assert results["halve"].message.startswith("The cell of the answer is gone")


def test_an_endless_loop_ends_at_the_time_limit():
    loop = "def double(x):\n    while True:\n        pass"
    notebook = answer(double=loop, triple="input('?')")
    endless, asking, right = check_notebook(notebook, LESSON, Limits(time_s=3, memory_gib=6))
    assert endless.message == "It ran longer than 3 s: is there a loop without end?"
    assert asking.message.startswith("It asks for input")
    assert right.message == ""


def test_deleted_check_cells_and_own_cells():
    """The checks are the course's; helpers below the exercises and own imports are executed."""
    notebook = answer(
        check_double=None,
        double="def double(x):\n    return helper(x)",
        triple="def triple(x):\n    return textwrap.dedent('wrong')",
    )
    imports = next(c for c in notebook.cells if "imports" in c.metadata.get("tags", []))
    imports.source += "\nimport textwrap"
    place = notebook.cells.index(find_cell(notebook, "double"))
    helper = GOOD["double"].replace("def double", "def helper")
    notebook.cells.insert(place, nbformat.v4.new_code_cell(helper))
    results = check(notebook)
    assert results["double"].message == ""
    assert results["triple"].message == "Not 12."


def test_progress_is_kept_until_an_answer_changes(tmp_path):
    results = check(answer(triple=None))
    kept, key = list(results.values()), find_key(SOURCE, LESSON)
    store_results(tmp_path, NAME, key, kept)
    assert load_results(tmp_path, NAME, key) == kept
    changed = answer(triple="def triple(x): pass")
    assert load_results(tmp_path, NAME, find_key(changed, LESSON)) is None
    table = make_progress_table(LESSONS, tmp_path)
    cells = dict(zip(table.columns[0].cells, table.columns[2].cells, strict=True))
    assert list(cells) == [NAME, "all"]  # lessons that were not checked yet are not listed
    assert cells[NAME] == "4 of 6"
    assert cells["all"] == "4 of 12"
    (tmp_path / f"{NAME}.json").write_text("{")
    assert load_results(tmp_path, NAME) is None


IN_LESSON_CODE = Exercise(
    "mix_each", 1, "from lesson_code.mixup import checks\nchecks.check_mix_each(mix_each)"
)
FAKES = {
    "another checking": "import types\nchecking = types.SimpleNamespace(require=print)",
    "another require": "checking.require = lambda *arguments: None",
    "a check of a lesson": "import lesson_code.mixup.checks as m\nm.check_mix_each = print",
    "a failure without a word": (
        "from course_utils.checking import CheckFailed\n"
        "def double(x):\n    raise CheckFailed\nmix_each = double"
    ),
}


@pytest.mark.parametrize("fake", FAKES.values(), ids=FAKES)
def test_the_easy_ways_to_fool_a_check_fail(fake):
    """A check that stands in its cell, and one of `lesson_code`."""
    notebook = answer(double=f"double = abs\n{fake}")
    mix_each, _ = make_answer("mix_each", "mix_each = 1\n    pass")
    mix_each.source = f"mix_each = 1\n{fake}"
    notebook.cells.append(mix_each)
    lesson = replace(LESSON, exercises=(LESSON.exercises[0], IN_LESSON_CODE))
    for result in check_notebook(notebook, lesson, LIMITS):
        assert result.points == 0
        assert result.message


def test_exit_in_one_answer_costs_no_other():
    late = f"import time\ntime.sleep(1)\n{GOOD['triple']}"
    results = check(answer(double=f"{GOOD['double']}\nexit()", triple=late))
    assert results["triple"].message == results["halve"].message == ""


def test_a_trial_below_a_right_function_costs_nothing():
    results = check(answer(double=f"{GOOD['double']}\ndouble(images)", triple="images"))
    assert results["double"].message == ""
    assert results["triple"].message.startswith("images is not defined")


def test_two_cells_of_one_answer_are_said():
    notebook = answer()
    notebook.cells.append(copy.deepcopy(find_cell(SOURCE, "double")))
    results = check(notebook)
    assert results["double"].message.startswith("There are two cells of this answer")
    assert results["triple"].message == ""


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
    path = tmp_path / f"{NAME}.ipynb"
    path.write_text(text)
    with pytest.raises(CourseError, match=r"is not a notebook .*: save it again") as found:
        read_submission(path)
    assert "\n" not in str(found.value)


def test_what_limits_had_a_part_in_is_not_kept(tmp_path):
    slow = [Result("double", 0, 1, "It ran longer than 3 s: is there a loop without end?")]
    store_results(tmp_path, NAME, "key", slow)
    assert load_results(tmp_path, NAME, "key") is None
    assert load_results(tmp_path, NAME) == slow  # the table shows it all the same


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


@pytest.mark.parametrize("words", ["05", "sums", "05_sums", "5"])
def test_a_lesson_to_check_is_found_by_number_and_name(words):
    assert find_notebook(words, LESSONS).name == "05_sums.ipynb"


@pytest.mark.parametrize("word", ["", "77", "05"])
def test_a_lesson_without_exercises_is_no_lesson_to_check(word):
    with pytest.raises(CourseError, match=rf"no lesson '{word}' with exercises: choose from 01_"):
        find_notebook(word, [LESSON])


@pytest.mark.parametrize(
    "change",
    [{"imports": None}, {"name": 5}, {"exercises": [{}]}, {"exercises": None}, {"cell_ids": 5}],
)
def test_a_damaged_manifest_is_one_sentence(change, tmp_path):
    manifest = json.loads(format_manifest([LESSON]))
    assert find_exercises(write_manifest(tmp_path, manifest)) == [LESSON]
    manifest["lessons"][0] |= change
    with pytest.raises(CourseError, match=r"is damaged .*: take it from the release again"):
        find_exercises(write_manifest(tmp_path, manifest))


def write_manifest(folder, manifest):
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("metadata", [None, "a word", {"solution": True}, {"grade_id": 5}])
def test_a_lesson_whose_exercises_are_damaged_is_named(metadata, tmp_path):
    path = write_course(tmp_path / "notebooks")[1].path
    notebook = nbformat.read(path, as_version=4)
    cell = find_cell(notebook, "check_triple")
    if metadata is None:
        notebook.cells.remove(cell)
    else:
        cell.metadata["nbgrader"] = nbformat.from_dict(metadata)
    nbformat.write(notebook, path)
    with pytest.raises(CourseError, match=r"01_numbers.ipynb: its exercises are damaged .* git"):
        find_exercises(tmp_path)


def test_all_predictions_stand_beside_what_the_lessons_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not make_prediction_table(FILE).rows
    record_prediction("01_baseline", noise=2)
    compare_prediction(record_prediction("03_lora", memory_share=0.1), memory_share=0.42)
    text = Console(width=100)
    with text.capture() as captured:
        text.print(make_prediction_table(FILE))
    lines = [line.split() for line in captured.get().splitlines()]
    assert ["01_baseline", "noise", "2", "–"] in lines
    assert ["03_lora", "memory", "share", "0.1", "0.42"] in lines
