"""Files that were cut off, edited or overwritten."""

import json
import os

import nbformat
import pytest

from course_tools.pretrain.images import read_split
from course_tools.publish.fair_race import RACE
from course_tools.publish.readme import format_section
from course_tools.run import choose, key
from course_tools.run.key import lesson_key
from course_tools.run.lessons import find_lessons
from course_tools.run.report import write_report
from course_utils.doctor import check_environment
from course_utils.errors import CourseError
from course_utils.files import ROOT
from course_utils.results import read_results
from tests.tools.conftest import assert_one_line, write_lesson
from tests.tools.run.test_report import make_course

RUN = ("run", "00", "--profile", "smoke")


def change_entry(school, **fields):
    """Change fields of the first lesson's entry in course.json."""
    path = school.build / "smoke" / "course.json"
    course = json.loads(path.read_text())
    course["lessons"][0] |= fields
    path.write_text(json.dumps(course))


# the executed notebook


@pytest.mark.parametrize(
    "content",
    [
        b'{\n "cells": [',
        b"",
        pytest.param(b"\xff\xfe", id="own-binary"),
    ],
)
def test_a_damaged_executed_notebook_is_made_again(course, school, content):
    assert course(*RUN)[0] == 0
    executed = school.build / "smoke" / "00_start_here.ipynb"
    executed.write_bytes(content)
    assert "unchanged" not in course(*RUN)[1]
    nbformat.read(executed, as_version=4)
    assert "unchanged" in course(*RUN)[1]


def test_outputs_of_a_damaged_executed_notebook_are_not_stored(course, school, monkeypatch):
    monkeypatch.setattr("course_tools.run.store_outputs.store_outputs", lambda *args: None)
    store = ("run", "00", "--profile", "quick", "--store")
    assert course(*store)[0] == 0
    (school.build / "quick" / "00_start_here.ipynb").write_text('{\n "cells": [')
    status, out, error = course(*store)
    assert (status, error) == (0, "")
    assert "unchanged" not in out


# course.json

METRICS = {"val_accuracy": 0.5}


@pytest.mark.parametrize(
    "fields",
    [
        {"time_s": "a word"},
        pytest.param({"time_s": float("nan")}, id="own-nan-time"),
        {"cells_s": None},
        {"cells_s": ["a", "b"]},
        {"cells_s": [float("nan")]},
        {"cells_s": 5},
        pytest.param({"claims": [{"text": 1, "kind": "x", "holds": 1, "value": 1}]}, id="own"),
        pytest.param({"runs": 5}, id="here"),
    ],
)
@pytest.mark.parametrize("command", ["run", "report", "plan"])
def test_a_damaged_entry_is_one_line_or_run_again(course, school, fields, command):
    assert course(*RUN)[0] == 0
    change_entry(school, **fields)
    if command == "run":
        status, out, error = course(*RUN)
        assert (status, error) == (0, "")
        assert "unchanged" not in out
    elif command == "report":
        again = r"course\.json is damaged .*run course run --force"
        assert_one_line(course("report", "--profile", "smoke"), again)
    else:
        shown = course("plan", "00", "--run", str(school.build / "smoke"))
        assert_one_line(shown, r"course\.json is damaged .*run course run --force")


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"name": "00_start_here", "status": "failed"},
        "a word",
    ],
)
def test_an_entry_without_its_fields_means_run_again(course, school, entry):
    assert course(*RUN)[0] == 0
    path = school.build / "smoke" / "course.json"
    content = json.loads(path.read_text())
    content["lessons"][0] = entry
    path.write_text(json.dumps(content))
    status, out, error = course(*RUN)
    assert (status, error) == (0, "")
    assert "unchanged" not in out


def write_course(folder, change):
    course = make_course()
    change(course["lessons"][0]["runs"])
    (folder / "course.json").write_text(json.dumps(course))


def test_a_metric_that_is_a_list_is_one_line(tmp_path):
    write_course(tmp_path, lambda runs: runs[0].update(metrics={"val_accuracy": [0.5]}))
    with pytest.raises(CourseError, match=r"01_a: .*val_accuracy.* should be .*\): run course run"):
        write_report(tmp_path)


