"""Skip, resume, judge, record. Only tests that name `execute_lesson` start kernels."""

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import filelock
import nbformat
import psutil
import pytest
import torch

from course_tools.run import runner
from course_tools.run.execute import execute_lesson
from course_tools.run.record import read_course
from course_tools.run.runner import run_lessons
from course_utils.errors import CourseError
from course_utils.results import RECORDS, RUN_FIELDS, append_record
from tests.own_folder import write_images
from tests.tools.conftest import Pretend, interrupt

PASS = "print('fine')"
STAY = "import time; time.sleep(2)"  # until its memory has been looked at
CLAIM = "from course_utils.claims import claim; claim({text!r}, {holds}, value=0.5)"


def statuses(course):
    return {result.name: result.status for result in course.lessons}


def read(school, profile="smoke"):
    return read_course(school.build / profile / "course.json")


def run(school, execute=None, **options):
    """All lessons; without ``execute`` no kernel is started."""
    plan = school.plan(**options)
    return run_lessons(school.lessons, plan, school.console, execute=execute or school.execute)


def make_claim(kind, holds):
    return {"text": "it helps", "kind": kind, "holds": holds, "value": 0.5}


FAILED = {"status": "failed", "reason": "cell 2 of 2: ZeroDivisionError: division by zero"}
ROW = {
    "comparison": "c",
    "arm": "a",
    "seed": 0,
    "metrics": {"val_accuracy": 0.5},
    "time_s": 1.0,
    "examples_per_s": 9.0,
    "trainable_parameters": 1,
    "parameters": 2,
    "saved_bytes": 3,
    "history": [],
    "provenance": {},
}
RUN = f"""
from course_utils.results import append_record
row = {ROW}
append_record('run', row)
"""
PAPERMILL = "course_tools.run.execute.papermill.execute_notebook"


def test_lessons_are_executed_here_with_the_arguments_of_the_real_execution():
    names = [list(inspect.signature(f).parameters) for f in (execute_lesson, Pretend())]
    assert names[0] == names[1]
    assert inspect.signature(run_lessons).parameters["execute"].default is execute_lesson


def test_course_json_of_a_kernel_holds_what_it_promises(school):
    school.write(
        "01_one",
        CLAIM.format(text="a < b", holds=True),
        RUN,
        "import os, pathlib\n"
        "append_record('run', row | dict(history=[{'val_accuracy': 0.25}, {'val_accuracy': 0.5}],\n"
        "              epoch_ends_s=[0.50001, 1], settings={'data': 'shapes'}))",
        "assert not list(pathlib.Path('.').glob('*.ipynb'))  # an empty folder of its own",
        "assert os.environ['COURSE_PROFILE'] == 'smoke'; assert ALPHA == 3",
        STAY,
    )
    run(school, execute_lesson, parameters={"ALPHA": 3})
    course = json.loads((school.build / "smoke" / "course.json").read_text())
    assert set(course) == {
        "profile",
        "dataset",
        "first_seed",
        "hardware",
        "versions",
        "commit",
        "lessons",
        "earlier",
        "notebooks",
    }
    assert not (school.build / "smoke" / "state").exists()
    (lesson,) = course["lessons"]
    assert lesson["status"] == "passed"
    assert lesson["reason"] == ""
    assert lesson["key"] == school.plan(parameters={"ALPHA": 3}).key(school.lessons[0])
    assert lesson["time_s"] > 0
    assert len(lesson["cells_s"]) == 7  # of the lesson's own cells
    assert lesson["peak_memory_bytes"] > 2**20
    assert lesson["over_budget"] is False
    assert lesson["claims"] == [{"text": "a < b", "kind": "identity", "holds": True, "value": 0.5}]
    row, timed = lesson["runs"]  # of the same name: both are kept, as they ended
    assert set(row) == {*RUN_FIELDS, "settings", "curve"}
    assert (row["settings"], row["curve"]) == ({}, [])
    assert (timed["settings"], timed["curve"]) == ({"data": "shapes"}, [[0.5, 0.25], [1, 0.5]])
    executed = nbformat.read(school.build / "smoke" / "01_one.ipynb", as_version=4)
    assert [cell.execution_count for cell in executed.cells] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_the_records_of_a_killed_kernel_are_kept_up_to_there(school):
    claimed = CLAIM.format(text="a < b", holds=True)
    school.write("01_one", f"{claimed}\n{RUN}\nimport os; os._exit(1)", RUN)
    (entry,) = run(school, execute_lesson).lessons
    assert entry.status == "failed"
    assert entry.reason.startswith("cell 2 of 3: the kernel ended: was it killed, did it run out")
    assert [claim["text"] for claim in entry.claims] == ["a < b"]
    assert [row["arm"] for row in entry.runs] == ["a"]


