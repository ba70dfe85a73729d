import json
import os
import re
import signal
import subprocess
import sys
import time

import filelock
import nbformat
import psutil
import pytest

from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.results import RUN_FIELDS, LessonResult
from course_utils.tools.run import runner
from course_utils.tools.run.record import read_course
from course_utils.tools.run.runner import run_lessons
from tests.tools.conftest import interrupt
from tests.unit.data.test_image_data import write_images

PASS = "print('fine')"
STAY = "import time; time.sleep(2)"  # until its memory has been looked at
CLAIM = "from course_utils.claims import claim; claim({text!r}, {holds}, value=0.5, kind={kind!r})"


def statuses(course):
    return {result.name: result.status for result in course.lessons}


def read(school, profile="smoke"):
    return read_course(school.build / profile / "course.json")


def run(school, **options):
    return run_lessons(school.lessons, school.plan(**options), school.console)


@pytest.fixture
def executions(monkeypatch):
    """Let the runner only pretend to execute lessons; the names of those it did, in order."""
    names = []

    def pretend(lesson, output, work, **options):
        names.append(lesson.name)
        write_atomically(output, lesson.path.read_text())
        return LessonResult(lesson.name, time_s=1.0, peak_memory_bytes=1, claims=[], runs=[])

    monkeypatch.setattr(runner, "execute_lesson", pretend)
    return names


RUN = """
from course_utils.results import append_record
row = dict(comparison='c', arm='a', seed=0, metrics={'val_accuracy': 0.5}, time_s=1.0,
           images_per_s=9.0, trainable_parameters=1, parameters=2, saved_bytes=3,
           history=[], provenance={})
append_record('run', row)
"""


def test_course_json_holds_what_it_promises(school):
    school.write(
        "01_one",
        CLAIM.format(text="a < b", holds=True, kind="identity"),
        RUN,
        "import os, pathlib\n"
        "append_record('run', row | dict(history=[{'val_accuracy': 0.25}, {'val_accuracy': 0.5}],\n"
        "              epoch_ends_s=[0.50001, 1], settings={'data': 'shapes'}))",
        "assert not list(pathlib.Path('.').glob('*.ipynb'))  # an empty folder of its own",
        "assert os.environ['COURSE_PROFILE'] == 'smoke'",
        STAY,
    )
    run(school)
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
    }
    assert not (school.build / "smoke" / "state").exists()
    (lesson,) = course["lessons"]
    assert lesson["status"] == "passed"
    assert lesson["reason"] == ""
    assert lesson["key"] == school.plan().key(school.lessons[0])
    assert lesson["time_s"] > 0
    assert lesson["peak_memory_bytes"] > 2**20
    assert lesson["over_budget"] is False
    assert lesson["claims"] == [{"text": "a < b", "kind": "identity", "holds": True, "value": 0.5}]
    row, timed = lesson["runs"]  # of the same name: both are kept, as they ended
    assert set(row) == {*RUN_FIELDS, "settings", "curve"}
    assert (row["settings"], row["curve"]) == ({}, [])
    assert (timed["settings"], timed["curve"]) == ({"data": "shapes"}, [[0.5, 0.25], [1, 0.5]])
    executed = nbformat.read(school.build / "smoke" / "01_one.ipynb", as_version=4)
    assert [cell.execution_count for cell in executed.cells] == [1, 2, 3, 4, 5, 6, 7]


def test_the_records_of_a_killed_lesson_are_kept_up_to_there(school):
    claimed = CLAIM.format(text="a < b", holds=True, kind="effect")
    school.write("01_one", f"{claimed}\n{RUN}\nimport os; os._exit(1)", RUN)
    (entry,) = run(school).lessons
    assert entry.status == "failed"
    assert "the kernel died" in entry.reason
    assert [claim["text"] for claim in entry.claims] == ["a < b"]
    assert [row["arm"] for row in entry.runs] == ["a"]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (r"_ = open('runs/records.jsonl', 'a').write('{\n')", r"records\.jsonl, line 2 is damaged"),
        ("append_record('run', {'arm': 'a'})", "a training was recorded without 'comparison'"),
    ],
)
def test_a_lesson_that_damages_its_records_fails(school, damage, reason):
    school.write("01_one", RUN, damage)
    (entry,) = run(school).lessons
    assert entry.status == "failed"
    assert re.search(reason, entry.reason)