def test_a_metric_that_is_not_a_number_is_shown(tmp_path):  # a training may diverge
    write_course(tmp_path, lambda runs: runs[0].update(metrics={"val_accuracy": float("nan")}))
    assert "nan" in write_report(tmp_path).read_text()


def test_names_in_a_plot_are_no_formulas(tmp_path):
    def rename(runs):
        for run in runs:
            run["comparison"] = r"$\frac$"
            run["arm"] = rf"$\{run['arm']}$"

    write_course(tmp_path, rename)
    assert write_report(tmp_path).read_text().count("<svg") == 1


# notebooks of lessons

NEWER = json.dumps({"cells": [], "metadata": {}, "nbformat": 99, "nbformat_minor": 0})
TYPES = json.dumps({"cells": 5, "metadata": 7, "nbformat": 4, "nbformat_minor": 5})
CELL = {"cell_type": "code", "source": 5, "metadata": {}, "outputs": [], "execution_count": None}
SOURCE = json.dumps({"cells": [CELL], "metadata": {}, "nbformat": 4, "nbformat_minor": 4})


@pytest.mark.parametrize(
    "content",
    [
        b'{\n "cells": [',
        b"\xc4\x00\xff",
        b"",
        b"[]",
        b"{}",
        b"null",
        NEWER.encode(),
        TYPES.encode(),
        pytest.param(SOURCE.encode(), id="own-source"),
    ],
)
@pytest.mark.parametrize("command", ["list", "run", "sync"])
def test_a_damaged_notebook_is_named_by_every_command(course, school, content, command):
    path = school.notebooks / "01_baseline.ipynb"
    path.write_bytes(content)
    arguments = ["00"] if command == "run" else []
    shown = course(command, *arguments)
    assert_one_line(shown, r"01_baseline\.ipynb is not a notebook \(.+\): restore it from git")


@pytest.mark.parametrize(
    ("about", "sentence"),
    [
        ("a word", "its metadata lack course"),
        pytest.param({"question": 5}, "metadata have a wrong course: question", id="own-number"),
        pytest.param({"headline": ["x"]}, "metadata have a wrong course: headline", id="own-list"),
        pytest.param({"budget_s": None}, "metadata have a wrong course: budget_s", id="own-null"),
    ],
)
def test_damaged_metadata_of_a_lesson_are_named(course, school, about, sentence):
    path = school.notebooks / "01_baseline.ipynb"
    notebook = nbformat.read(path, as_version=4)
    whole = notebook.metadata["course"]
    notebook.metadata["course"] = about if isinstance(about, str) else whole | about
    nbformat.write(notebook, path)
    assert_one_line(course("list"), sentence)


@pytest.mark.parametrize("kind", ["link to nothing", "folder", "pipe"])
def test_a_notebook_that_is_no_file_is_named(course, school, kind):
    path = school.notebooks / "01_baseline.ipynb"
    path.unlink()
    if kind == "link to nothing":
        path.symlink_to("nowhere")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)  # reading it would wait for ever
    assert_one_line(course("list"), r"01_baseline\.ipynb is not a file: restore it from git")


def test_a_lesson_without_cells_has_no_title(course, school):  # own
    nbformat.write(
        nbformat.v4.new_notebook(metadata=school.lessons[0].read().metadata),
        school.notebooks / "01_baseline.ipynb",
    )
    assert_one_line(course("sync"), "begin its first cell with a title")


# results


@pytest.fixture
def results(tmp_path):
    """The stored results, first of a lesson that compares, and a headline of it."""
    stored = read_results("quick_photos_2cores")
    stored["lessons"].sort(key=lambda lesson: not any(row["comparison"] for row in lesson["runs"]))
    folder = tmp_path / "data" / "results"
    folder.mkdir(parents=True)
    path = folder / "mine.json"

    def write(change=lambda results: None, headline=None):
        content = json.loads(json.dumps(stored))
        change(content)
        path.write_text(json.dumps(content))
        headlines = [headline] if headline else []
        name = content["lessons"][0]["name"] if content.get("lessons") else "02_freezing"
        write_lesson(tmp_path / "notebooks", name, headline=headlines)
        return format_section(find_lessons(tmp_path / "notebooks"), tmp_path)

    return write