@pytest.mark.parametrize("backend", ["Agg", "module://backend_interagg"], ids=["server", "PyCharm"])
def test_a_lesson_has_its_figures_and_its_asserts_whatever_the_shell_has_set(
    school, monkeypatch, backend
):
    for name, value in {"MPLBACKEND": backend, "PYTHONOPTIMIZE": "1", "SLURM_NTASKS": "2"}.items():
        monkeypatch.setenv(name, value)
    draw = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()"
    school.write("01_one", draw, "import os; assert 'SLURM_NTASKS' in os.environ, 'they ran'")
    (entry,) = run(school, execute_lesson).lessons
    assert entry.reason == "cell 3 of 3: AssertionError: they ran"
    executed = nbformat.read(school.build / "smoke" / "01_one.ipynb", as_version=4)
    outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", r"records\.jsonl, line 2 is damaged"),
        (
            '{"kind": "run", "record": {"arm": "a"}}',
            "a training was recorded without 'comparison'",
        ),
    ],
)
def test_a_lesson_that_damages_its_records_fails(school, monkeypatch, line, reason):
    def damage(source, output, *arguments, cwd, **options):
        append_record("run", ROW)
        with (Path(cwd) / "runs" / RECORDS).open("a") as file:
            file.write(f"{line}\n")
        executed = nbformat.read(source, as_version=4)
        for number, cell in enumerate(executed.cells, 1):
            cell.execution_count = number
        nbformat.write(executed, output)

    school.write("01_one", PASS)
    monkeypatch.setattr(PAPERMILL, damage)
    (entry,) = run(school, execute_lesson).lessons
    assert entry.status == "failed"
    assert re.search(reason, entry.reason)


def test_a_failing_lesson_is_named_and_does_not_stop_the_others(school):
    school.write("01_one", PASS)
    school.write("02_two", PASS)
    school.write("03_three", PASS)
    school.execute.results["02_two"] = FAILED
    course = run(school)
    assert statuses(course) == {"01_one": "passed", "02_two": "failed", "03_three": "passed"}
    assert course.lessons[1].reason == FAILED["reason"]
    assert [lesson.key != "" for lesson in course.lessons] == [True, False, True]
    assert read(school) == course


def test_a_false_identity_fails_in_the_kernel_and_the_notebook_is_kept_up_to_there(school):
    identity = CLAIM.format(text="x", holds=False)
    school.write("01_one", PASS, identity, PASS)
    (entry,) = run(school, execute_lesson).lessons
    assert entry.status == "failed"
    assert entry.reason == "cell 3 of 4: ClaimError: x does not hold (value 0.5)"
    assert entry.claims[0]["holds"] is False
    executed = nbformat.read(school.build / "smoke" / "01_one.ipynb", as_version=4)
    code = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [1, 2, 3, None]
    assert not list((school.build / "smoke").glob(".*.ipynb"))


@pytest.mark.parametrize(
    ("profile", "dataset", "status"),
    [
        ("quick", "photos", "failed"),
        ("smoke", "photos", "passed"),
        ("quick", "shapes", "passed"),
    ],
)
def test_a_false_effect_fails_where_it_was_promised(school, profile, dataset, status):
    school.write("01_one", PASS)
    school.execute.results["01_one"] = {"claims": [make_claim("effect", False)]}
    (entry,) = run(school, profile=profile, dataset=dataset).lessons
    assert entry.status == status
    assert entry.claims[0]["holds"] is False
    assert entry.reason == ("effect claim does not hold: it helps" if status == "failed" else "")