def test_a_failing_lesson_is_kept_named_and_does_not_stop_the_others(school):
    school.write("01_one", PASS)
    school.write("02_two", PASS, "1 / 0", PASS)
    school.write("03_three", PASS)
    course = run(school)
    assert statuses(course) == {"01_one": "passed", "02_two": "failed", "03_three": "passed"}
    assert course.lessons[1].reason == "cell 3 of 4: ZeroDivisionError: division by zero"
    assert (school.build / "smoke" / "02_two.ipynb").exists()
    assert not list((school.build / "smoke").glob(".*.ipynb"))


def test_a_false_identity_fails_the_lesson(school):
    school.write("01_one", CLAIM.format(text="x", holds=False, kind="identity"), PASS)
    (entry,) = run(school).lessons
    assert entry.status == "failed"
    assert "ClaimError: x does not hold" in entry.reason
    assert entry.claims[0]["holds"] is False


@pytest.mark.parametrize(
    ("profile", "dataset", "status"),
    [
        ("quick", "shapes", "failed"),
        ("smoke", "shapes", "passed"),
        ("quick", "shapes_source", "passed"),
    ],
)
def test_a_false_effect_fails_where_it_was_promised(school, profile, dataset, status):
    school.write("01_one", CLAIM.format(text="it helps", holds=False, kind="effect"))
    (entry,) = run(school, profile=profile, dataset=dataset).lessons
    assert entry.status == status
    assert entry.claims[0]["holds"] is False
    assert entry.reason == ("effect claim does not hold: it helps" if status == "failed" else "")


@pytest.mark.parametrize(
    ("profile", "gpu", "status"),
    [("smoke", None, "failed"), ("smoke", "a GPU", "passed"), ("full", None, "passed")],
)
def test_a_lesson_over_the_limit_of_memory_fails(school, monkeypatch, profile, gpu, status):
    monkeypatch.setattr(runner, "MEMORY_LIMIT_BYTES", 2**20)
    monkeypatch.setattr(runner, "describe_hardware", lambda: {"gpu": gpu})
    school.write("01_one", STAY)
    (entry,) = run(school, profile=profile).lessons
    assert entry.status == status
    if status == "failed":
        assert re.match(r"it held 0\.\d\d GiB of memory, the limit is 0\.", entry.reason)
        assert statuses(run(school, profile=profile)) == {"01_one": "failed"}  # not skipped


@pytest.mark.parametrize(
    ("profile", "dataset", "budget_s", "over"),
    [
        ("quick", "shapes", 0, True),
        ("quick", "shapes", 100, False),
        ("smoke", "shapes", 0, False),
        ("quick", "shapes_source", 0, False),
    ],
)
def test_a_lesson_over_its_budget_is_said_and_passes(school, profile, dataset, budget_s, over):
    school.write("01_one", PASS, budget_s=budget_s)
    (entry,) = run(school, profile=profile, dataset=dataset).lessons
    assert entry.status == "passed"
    assert entry.over_budget is over
    assert ("01_one: over its budget of 0 s" in school.console.export_text()) is over


def test_unchanged_lessons_are_skipped_with_their_results_changed_ones_run(school):
    school.write("01_one", CLAIM.format(text="x", holds=True, kind="identity"))
    school.write("02_two", PASS)
    school.write("03_three", "1 / 0")
    first = run(school)
    school.write("02_two", PASS, PASS)
    second = run(school)
    assert statuses(second) == {"01_one": "skipped", "02_two": "passed", "03_three": "failed"}
    assert second.lessons[0].claims == first.lessons[0].claims
    assert statuses(run(school, force=True))["01_one"] == "passed"


def test_another_seed_or_data_set_is_a_change(school):
    school.write("01_one", PASS)
    run(school)
    assert statuses(run(school))["01_one"] == "skipped"
    assert statuses(run(school, dataset="shapes_source"))["01_one"] == "passed"