def test_results_are_called_as_their_file(results):
    def rename(content):
        content["name"] = "<script>"
        content["command"] = "<script>"

    assert "`mine`" in results(lambda content: content.pop("name"))
    assert "<script>" not in results(rename)


@pytest.mark.parametrize(
    "change",
    [
        {"hardware": {}},
        pytest.param({"versions": []}, id="own-versions"),
        pytest.param({"dataset": ["a"], "hardware": 5}, id="own-dataset"),
    ],
)
def test_a_damaged_provenance_of_results_is_one_line(results, change):
    with pytest.raises(CourseError, match=r"mine\.json is damaged \(.*\): restore it with `git"):
        results(lambda content: content.update(change))


@pytest.mark.parametrize("runs", [5, [{"arm": 1}]])
def test_damaged_runs_of_results_are_one_line(results, runs):
    with pytest.raises(CourseError, match=r"mine\.json is damaged \(.*\): restore it with `git"):
        results(lambda content: content["lessons"][0].update(runs=runs))


def test_what_is_not_a_number_does_not_reach_the_readme(results):
    lessons = read_results("quick_photos_2cores")["lessons"]
    rows = [row for lesson in lessons for row in lesson["runs"] if row["comparison"]]
    named = rows[0]
    arms = [row["arm"] for row in rows if row["comparison"] == named["comparison"]]
    headline = {"comparison": named["comparison"], "arm": arms[-1]}
    assert " points (" in results(headline=headline)

    def damage(content):
        for row in content["lessons"][0]["runs"]:
            row["metrics"]["val_accuracy"] = float("nan")

    with pytest.raises(CourseError, match=r"mine\.json is damaged \(NaN is no result\)"):
        results(damage, headline)


def test_a_claim_that_is_not_a_number_does_not_reach_the_readme(results):
    claim = {"text": "it helps", "kind": "effect", "holds": True, "value": float("nan")}
    with pytest.raises(CourseError, match=r"mine\.json is damaged \(NaN is no result\)"):
        results(lambda content: content["lessons"][0].update(claims=[claim]), {"claim": "it helps"})


@pytest.mark.parametrize(
    "race",
    [
        "{}",
        pytest.param('{"rivals": {}, "rows": [], "goals": [0.8]}', id="own-empty"),
        pytest.param('{"rivals": {}, "rows": 5, "goals": "x"}', id="own-types"),
    ],
)
def test_a_damaged_race_is_one_line(results, tmp_path, race):
    path = tmp_path / "lesson_code" / RACE
    path.parent.mkdir(parents=True)
    path.write_text(race)
    with pytest.raises(CourseError, match=r"study_race\.json is damaged \("):
        results()


# the lock, the weights, the package: what keys of results read


@pytest.fixture
def clone(tmp_path):
    """What a key needs of the repository."""
    for name in ("requirements.lock", "course_utils", "lesson_code", "data"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def make_key(root):
    source = "from course_utils.models import create_model\ncreate_model(pretrained=True)"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    return lesson_key(notebook, key.Config("quick", "shapes", "m", 1, 1, 1, 1, 1.0, 1), {}, root)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_missing_or_damaged_lock_is_named(clone, content):
    make_key(clone)
    (clone / "requirements.lock").unlink()
    if content is not None:
        (clone / "requirements.lock").write_bytes(content)
    with pytest.raises(CourseError, match=r"requirements\.lock is missing or damaged: restore it"):
        make_key(clone)


@pytest.mark.parametrize("content", ["{", "[]", "{}", "\0"])
def test_a_damaged_json_of_weights_is_named(clone, content):  # fault 19
    (clone / "data").unlink()
    (clone / "data" / "weights").mkdir(parents=True)
    (clone / "data" / "weights" / "mine.json").write_text(content)
    with pytest.raises(CourseError, match=r"weights/mine\.json is damaged: restore it with `git"):
        make_key(clone)


@pytest.mark.parametrize("content", [b"def x(:\n", b"\xff", b"a = '\0'"])
def test_a_module_that_is_not_python_is_named(clone, content):  # own
    (clone / "course_utils").unlink()
    (clone / "course_utils").mkdir()
    (clone / "course_utils" / "models.py").write_bytes(content)
    with pytest.raises(CourseError, match=r"models\.py is not Python \(.*\): correct it"):
        make_key(clone)


# half-written files, the images of pretraining


def test_what_a_killed_run_left_is_removed_by_the_next(course, school):
    folder = school.build / "smoke"
    folder.mkdir(parents=True)
    for name in (".00_start_here.ipynb", ".01_baseline.ipynb.ab12", ".course.json.xy"):
        (folder / name).touch()
    assert course(*RUN)[0] == 0
    names = {path.name for path in folder.iterdir()}
    assert names == {"course.json", "00_start_here.ipynb", ".lock"}


@pytest.fixture
def tiny_imagenet(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "train" / name / "images").mkdir(parents=True)
    (tmp_path / "val" / "images").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(b"val_0.JPEG a\n", "has a line without a class: expected", id="own-tab"),
        pytest.param(b"\xff\xfe\tb\n", "is not a text in UTF-8: expected", id="own-binary"),
    ],
)
def test_damaged_annotations_are_named(tiny_imagenet, content, sentence):
    (tiny_imagenet / "val" / "val_annotations.txt").write_bytes(content)
    with pytest.raises(CourseError, match=rf"val_annotations\.txt {sentence}"):
        read_split(tiny_imagenet, "val")


