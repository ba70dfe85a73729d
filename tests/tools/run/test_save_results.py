import json
import re

import pytest

from course_tools.run.lessons import Lesson
from course_tools.run.record import CourseResult
from course_tools.run.save_results import add_kept, collect_results, save_results
from course_utils.config import load_config
from course_utils.errors import CourseError
from course_utils.results import RESULTS, list_results, read_results
from tests.tools.run.test_report import make_course


def make_lesson(folder, name):
    return Lesson(folder / f"{name}.ipynb", "?", "t", "s", 1, 10, None, None, [])


def find(folder):
    """The lessons of the course, and the settings of a command."""
    course = CourseResult.from_json(make_course())
    config = load_config("quick", dataset="photos", first_seed=0)
    return [make_lesson(folder, result.name) for result in course.lessons], config


def collect(folder, chosen=("01_a", "02_b"), **options):
    content = make_course()
    for number, entry in enumerate(content["lessons"]):
        entry["commit"] = "abc" if number == 0 else "def"
    course = CourseResult.from_json(content)
    lessons = [make_lesson(folder, result.name) for result in course.lessons]
    config = load_config(**{"profile": "quick", "dataset": "photos", "first_seed": 0} | options)
    chosen = [lesson for lesson in lessons if lesson.name in chosen]
    return collect_results("some", course, chosen, lessons, config)


def test_the_command_is_as_a_person_types_it(tmp_path):
    assert collect(tmp_path)["command"] == "course run 01 02 --profile quick --save-results some"
    every = collect(tmp_path, ("01_a", "02_b", "03_c"), profile="full", dataset="cifar10")
    assert every["command"] == "course run --profile full --save-results some"
    assert every["dataset"] == "cifar10"


def test_commits_are_those_of_the_lessons(tmp_path):
    assert collect(tmp_path)["commit"] == "abc, def"
    assert collect(tmp_path, ("02_b", "03_c"))["commit"] == "def"


def test_lessons_that_were_not_measured_again_are_kept(tmp_path):
    kept, measured = collect(tmp_path, ("01_a", "02_b")), collect(tmp_path, ("02_b", "03_c"))
    measured["lessons"][0] |= {"time_s": 123.0, "commit": "new"}
    both = add_kept(measured, kept, *find(tmp_path))
    assert [entry["name"] for entry in both["lessons"]] == ["01_a", "02_b", "03_c"]
    assert both["lessons"][1]["time_s"] == 123.0
    assert both["commit"] == "abc, new, def"
    assert both["command"] == "course run --profile quick --save-results some"


def test_an_older_file_names_its_commits_only_once(tmp_path):
    kept, measured = collect(tmp_path, ("01_a", "02_b")), collect(tmp_path, ("03_c",))
    for entry in kept["lessons"]:
        del entry["commit"]
    assert add_kept(measured, kept, *find(tmp_path))["commit"] == "abc, def"


@pytest.mark.parametrize("key", ["versions", "first_seed", "dataset", "profile"])
def test_results_of_other_settings_are_not_mixed(tmp_path, key):
    kept, measured = collect(tmp_path, ("01_a",)) | {key: "another"}, collect(tmp_path)
    assert add_kept(measured, kept, *find(tmp_path)) == measured
    with pytest.raises(CourseError, match=r"some.json has 1 other lessons, .*run all lessons"):
        add_kept(collect(tmp_path, ("02_b",)), kept, *find(tmp_path))


def test_results_of_another_machine_are_not_mixed(tmp_path):
    kept, measured = collect(tmp_path, ("01_a",)), collect(tmp_path, ("02_b",))
    kept["hardware"] = measured["hardware"] | {"memory_bytes": 5}
    assert len(add_kept(measured, kept, *find(tmp_path))["lessons"]) == 2
    kept["hardware"] = measured["hardware"] | {"cpu": "another"}
    assert add_kept(collect(tmp_path), kept, *find(tmp_path)) == collect(tmp_path)
    with pytest.raises(CourseError, match="measured on another"):
        add_kept(measured, kept, *find(tmp_path))


def test_the_file_is_rounded_and_has_one_run_a_line(tmp_path):
    results = collect(tmp_path)
    path = save_results(results, tmp_path / "results")
    assert path == tmp_path / "results" / "some.json"
    text = path.read_text(encoding="utf-8")
    assert json.loads(text) == results
    runs = results["lessons"][0]["runs"]
    assert runs[-1]["metrics"] == {"val_accuracy": 0.7}  # 0.7000000000000001 before
    assert [
        json.loads(line.strip().strip(",")) for line in text.splitlines() if '"arm"' in line
    ] == runs
    assert save_results(results, tmp_path / "results").read_text(encoding="utf-8") == text


def test_kept_results_would_be_written_in_the_same_bytes(tmp_path):
    for name in list_results():
        kept = RESULTS / f"{name}.json"
        assert save_results(read_results(name), tmp_path).read_bytes() == kept.read_bytes()


def test_a_training_that_diverged_is_not_saved(tmp_path):
    results = collect(tmp_path)
    results["lessons"][0]["runs"][0]["metrics"]["val_loss"] = float("nan")
    with pytest.raises(CourseError, match="a training diverged"):
        save_results(results, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_run_is_one_line_whatever_its_settings_hold(tmp_path):
    results = collect(tmp_path)
    run = results["lessons"][0]["runs"][0]
    run["settings"] = {"seams": [{"name": "batch"}, {"name": "loss"}]}
    text = save_results(results, tmp_path).read_text(encoding="utf-8")
    assert json.loads(text) == results
    assert sum(line.strip().strip(",") == json.dumps(run) for line in text.splitlines()) == 1


def test_kept_results_name_no_path_of_a_machine():
    for path in RESULTS.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"/(?:work|root|home|tmp|Users)/", text), path.name