def test_lessons_not_asked_for_keep_their_earlier_entry(school):
    school.write("01_one", PASS)
    school.write("02_two", PASS)
    one, two = school.lessons
    run_lessons([one], school.plan(), school.console, school.lessons)
    course = run_lessons([two], school.plan(), school.console, school.lessons)
    assert statuses(course) == {"01_one": "skipped", "02_two": "passed"}


def test_a_lesson_over_its_time_limit_is_ended(school):
    school.write("01_slow", "import time; time.sleep(60)")
    school.write("02_two", PASS)
    start = time.monotonic()
    course = run(school, time_limit_s=3)
    assert time.monotonic() - start < 40
    assert statuses(course) == {"01_slow": "failed", "02_two": "passed"}
    assert "cell 2 of 2: over the lesson's time limit of 0.05 minutes" in (course.lessons[0].reason)


def test_a_kernel_that_dies_is_a_failed_lesson(school):
    school.write("01_one", "import os; os._exit(1)")
    school.write("02_two", PASS)
    course = run(school)
    assert statuses(course) == {"01_one": "failed", "02_two": "passed"}
    assert "the kernel died" in course.lessons[0].reason


def test_parameters_are_set(school):
    school.write("01_one", "assert ALPHA == 3")
    assert statuses(run(school, parameters={"ALPHA": 3}))["01_one"] == "passed"
    assert statuses(run(school))["01_one"] == "failed"


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


KILLED = """
import sys
from pathlib import Path
from tests.tools.conftest import School
from course_utils.tools.run.runner import run_lessons
school = School(Path(sys.argv[1]))
run_lessons(school.lessons, school.plan(), school.console)
"""


def test_kill_9_loses_nothing_that_was_finished(school, tmp_path):
    school.write("01_one", PASS)
    school.write("02_two", "import pathlib, time", "time.sleep(120)")
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])
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
    course = run(school)
    assert statuses(course) == {"01_one": "skipped", "02_two": "passed"}
    assert not half_written.exists()


def test_a_lesson_edited_while_it_runs_is_not_unchanged(school):
    path = school.write("01_one", PASS)
    edit = (
        f"import pathlib; p = pathlib.Path({str(path)!r});"
        "_ = p.write_text(p.read_text().replace('TODO', 'DONE'))"
    )
    school.write("01_one", edit, "print('TODO')")
    assert statuses(run(school)) == {"01_one": "passed"}
    assert "DONE" in path.read_text()
    assert statuses(run(school)) == {"01_one": "passed"}


def test_a_failed_lesson_stays_in_the_record_until_it_passes(school):
    school.write("01_one", PASS)
    school.write("02_two", "1 / 0")
    run(school)
    course = run_lessons(school.lessons[:1], school.plan(), school.console, school.lessons)
    assert statuses(course) == {"01_one": "skipped", "02_two": "failed"}


@pytest.mark.parametrize("content", ["{}", "[]", "null", '{"key": 1}', '{"lessons": [', "\0"])
def test_damaged_record_means_run_again(school, executions, content):
    school.write("01_one", PASS)
    run(school)
    (school.build / "smoke" / "course.json").write_text(content)
    assert statuses(run(school)) == {"01_one": "passed"}
    assert executions == ["01_one", "01_one"]


@pytest.mark.parametrize("damage", [{}, [], None, {"name": "02_two", "status": "fine"}])
def test_what_is_intact_in_a_damaged_record_is_kept(school, executions, damage):
    school.write("01_one", PASS)
    school.write("02_two", PASS)
    run(school)
    path = school.build / "smoke" / "course.json"
    course = json.loads(path.read_text())
    course["lessons"][1] = damage
    path.write_text(json.dumps(course))
    assert statuses(run(school)) == {"01_one": "skipped", "02_two": "passed"}


def test_an_excursion_to_other_data_or_an_edit_loses_no_other_lesson(school, executions):
    school.write("01_one", PASS)
    path = school.write("02_two", PASS)
    run(school)
    first = school.lessons[:1]
    other = school.plan(dataset="shapes_source")
    course = run_lessons(first, other, school.console, school.lessons)
    assert statuses(course) == {"01_one": "passed"}
    assert read_course(school.build / "smoke" / "course.json") == course
    assert statuses(run(school)) == {"01_one": "passed", "02_two": "skipped"}
    before = path.read_text()
    school.write("02_two", PASS, PASS)
    assert statuses(run_lessons(first, school.plan(), school.console, school.lessons)) == {
        "01_one": "skipped"
    }
    path.write_text(before)
    assert statuses(run(school)) == {"01_one": "skipped", "02_two": "skipped"}
    assert executions == ["01_one", "02_two", "01_one", "01_one"]