def test_an_image_of_pretraining_that_is_no_file_is_named(tiny_imagenet):
    os.mkfifo(tiny_imagenet / "val" / "images" / "0.JPEG")
    (tiny_imagenet / "val" / "val_annotations.txt").write_text("0.JPEG\ta\n")
    with pytest.raises(CourseError, match=r"cannot read the image .*0\.JPEG"):
        read_split(tiny_imagenet, "val")


def test_a_lesson_that_was_damaged_at_a_revision_has_changed_since(school, monkeypatch):  # own
    def show(*arguments):
        return {"show": '{"cells": ['}.get(arguments[0], "something")

    school.write("01_one", "print('fine')")
    monkeypatch.setattr(choose, "run_git", show)
    monkeypatch.setattr(choose, "ROOT", school.notebooks.parent)
    plan = school.plan()
    chosen = choose.choose_lessons(school.lessons, plan, stale=False, since="v1", sample=0)
    assert list(chosen.values()) == ["changed since v1"]


# doctor


def find(name):
    return {finding.name: finding for finding in check_environment()}[name]


@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        ("COURSE_PROFILE", "rubbish", "Settings"),
        pytest.param("COURSE_FIRST_SEED", "abc", "Settings", id="own-seed"),
        pytest.param("COURSE_FIRST_SEED", "9" * 5000, "Settings", id="many digits"),
        pytest.param("COURSE_DATASET", "a" * 300, "Data", id="long name"),
        pytest.param("COURSE_DATASET", "~nobody-at-all/x", "Data", id="own-home"),
    ],
)
def test_doctor_finds_settings_that_a_run_refuses(monkeypatch, variable, value, name):
    monkeypatch.setenv(variable, value)
    finding = find(name)
    assert not finding.ok
    assert finding.required
    assert "\n" not in str(finding)


@pytest.mark.parametrize(
    ("module", "name", "finding"),
    [
        ("course_utils.models.backbone.describe_backbone", dict, "Backbone"),
        ("course_utils.models.backbone.read_backbone", None, "Backbone"),
        pytest.param("course_utils.data.photos.describe_photos", dict, "Photographs", id="own"),
        pytest.param("course_utils.doctor.psutil.virtual_memory", None, "Memory", id="own-2"),
    ],
)
def test_doctor_does_not_fall_over(monkeypatch, module, name, finding):
    def fail(*arguments):
        raise RuntimeError("header too large\nand more")

    monkeypatch.setattr(module, name or fail)
    found = {entry.name: entry for entry in check_environment()}
    assert list(found)[-1] == "Backbone"  # all checks were made
    assert not found[finding].ok
    assert "\n" not in str(found[finding])


def test_doctor_names_a_damaged_lock(monkeypatch, tmp_path):
    (tmp_path / "requirements.lock").write_text("numpy === = 1\n)(\n")
    monkeypatch.setattr("course_utils.doctor.ROOT", tmp_path)
    finding = find("Packages")
    assert finding.detail.endswith("requirements.lock is missing or damaged")
    assert finding.fix == "restore it with `git checkout requirements.lock`"