@pytest.mark.parametrize(
    ("profile", "gpu", "status"),
    [("smoke", None, "failed"), ("smoke", "a GPU", "passed"), ("full", None, "passed")],
)
def test_a_lesson_over_the_limit_of_memory_fails(school, monkeypatch, profile, gpu, status):
    monkeypatch.setattr(runner, "describe_hardware", lambda: {"gpu": gpu})
    school.write("01_one", PASS)
    school.execute.results["01_one"] = {"peak_memory_bytes": 3 * 2**30 + 2**28}
    options = {"profile": profile, "dataset": "shapes"}  # `full` would download the photographs
    (entry,) = run(school, **options).lessons
    assert entry.status == status
    if status == "failed":
        assert entry.reason == "it held 3.25 GiB of memory, the limit is 3 GiB"
        assert statuses(run(school, **options)) == {"01_one": "failed"}  # not skipped
        assert school.execute.executed == ["01_one", "01_one"]


def test_the_memory_of_a_kernel_is_measured_and_limited(school, monkeypatch):
    monkeypatch.setattr(runner, "MEMORY_LIMIT_BYTES", 2**20)
    monkeypatch.setattr(runner, "describe_hardware", lambda: {"gpu": None})
    school.write("01_one", STAY)
    (entry,) = run(school, execute_lesson).lessons
    assert entry.status == "failed"
    assert re.match(r"it held 0\.\d\d GiB of memory, the limit is 0\.", entry.reason)


@pytest.mark.parametrize(
    ("profile", "dataset", "budget_s", "over"),
    [
        ("quick", "photos", 0, True),
        ("quick", "photos", 100, False),
        ("smoke", "photos", 0, False),
        ("quick", "shapes", 0, False),
    ],
)
def test_a_lesson_over_its_budget_is_said_and_passes(school, profile, dataset, budget_s, over):
    school.write("01_one", PASS, budget_s=budget_s)
    (entry,) = run(school, profile=profile, dataset=dataset).lessons
    assert entry.status == "passed"
    assert entry.over_budget is over
    assert ("01_one: over its budget of 0 s" in school.console.export_text()) is over


def test_unchanged_lessons_are_skipped_with_their_results_changed_ones_run(school):
    school.write("01_one", PASS)
    school.write("02_two", PASS)
    school.write("03_three", PASS)
    school.execute.results["01_one"] = {"claims": [make_claim("identity", True)]}
    school.execute.results["03_three"] = FAILED
    first = run(school)
    school.write("02_two", PASS, PASS)
    second = run(school)
    assert statuses(second) == {"01_one": "skipped", "02_two": "passed", "03_three": "failed"}
    assert second.lessons[0].claims == first.lessons[0].claims == [make_claim("identity", True)]
    assert school.execute.executed[3:] == ["02_two", "03_three"]
    assert statuses(run(school, force=True))["01_one"] == "passed"


def test_another_seed_or_data_set_is_a_change(school):
    school.write("01_one", PASS)
    run(school)
    assert statuses(run(school))["01_one"] == "skipped"
    assert statuses(run(school, dataset="shapes"))["01_one"] == "passed"


def test_lessons_not_asked_for_keep_their_earlier_entry(school):
    school.write("01_one", PASS)
    school.write("02_two", PASS)
    one, two = school.lessons
    run_lessons([one], school.plan(), school.console, school.lessons, school.execute)
    course = run_lessons([two], school.plan(), school.console, school.lessons, school.execute)
    assert statuses(course) == {"01_one": "skipped", "02_two": "passed"}


def test_a_kernel_over_the_time_limit_is_ended(school):
    school.write("01_slow", "import time; time.sleep(60)")
    start = time.monotonic()
    course = run(school, execute_lesson, time_limit_s=3)
    assert time.monotonic() - start < 40
    assert statuses(course) == {"01_slow": "failed"}
    assert "cell 2 of 2: over the lesson's time limit of 0.05 minutes" in (course.lessons[0].reason)


def test_a_lesson_gets_the_parameters_the_settings_and_the_time_limit(school):
    school.write("01_one", PASS)
    run(school, parameters={"ALPHA": 3}, time_limit_s=7)
    assert school.execute.asked["01_one"] == {
        "environment": {
            "COURSE_PROFILE": "smoke",
            "COURSE_DATASET": "photos",
            "COURSE_FIRST_SEED": "0",
            "OMP_NUM_THREADS": str(torch.get_num_threads()),
        },
        "parameters": {"ALPHA": 3},
        "time_limit_s": 7,
    }
    run(school)  # other parameters are a change
    assert school.execute.asked["01_one"]["parameters"] == {}