def test_an_execution_that_was_interrupted_is_done_again(school, executions, monkeypatch):
    """Its notebook may be the new one already, while the record still has the old result."""
    school.write("01_one", PASS)
    run(school)
    with monkeypatch.context() as patch:

        def interrupt_it(*args, **options):
            raise KeyboardInterrupt

        patch.setattr(runner, "execute_lesson", interrupt_it)
        with pytest.raises(KeyboardInterrupt):
            run(school, force=True)
    assert [result.name for result in read(school).lessons] == ["01_one"]  # still to be seen
    assert statuses(run(school)) == {"01_one": "passed"}


def test_a_notebook_that_was_deleted_is_made_again(school):
    school.write("01_one", PASS)
    run(school)
    (school.build / "smoke" / "01_one.ipynb").unlink()
    assert statuses(run(school)) == {"01_one": "passed"}


def test_a_changed_folder_of_images_is_a_change(school, tmp_path):
    folder = write_images(tmp_path / "mine")
    school.write("01_one", PASS)
    assert statuses(run(school, dataset=str(folder))) == {"01_one": "passed"}
    assert statuses(run(school, dataset=str(folder))) == {"01_one": "skipped"}
    (folder / "train" / "cat" / "0.jpg").unlink()
    assert statuses(run(school, dataset=str(folder))) == {"01_one": "passed"}


def test_other_weights_are_a_change(school, tmp_path, monkeypatch):
    monkeypatch.setattr("course_utils.tools.run.plan.WEIGHTS", tmp_path)
    (tmp_path / "backbone.safetensors").write_bytes(b"one")
    school.write("01_one", PASS)
    assert statuses(run(school)) == {"01_one": "passed"}
    assert statuses(run(school)) == {"01_one": "skipped"}
    (tmp_path / "backbone.safetensors").write_bytes(b"other")
    assert statuses(run(school)) == {"01_one": "passed"}


def test_other_results_are_a_change_for_a_lesson_that_reads_them(school, tmp_path, monkeypatch):
    monkeypatch.setattr("course_utils.tools.run.plan.RESULTS", tmp_path)
    school.write("01_one", PASS)
    school.write("02_two", "from course_utils.results import read_results")
    (tmp_path / "mine.json").write_text("one")
    assert set(statuses(run(school)).values()) == {"passed"}
    (tmp_path / "mine.json").write_text("other")
    assert statuses(run(school)) == {"01_one": "skipped", "02_two": "passed"}


def test_a_kernel_that_does_not_start_is_a_failed_lesson(school, monkeypatch):
    def refuse(*args, **kwargs):
        raise RuntimeError("Kernel died before replying to kernel_info")

    school.write("01_one", PASS)
    monkeypatch.setattr("course_utils.tools.run.execute.papermill.execute_notebook", refuse)
    (entry,) = run(school).lessons
    assert entry.status == "failed"
    assert entry.reason == "no kernel: Kernel died before replying to kernel_info"


def test_interrupting_says_how_to_go_on(school, tmp_path, temporary):
    school.write("01_one", PASS)
    school.write("02_two", "import time; time.sleep(120)")
    script = (
        "import sys; from course_utils.tools import cli; from tests.tools.conftest import School;"
        f"from pathlib import Path; school = School(Path({str(tmp_path)!r}));"
        "cli.find_lessons = lambda: school.lessons;"
        "sys.argv = ['course', 'run', '--profile', 'smoke', '--build', str(school.build)];"
        "cli.main()"
    )
    code, error = interrupt(script, school.build / "smoke" / ".02_two.ipynb")
    assert code == 130
    assert error == "course: interrupted; finished lessons are kept, run again to go on"
    assert statuses(read(school))
    assert not list(temporary.glob("kernel-*"))
