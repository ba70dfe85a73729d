"""The command line as a person meets it: one line for a mistake, no traceback, exit status 2."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest

from course_tools.run.execute import execute_lesson
from course_tools.run.key import digest_outputs
from course_utils import results
from course_utils.files import write_atomically
from course_utils.results import list_results, read_results
from tests.own_folder import write_images
from tests.tools.conftest import assert_one_line
from tests.tools.toy_lessons import write_course


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["07_none"], "no lesson '07_none': choose from 00_start_here, 01_baseline"),
        (["--profile", "fast"], "no profile 'fast': choose from smoke, quick, full"),
        (["--dataset", "mnist"], "no data set 'mnist': use shapes, photos, cifar10 or"),
        (["--dataset", "glosses"], "glosses has texts: the lessons train on images"),
        (["-p", "BETA=1"], "has no parameter 'BETA': it has ALPHA"),
        (["-p", "ALPHA"], "-p ALPHA: write it as NAME=VALUE"),
        (["--first-seed", "-1"], r"first seed .*-1.* is not an integer"),
        (["-p", "DATASET=mine"], "-p DATASET: say it with --dataset"),
        (["--store"], "--store keeps outputs of the quick profile"),
        (["--jobs", "2", "--save-results", "x"], "are stored from lessons that run alone"),
        (["--save-results", "a/b"], "--save-results a/b: use letters, digits, - and _ only"),
        (["--save-results", ""], "use letters, digits, - and _ only"),
        (["--save-results", "x", "-p", "ALPHA=2"], "keeps what lessons do as they are"),
        (["--save-results", "other"], r"other.json holds no results of lessons: choose another"),
        (["--time-limit", "inf"], "give minutes above 0"),
        (["--time-limit", "0"], "give minutes above 0"),
    ],
)
def test_bad_arguments_of_run(course, school, arguments, sentence):
    assert_one_line(course("run", "--profile", "smoke", *arguments), sentence)
    assert not school.build.exists()


def test_bad_folder_is_one_line_before_anything_runs(course, school, tmp_path):
    folder = write_images(tmp_path / "mine", count=30)
    (folder / "train" / "cat" / "0.jpg").write_bytes(b"broken")
    result = course("run", "--profile", "smoke", "--dataset", str(folder))
    assert_one_line(result, r"cannot read the image train/cat/0\.jpg: replace or delete it")


@pytest.mark.parametrize("name", [b"caf\xe9", b"\xff/mine", b"m\xfcnchen"])
@pytest.mark.parametrize("command", ["run", "report", "race"])
def test_a_folder_whose_name_is_not_utf_8_is_one_line(course, tmp_path, command, name):
    folder = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
    write_images(Path(folder), count=30)
    arguments = ["lesson_12", "--no-sandbox"] if command == "race" else ["--profile", "smoke"]
    link = tmp_path / "link"
    link.symlink_to(folder)
    for dataset in (folder, str(link)):
        shown = os.fsencode(folder).decode("utf-8", "backslashreplace")
        result = course(command, *arguments, "--dataset", dataset)
        assert_one_line(result, re.escape(f"the data set's folder {shown} is not UTF-8: rename it"))


def test_build_folder_that_cannot_be_written(course, school):
    school.build = school.notebooks / "01_baseline.ipynb" / "build"
    assert_one_line(course("run", "--profile", "smoke"), "cannot write to .* --build")


def test_full_disk_in_the_middle_is_one_line(course, monkeypatch):
    def refuse_the_result(path, text):
        if path.name == "course.json":
            raise OSError(28, "No space left on device", "course.json")
        write_atomically(path, text)

    monkeypatch.setattr("course_tools.run.record.write_atomically", refuse_the_result)
    assert_one_line(course("run", "--profile", "smoke"), "No space left on device")


def test_run_and_report(course, school):
    status, out, _ = course("run", "--profile", "smoke")
    assert status == 0
    assert "[1/2] 00_start_here · cell 1 of 2" in out
    assert "01_baseline" in out
    status, out, _ = course("report", "--profile", "smoke")
    assert status == 0
    assert (school.build / "smoke" / "report.html").exists()


def test_own_images_have_a_run_and_a_report_of_their_own(course, school, tmp_path):
    images = write_images(tmp_path / "mine", count=30)
    assert course("run", "--profile", "smoke")[0] == 0
    before = (school.build / "smoke" / "course.json").read_bytes()
    status, out, _ = course("run", "01", "--profile", "smoke", "--dataset", str(images))
    assert status == 0
    folder = Path(re.search(r"^executed notebooks: (.+)$", out, re.MULTILINE)[1])
    assert re.fullmatch(r"smoke-mine-[0-9a-f]{6}", folder.name)
    assert course("report", "--profile", "smoke", "--dataset", str(images))[0] == 0
    assert (folder / "report.html").exists()
    assert (school.build / "smoke" / "course.json").read_bytes() == before
    assert not (school.build / "smoke" / "report.html").exists()


def test_a_lesson_that_is_skipped_has_passed_earlier(course):
    assert course("run", "--profile", "smoke")[0] == 0
    status, out, _ = course("run", "--profile", "smoke")
    assert status == 0
    assert out.count("passed earlier") == 2


def test_run_of_one_lesson_by_number_or_name(course, school):
    for word in ("1", "01", "baseline", "01_baseline", "notebooks/01_baseline.ipynb"):
        status, out, _ = course("run", word, "--profile", "smoke", "--force")
        assert status == 0
        assert "[1/1] 01_baseline" in out


def test_a_failed_lesson_is_exit_status_1_and_named_in_the_table(course, school):
    reason = "cell 2 of 2: RuntimeError: the cable [red] is loose"
    school.execute.results["01_baseline"] = {"status": "failed", "reason": reason}
    status, out, error = course("run", "--profile", "smoke")
    assert status == 1
    assert "cell 2 of 2: RuntimeError" in " ".join(out.split())
    assert "[red]" in out
    assert error == ""


def test_report_without_a_run(course):
    assert_one_line(course("report", "--profile", "smoke"), "run the lessons first")


def test_results_are_not_stored_or_saved_from_a_damaged_record(course, school):
    """An entry without its cost is no entry: the lesson is executed again."""
    assert course("run", "--profile", "smoke")[0] == 0
    path = school.build / "smoke" / "course.json"
    content = json.loads(path.read_text())
    del content["lessons"][0]["time_s"]
    path.write_text(json.dumps(content))
    assert_one_line(
        course("report", "--profile", "smoke"), r"time_s: Field required\): run course run --force"
    )
    status, out, _ = course("run", "--profile", "smoke")
    assert status == 0
    assert "01_baseline: unchanged since it passed, skipped" in out
    assert "00_start_here: unchanged" not in out


def test_report_of_a_damaged_file(course, school):
    (school.build / "smoke").mkdir(parents=True)
    (school.build / "smoke" / "course.json").write_text("{")
    assert_one_line(course("report", "--profile", "smoke"), "is damaged .* --force")


def test_list_shows_every_lesson(course):
    status, out, _ = course("list")
    assert status == 0
    assert "00_start_here" in out
    assert "01_baseline" in out


def test_a_notebook_that_is_none_is_named(course, school):
    (school.notebooks / "02_broken.ipynb").write_text("{")
    assert_one_line(course("list"), r"02_broken\.ipynb is not a notebook .*restore it from git")


def test_store_keeps_outputs_of_a_kernel_and_drops_papermills_traces(course, school):
    school.execute = execute_lesson
    status, _, _ = course("run", "01", "--profile", "quick", "--store")
    assert status == 0
    stored = json.loads((school.notebooks / "01_baseline.ipynb").read_text())
    assert stored["cells"][1]["outputs"][0]["text"] == ["fine\n"]
    assert [cell["execution_count"] for cell in stored["cells"]] == [1, 2]
    assert "papermill" not in json.dumps(stored)
    assert stored["metadata"]["course"]["time_s"] >= 1
    assert course("run", "01", "--profile", "quick")[1].count("skipped") >= 1


def test_store_refuses_outputs_of_other_parameters(course):
    result = course("run", "01", "--profile", "quick", "--store", "-p", "ALPHA=2")
    assert_one_line(result, "ran with -p parameters: run it without to store it")


CLAIM = {"text": "a < b", "kind": "identity", "holds": True, "value": 0.5}


def test_results_are_saved_with_how_and_where(course, school, tmp_path):
    school.execute.results["01_baseline"] = {"claims": [CLAIM]}
    mine = write_images(tmp_path / "my images", count=30)
    command = ("run", "01", "--profile", "smoke", "--dataset", str(mine), "--first-seed", "7")
    assert course("run", "00", *command[2:])[0] == 0
    status, out, _ = course(*command, "--save-results", "mine_2")
    assert status == 0
    assert "mine_2.json" in out
    saved = read_results("mine_2", results.RESULTS)
    assert saved["command"] == (
        "course run 01 --profile smoke --dataset 'my images' --first-seed 7 --save-results mine_2"
    )
    assert saved["dataset"] == "my images (folder)"
    (lesson,) = saved["lessons"]
    assert lesson["name"] == "01_baseline"
    assert lesson["claims"] == [CLAIM]
    text = (results.RESULTS / "mine_2.json").read_text()
    assert str(tmp_path) not in text
    assert course(*command, "--save-results", "again")[1].count("skipped") >= 1
    assert read_results("again", results.RESULTS)["lessons"] == saved["lessons"]
    assert (
        course(*command, "--force", "--save-results", "again")[0] == 0
    )  # takes the old one's place
    assert list_results(results.RESULTS) == ["again", "mine_2"]


def test_results_of_a_failed_lesson_are_not_saved(course, school):
    failed = {"status": "failed", "reason": "cell 2 of 2: ZeroDivisionError: division by zero"}
    school.execute.results["01_baseline"] = failed
    status, out, _ = course("run", "--profile", "smoke", "--save-results", "mine")
    assert status == 1
    assert "a lesson failed: nothing is stored or saved" in out
    assert list_results(results.RESULTS) == []
    status, out, _ = course("run", "00", "--profile", "smoke", "--save-results", "mine")
    assert status == 0  # the lesson that failed was not chosen
    assert [x["name"] for x in read_results("mine", results.RESULTS)["lessons"]] == [
        "00_start_here"
    ]


def test_doctor_exit_status_follows_what_is_required(course, monkeypatch):
    from course_utils import doctor
    from course_utils.doctor import Finding

    optional = Finding("GPU", "none", "buy one", required=False)
    monkeypatch.setattr(doctor, "check_environment", lambda: iter([optional]))
    status, out, _ = course("doctor")
    assert (status, out) == (0, "GPU: missing (optional) · none → buy one\n")
    fault = Finding("Disk", "0 GiB free", "free some")
    monkeypatch.setattr(doctor, "check_environment", lambda: iter([optional, fault]))
    status, out, _ = course("doctor")
    assert status == 1
    assert "Disk: missing · 0 GiB free → free some" in out


def test_lab_listens_on_the_loopback_behind_a_token():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "course_tools",
        "lab",
        "--port",
        str(port),
        "--no-browser",
    ]
    environment = os.environ | {"JUPYTER_TOKEN": "secret"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:

        def get(path):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", path)
            return connection.getresponse()

        deadline = time.monotonic() + 60
        while True:
            try:
                refused = get("/api/contents")
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.3)
        assert refused.status == 403
        allowed = get("/api/contents?token=secret")
        names = [entry["name"] for entry in json.loads(allowed.read())["content"]]
        assert "01_baseline.ipynb" in names
        listening = [
            c.laddr.ip
            for c in psutil.Process(process.pid).net_connections()
            if c.status == psutil.CONN_LISTEN
        ]
        assert set(listening) == {"127.0.0.1"}
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["grade", "nowhere"], "no submissions in nowhere: expected <student>/<lesson>.ipynb"),
        (["release", "--output", "file"], "file is a file: choose an empty folder with --output"),
        (["release", "--output", "file/below"], "File exists: .*file: choose another path"),
        (["release", "--colab", "http://a/b", "--output", "new"], "give the https:// address"),
        (["slides", "00", "seventy"], "no lesson 'seventy': choose from"),
        (["slides", "00", "--output", "file"], "File exists: .*file"),
        (["site", "--output", "folder"], "folder is no site: choose an empty folder"),
        (["plan", "numbers", "--run", "nowhere"], "has no times of 01_numbers: run it"),
    ],
)
def test_teaching_commands_take_mistakes(
    arguments, sentence, course, school, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_course(school.notebooks)
    write_atomically(tmp_path / "file", "mine")
    write_atomically(tmp_path / "folder" / "thesis.txt", "mine")
    assert_one_line(course(*arguments), sentence)
    assert (tmp_path / "file").read_text() == (tmp_path / "folder" / "thesis.txt").read_text()
    assert not list(tmp_path.glob(".release-*")) + list(tmp_path.glob(".site-*"))


def test_grades_are_kept_when_the_grading_is_interrupted(course, tmp_path):
    """The table is written after each notebook."""
    path = tmp_path / "submitted" / "ann" / "05_mixup.ipynb"
    write_atomically(path, "no notebook")
    output = tmp_path / "grades.csv"
    status, printed, _ = course("grade", str(path.parents[1]), "--output", str(output))
    assert status == 1
    assert "ann · 05_mixup: " in printed
    assert "is not a notebook" in output.read_text(encoding="utf-8")


def test_check_says_what_it_could_not_read_and_goes_on(course, tmp_path):
    write_atomically(tmp_path / "05_mixup.ipynb", "no notebook")
    status, printed, _ = course(
        "check", str(tmp_path / "05_mixup.ipynb"), "nosuch.ipynb", "seventy"
    )
    assert status == 1
    assert "is not a notebook" in printed
    assert "no notebook nosuch.ipynb" in printed
    assert "no lesson 'seventy'" in printed
    assert "Progress" in printed


def make_fresh(school):
    """Store the key and the digest of the outputs of every lesson, as if it had just run."""
    for lesson in school.lessons:
        notebook = lesson.read()
        key = school.plan("quick").key(lesson)
        notebook.metadata["course"] |= {"key": key, "outputs": digest_outputs(notebook)}
        nbformat.write(notebook, lesson.path)


def test_stale_lessons_are_listed_with_the_command_that_renews_them(course, school):
    status, printed, _ = course("list", "--stale")
    assert status == 1
    assert "00_start_here: its outputs were stored without a key" in printed
    assert "renew them: course run 00 01 --profile quick --force --store" in printed
    make_fresh(school)
    assert course("list", "--stale")[:2] == (0, "no stored output is stale\n")


def test_only_stale_lessons_are_executed(course, school):
    make_fresh(school)
    status, printed, _ = course("run", "--profile", "quick", "--stale")
    assert (status, school.execute.executed) == (0, [])
    school.write("01_baseline", "print('changed')")
    status, printed, _ = course("run", "--profile", "quick", "--stale")
    assert (status, school.execute.executed) == (0, ["01_baseline"])
    assert "01_baseline: its outputs were stored without a key" in printed


def test_a_claim_that_became_false_by_a_change_elsewhere_is_found(course, school):
    """Nobody touched the lesson: a module that it imports has changed, and with it its key."""
    make_fresh(school)
    lesson = school.lessons[1]
    notebook = lesson.read()
    notebook.metadata["course"]["key"] = "the key before the change"
    nbformat.write(notebook, lesson.path)
    false = {"text": "it helps", "kind": "effect", "holds": False, "value": 0.1}
    school.execute.results["01_baseline"] = {"claims": [false]}
    status, printed, _ = course("run", "--profile", "quick", "--stale")
    assert status == 1
    assert school.execute.executed == ["01_baseline"]
    assert "effect claim does not hold: it helps" in printed


def test_shards_execute_all_lessons_between_them(course, school):
    for shard in ("1/2", "2/2"):
        assert course("run", "--profile", "smoke", "--shard", shard)[0] == 0
    assert sorted(school.execute.executed) == ["00_start_here", "01_baseline"]


def test_no_lesson_is_started_when_the_time_is_up(course, school):
    status, printed, _ = course("run", "--profile", "smoke", "--stop-after", "0")
    assert (status, school.execute.executed) == (0, [])
    assert "not executed, the time is up (--stop-after): 00_start_here, 01_baseline" in printed


@pytest.mark.parametrize(
    ("times", "sentence"),
    [((1, 11), "over their budgets: 01_baseline"), ((9, 9), ""), ((310, 1), "on average")],
)
def test_budgets_warn_and_fail_only_when_they_are_enforced(course, school, times, sentence):
    for lesson, time_s in zip(school.lessons, times, strict=True):
        school.execute.results[lesson.name] = {"time_s": float(time_s)}
    status, printed, _ = course("run", "--profile", "quick", "--force")
    assert status == 0
    assert sentence in printed
    said = printed.partition("executed notebooks: ")[0]  # the folder is called as this test
    assert ("budget" in said) == bool(sentence)
    enforced = course("run", "--profile", "quick", "--force", "--enforce-budgets")
    assert enforced[0] == (1 if sentence else 0)


def test_nothing_is_stored_or_saved_if_the_time_was_up(course, school):
    arguments = ("run", "--profile", "quick", "--stop-after", "0", "--save-results", "mine")
    status, printed, _ = course(*arguments)
    assert status == 1
    assert "not all lessons were executed: nothing is stored or saved" in printed
    assert "mine" not in list_results(results.RESULTS)


@pytest.mark.parametrize(
    "other", [("--profile", "smoke"), ("--first-seed", "1"), ("--dataset", "shapes"), ("-p", "A=1")]
)
def test_stale_is_asked_of_the_settings_in_which_outputs_are_stored(course, other):
    asked = ("run", *(() if "--profile" in other else ("--profile", "quick")), *other)
    assert_one_line(course(*asked, "--stale"), "compare with stored outputs")