@pytest.mark.parametrize(
    ("own", "given", "expected"),
    [("1.0", 2, 2.0), ("2e-3", 2, 2.0), ("1", 2, 2), ("0.5", "2", "2")],
)
def test_an_integer_is_a_float_where_the_lesson_has_one(
    school, own, given, expected
):  # own-dirichlet
    school.write("01_one", PASS, parameters=f"ALPHA = {own}  # of a distribution")
    run(school, parameters={"ALPHA": given})
    asked = school.execute.asked["01_one"]["parameters"]["ALPHA"]
    assert (asked, type(asked)) == (expected, type(expected))


def test_unknown_parameter_names_the_known_ones(school):
    school.write("01_one", PASS)
    with pytest.raises(CourseError, match="01_one has no parameter 'BETA': it has ALPHA"):
        run(school, parameters={"BETA": 3})
    assert not school.build.exists()


def test_two_runs_at_once_are_refused(school):
    school.write("01_one", PASS)
    run(school)
    before = (school.build / "smoke" / "course.json").read_text()
    with (
        filelock.FileLock(school.build / "smoke" / ".lock"),
        pytest.raises(CourseError, match="another course run is using"),
    ):
        run(school, force=True)
    assert (school.build / "smoke" / "course.json").read_text() == before


def test_no_space_is_said_before_anything_runs(school, monkeypatch):
    school.write("01_one", PASS)
    usage = type("Usage", (), {"free": 5 * 2**20})
    monkeypatch.setattr(runner.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(CourseError, match=r"5 MiB are free .* choose another folder with --build"):
        run(school)


def test_no_write_access(school, tmp_path):
    school.write("01_one", PASS)
    (tmp_path / "file").write_text("")
    school.build = tmp_path / "file" / "build"
    with pytest.raises(CourseError, match=r"cannot write to .* choose another folder with --build"):
        run(school)


KERNEL_FOR_THE_SECOND = """
from functools import partial
from pathlib import Path
from course_tools.cli import main as cli
from course_tools.run import runner
from course_tools.run.execute import execute_lesson
from tests.tools.conftest import School

school = School(Path({folder!r}))

def execute(lesson, *arguments, **options):
    chosen = execute_lesson if lesson.name == "02_two" else school.execute
    return chosen(lesson, *arguments, **options)

runner.run_lessons = partial(runner.run_lessons, execute=execute)
"""
KILLED = "runner.run_lessons(school.lessons, school.plan(), school.console)"


def test_kill_9_loses_nothing_that_was_finished_and_leaves_no_kernel(school, tmp_path):
    school.write("01_one", PASS)
    school.write("02_two", "import pathlib, time", "time.sleep(120)")
    script = KERNEL_FOR_THE_SECOND.format(folder=str(tmp_path)) + KILLED
    process = subprocess.Popen([sys.executable, "-c", script])
    finished = school.build / "smoke" / "course.json"
    deadline = time.monotonic() + 90
    half_written = school.build / "smoke" / ".02_two.ipynb"
    while not (finished.exists() and half_written.exists()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    kernels = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not psutil.wait_procs(kernels, timeout=20)[1]  # no kernel outlives its parent
    assert read(school).lessons[0].status == "passed"
    assert not (school.build / "smoke" / "02_two.ipynb").exists()
    school.write("02_two", PASS)
    course = run(school, execute_lesson)
    assert statuses(course) == {"01_one": "skipped", "02_two": "passed"}
    assert not half_written.exists()


def test_a_lesson_edited_while_it_runs_is_not_unchanged(school):
    def edit(lesson, *arguments, **options):
        school.write("01_one", "print('edited')")
        return school.execute(lesson, *arguments, **options)

    school.write("01_one", PASS)
    assert statuses(run(school, edit)) == {"01_one": "passed"}
    assert statuses(run(school)) == {"01_one": "passed"}
    assert statuses(run(school)) == {"01_one": "skipped"}


def test_a_failed_lesson_stays_in_the_record_until_it_passes(school):
    school.write("01_one", PASS)
    school.write("02_two", PASS)
    school.execute.results["02_two"] = FAILED
    run(school)
    first, plan = school.lessons[:1], school.plan()
    course = run_lessons(first, plan, school.console, school.lessons, school.execute)
    assert statuses(course) == {"01_one": "skipped", "02_two": "failed"}
    school.execute.results.clear()
    assert statuses(run(school)) == {"01_one": "skipped", "02_two": "passed"}


@pytest.mark.parametrize("content", ["{}", "[]", "null", '{"key": 1}', '{"lessons": [', "\0"])
def test_damaged_record_means_run_again(school, content):
    school.write("01_one", PASS)
    run(school)
    (school.build / "smoke" / "course.json").write_text(content)
    assert statuses(run(school)) == {"01_one": "passed"}
    assert school.execute.executed == ["01_one", "01_one"]


@pytest.mark.parametrize("damage", [{}, [], None, {"name": "02_two", "status": "fine"}])
def test_what_is_intact_in_a_damaged_record_is_kept(school, damage):
    school.write("01_one", PASS)
    school.write("02_two", PASS)
    run(school)
    path = school.build / "smoke" / "course.json"
    course = json.loads(path.read_text())
    course["lessons"][1] = damage
    path.write_text(json.dumps(course))
    assert statuses(run(school)) == {"01_one": "skipped", "02_two": "passed"}


@pytest.mark.parametrize("seed", [0, 5])
def test_each_data_set_and_first_seed_has_a_folder_of_its_own(school, tmp_path, seed):
    """A run on somebody's own images leaves the one of the seminar as it is."""
    school.write("01_one", PASS)
    school.write("02_two", PASS)
    run(school)
    before = {path: path.read_bytes() for path in (school.build / "smoke").glob("*.*")}
    images = [write_images(tmp_path / name / "mine", count=30) for name in ("one", "two")]
    for dataset in ["shapes", *map(str, images)]:
        plan = school.plan(dataset=dataset)
        plan = replace(plan, config=plan.config.replace(first_seed=seed))
        course = run_lessons(
            school.lessons[:1], plan, school.console, school.lessons, school.execute
        )
        assert statuses(course) == {"01_one": "passed"}
        assert read_course(plan.folder / "course.json") == course
    end = "-seed5" if seed else ""
    names = sorted(path.name for path in school.build.iterdir() if path.name != "smoke")
    assert len(names) == 3  # two folders have the same name, and are told apart
    assert names[2] == f"smoke-shapes{end}"
    assert all(re.fullmatch(rf"smoke-mine-[0-9a-f]{{6}}{end}", name) for name in names[:2])
    assert {path: path.read_bytes() for path in before} == before
    assert statuses(run(school)) == {"01_one": "skipped", "02_two": "skipped"}


def test_an_edit_that_is_taken_back_loses_no_lesson(school):
    school.write("01_one", PASS)
    path = school.write("02_two", PASS)
    run(school)
    first = school.lessons[:1]
    before = path.read_text()
    school.write("02_two", PASS, PASS)
    course = run_lessons(first, school.plan(), school.console, school.lessons, school.execute)
    assert statuses(course) == {"01_one": "skipped"}
    path.write_text(before)
    assert statuses(run(school)) == {"01_one": "skipped", "02_two": "skipped"}
    assert school.execute.executed == ["01_one", "02_two"]


def test_an_execution_that_was_interrupted_is_done_again(school):
    """Its notebook may be the new one already, while the record still has the old result."""

    def interrupt_it(*arguments, **options):
        raise KeyboardInterrupt

    school.write("01_one", PASS)
    run(school)
    with pytest.raises(KeyboardInterrupt):
        run(school, interrupt_it, force=True)
    assert [result.name for result in read(school).lessons] == ["01_one"]  # still to be seen
    assert statuses(run(school)) == {"01_one": "passed"}


def test_finished_lessons_are_in_the_record_when_a_later_one_is_interrupted(school):
    def interrupt_the_second(lesson, *arguments, **options):
        if lesson.name == "02_two":
            raise KeyboardInterrupt
        return school.execute(lesson, *arguments, **options)

    school.write("01_one", PASS)
    school.write("02_two", PASS)
    with pytest.raises(KeyboardInterrupt):
        run(school, interrupt_the_second)
    assert statuses(read(school)) == {"01_one": "passed"}
    assert statuses(run(school)) == {"01_one": "skipped", "02_two": "passed"}


def test_a_notebook_that_was_deleted_is_made_again(school):
    school.write("01_one", PASS)
    run(school)
    (school.build / "smoke" / "01_one.ipynb").unlink()
    assert statuses(run(school)) == {"01_one": "passed"}
    assert statuses(run(school)) == {"01_one": "skipped"}


def test_a_changed_folder_of_images_is_a_change(school, tmp_path):
    folder = write_images(tmp_path / "mine", count=31)  # two classes, 60 are enough
    school.write("01_one", PASS)
    assert statuses(run(school, dataset=str(folder))) == {"01_one": "passed"}
    assert statuses(run(school, dataset=str(folder))) == {"01_one": "skipped"}
    (folder / "train" / "cat" / "0.jpg").unlink()
    assert statuses(run(school, dataset=str(folder))) == {"01_one": "passed"}


def test_a_kernel_that_does_not_start_is_a_failed_lesson(school, monkeypatch):
    def refuse(*args, **kwargs):
        raise RuntimeError("Kernel died before replying to kernel_info")

    school.write("01_one", PASS)
    monkeypatch.setattr(PAPERMILL, refuse)
    (entry,) = run(school, execute_lesson).lessons
    assert entry.status == "failed"
    assert entry.reason == "no kernel: Kernel died before replying to kernel_info"


INTERRUPTED = """
import sys
cli.find_lessons = lambda: school.lessons
sys.argv = ['course', 'run', '--profile', 'smoke', '--build', str(school.build)]
cli.main()
"""


def test_interrupting_says_how_to_go_on(school, tmp_path, temporary):
    school.write("01_one", PASS)
    school.write("02_two", "import time; time.sleep(120)")
    script = KERNEL_FOR_THE_SECOND.format(folder=str(tmp_path)) + INTERRUPTED
    code, error = interrupt(script, school.build / "smoke" / ".02_two.ipynb")
    assert code == 130
    assert error == "course: interrupted; finished lessons are kept, run again to go on"
    assert statuses(read(school)) == {"01_one": "passed"}
    assert not list(temporary.glob("kernel-*"))


def test_lessons_that_time_nothing_run_side_by_side_with_a_thread_each(school):
    """Two of them wait for each other, which only works if both are executed at once."""
    wait = (
        "import pathlib, time\n"
        "here = pathlib.Path({folder!r}); (here / '{own}').touch()\n"
        "while not (here / '{other}').exists(): time.sleep(0.1)\n"
        "import os; print(os.environ['OMP_NUM_THREADS'])"
    )
    folder = str(school.notebooks.parent)
    school.write("01_one", wait.format(folder=folder, own="a", other="b"), budget_s=0)
    school.write("02_two", wait.format(folder=folder, own="b", other="a"), budget_s=0)
    school.write("03_broken", "1 / 0")
    school.write("04_timing", PASS, timing=True, budget_s=0)
    plan = school.plan(profile="quick", dataset="photos", jobs=2)
    course = run_lessons(school.lessons, plan, school.console, execute=school.execute)
    assert statuses(course) == {
        "01_one": "passed",
        "02_two": "passed",
        "03_broken": "failed",
        "04_timing": "passed",
    }
    assert [course.find(name).threads for name in ("01_one", "02_two")] == [1, 1]
    over = [entry.name for entry in course.lessons if entry.over_budget]
    assert over == ["04_timing"], "a budget is for a lesson alone"
    assert school.execute.executed == ["04_timing"], "it runs here, after the others"
    assert read(school, "quick") == course
    again = run_lessons(school.lessons, plan, school.console, execute=school.execute)
    assert statuses(again)["01_one"] == "skipped"


def test_without_time_nothing_is_begun_side_by_side(school):
    school.write("01_one", PASS)
    school.write("02_two", PASS)
    plan = school.plan(jobs=2, stop_after_s=-1)
    assert run_lessons(school.lessons, plan, school.console, execute=school.execute).lessons == []
    assert "the time is up (--stop-after): 01_one, 02_two" in school.console.export_text()
