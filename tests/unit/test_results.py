import json
import subprocess
import sys

import numpy as np
import pytest

from course_utils.errors import CourseError
from course_utils.results import list_results, read_results, values_by_arm


def make_run(arm, seed, accuracy):
    return {"arm": arm, "seed": seed, "metrics": {"val_accuracy": accuracy}}


def write(folder, name, content):
    (folder / f"{name}.json").write_text(json.dumps(content))


def test_results_are_listed_and_other_files_are_not(tmp_path):
    assert list_results(tmp_path / "nowhere") == []
    write(tmp_path, "b", {"lessons": []})
    write(tmp_path, "a", {"lessons": []})
    write(tmp_path, "freshness", {"passed": 3})
    (tmp_path / "README.md").write_text("about")
    assert list_results(tmp_path) == ["a", "b"]


ABOUT = dict.fromkeys(["command", "dataset", "first_seed", "hardware", "versions", "commit"], "")


def test_results_come_back_as_they_were_written(tmp_path):
    results = ABOUT | {"name": "a", "lessons": [{"name": "01_a", "claims": [], "runs": []}]}
    write(tmp_path, "a", results)
    assert read_results("a", tmp_path) == results


def test_missing_results_say_which_there_are_and_how_to_make_them(tmp_path):
    write(tmp_path, "a", {"lessons": []})
    with pytest.raises(CourseError, match=r"there are: a\): .*`course run --save-results b`"):
        read_results("b", tmp_path)


@pytest.mark.parametrize("content", ["", "{", "3", "\0", "null"])
def test_a_damaged_file_is_named_with_its_cure(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(CourseError, match=r"a\.json is damaged: restore it with `git checkout"):
        read_results("a", tmp_path)
    with pytest.raises(CourseError, match="is damaged"):
        list_results(tmp_path)


@pytest.mark.parametrize(
    "content",
    [{}, {"lessons": []}, ABOUT | {"lessons": 3}, ABOUT | {"lessons": [{"name": "01_a"}]}],
)
def test_a_file_without_lessons_is_no_result(tmp_path, content):
    write(tmp_path, "a", content)
    with pytest.raises(CourseError, match="holds no results of lessons"):
        read_results("a", tmp_path)


def test_values_are_paired_by_seed_whatever_the_order():
    runs = [make_run("off", 1, 0.2), make_run("on", 0, 0.3), make_run("off", 0, 0.1)]
    values = values_by_arm([*runs, make_run("on", 1, 0.4)])
    assert list(values) == ["off", "on"]
    np.testing.assert_array_equal(values["off"], [0.1, 0.2])
    np.testing.assert_array_equal(values["on"], [0.3, 0.4])


def test_seeds_that_an_arm_lacks_are_left_out():
    runs = [make_run("off", 0, 0.1), make_run("off", 1, 0.2), make_run("on", 1, 0.4)]
    assert {arm: list(v) for arm, v in values_by_arm(runs).items()} == {"off": [0.2], "on": [0.4]}
    assert [len(v) for v in values_by_arm(runs[::2]).values()] == [0, 0]
    assert values_by_arm([]) == {}


def test_reading_results_is_light():
    code = "import sys, course_utils.results; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
