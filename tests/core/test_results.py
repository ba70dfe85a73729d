import json
import subprocess
import sys

import numpy as np
import pytest

from course_utils.errors import CourseError
from course_utils.results import (
    RUN_FIELDS,
    LessonResult,
    list_results,
    read_results,
    values_by_arm,
)


def make_run(arm, seed, accuracy):
    return {"arm": arm, "seed": seed, "metrics": {"val_accuracy": accuracy}}


def write(folder, name, content):
    (folder / f"{name}.json").write_text(json.dumps(content))


def test_results_are_listed_and_other_files_are_not(tmp_path):
    assert list_results(tmp_path / "nowhere") == []
    write(tmp_path, "b", {"lessons": []})
    write(tmp_path, "a", {"lessons": []})
    write(tmp_path, "benchmark", {"passed": 3})
    (tmp_path / "README.md").write_text("about")
    assert list_results(tmp_path) == ["a", "b"]


ABOUT = dict.fromkeys(["command", "dataset", "first_seed", "hardware", "versions", "commit"], "")


CLAIM = {"text": "a < b", "kind": "effect", "holds": True, "value": None}
RUN = dict.fromkeys(RUN_FIELDS, 0) | {"comparison": "c", "arm": "a", "metrics": {"loss": 1}}
LESSON = {
    "name": "01_a",
    "time_s": 1.5,
    "peak_memory_bytes": 10**9,
    "claims": [CLAIM],
    "runs": [RUN],
}


def test_results_come_back_as_they_were_written(tmp_path):
    results = ABOUT | {"name": "a", "lessons": [LESSON]}
    write(tmp_path, "a", results)
    assert read_results("a", tmp_path) == results


def test_missing_results_say_which_there_are_and_how_to_make_them(tmp_path):
    write(tmp_path, "a", {"lessons": []})
    with pytest.raises(CourseError, match=r"there are: a\): .*`course run --save-results b`"):
        read_results("b", tmp_path)


@pytest.mark.parametrize(
    "content", ["", "{", "3", "\0", "null", '{"lessons": [NaN]}', '{"a": -Infinity}']
)
def test_a_damaged_file_is_named_with_its_cure(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(
        CourseError, match=r"a\.json is damaged \(.+\): restore it with `git checkout"
    ):
        read_results("a", tmp_path)
    with pytest.raises(CourseError, match="is damaged"):
        list_results(tmp_path)


@pytest.mark.parametrize(
    "content",
    [{}, {"lessons": []}, ABOUT | {"lessons": 3}],
)
def test_a_file_without_lessons_is_no_result(tmp_path, content):
    write(tmp_path, "a", content)
    with pytest.raises(CourseError, match="holds no results of lessons"):
        read_results("a", tmp_path)


def test_results_with_a_damaged_lesson_say_which_and_what_is_missing(tmp_path):
    write(tmp_path, "a", ABOUT | {"lessons": [LESSON, {"name": "02_b"}]})
    with pytest.raises(
        CourseError, match=r"a\.json is damaged \(02_b: time_s: Field required\): restore it"
    ):
        read_results("a", tmp_path)


def test_the_result_of_a_lesson_comes_back_as_it_was_written():
    result = LessonResult(
        "01_a",
        time_s=2,
        peak_memory_bytes=3,
        claims=LESSON["claims"],
        runs=LESSON["runs"],
        status="failed",
        reason="cell 1",
        cells_s=[0.5, 1.5],
        over_budget=True,
        commit="abc",
        key="123",
    )
    assert LessonResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    kept = LessonResult.from_json(LESSON | {"field of a later version": 1})
    assert kept.to_json().items() >= LESSON.items()
    assert (kept.status, kept.key, kept.commit) == ("passed", "", None)


@pytest.mark.parametrize("name", sorted(LESSON))
def test_a_result_without_a_field_is_damaged(name):
    entry = {key: value for key, value in LESSON.items() if key != name}
    with pytest.raises(CourseError, match=f"{name}: Field required$") as caught:
        LessonResult.from_json(entry)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ({"time_s": "fast"}, "01_a: time_s: Input should be a valid number"),
        ({"time_s": None}, "time_s: Input should be a valid number"),
        ({"name": 3}, "name: Input should be a valid string"),
        ({"claims": {}}, "claims: Input should be a valid array"),
        ({"key": None}, "key: Input should be a valid string"),
        ({"status": "fine"}, "status: Input should be 'passed', 'failed' or 'skipped'"),
        ({"claims": ["a < b"]}, "claims → 0: Input should be"),
        ({"claims": [{"text": "a < b"}]}, "claims → 0 → kind: Field required"),
        ({"claims": [CLAIM | {"holds": "yes"}]}, "holds: Input should be a valid boolean"),
        ({"runs": [{"comparison": "c"}]}, "arm: Field required"),
        ({"runs": [RUN | {"seed": "0"}]}, "seed: Input should be a valid integer"),
        (
            {"runs": [RUN | {"metrics": {"loss": "1"}}]},
            "metrics → loss → int: Input should be a valid integer",
        ),
        ({"runs": [RUN | {"time_s": float("inf")}]}, "time_s: Input should be a finite number"),
        ({"cells_s": [float("nan")]}, "cells_s → 0: Input should be"),
        ({"cells_s": [-1]}, "cells_s → 0: Input should be greater than or equal to 0"),
        ({"cells_s": ["1"]}, "cells_s → 0: Input should be a valid number"),
    ],
)
def test_a_damaged_result_says_what_is_wrong(damage, sentence):
    with pytest.raises(CourseError, match=sentence) as caught:
        LessonResult.from_json(LESSON | damage)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("entry", [None, [], "01_a", 3])
def test_a_result_that_is_no_dictionary_is_damaged(entry):
    with pytest.raises(CourseError, match="a lesson: Input should be an object"):
        LessonResult.from_json(entry)


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
