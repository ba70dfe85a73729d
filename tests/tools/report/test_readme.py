import dataclasses
import json

import pytest

from course_utils.errors import CourseError
from course_utils.tools.report.readme import (
    RACE,
    format_headlines,
    format_race,
    format_section,
    read_result_sets,
)
from course_utils.tools.run.lessons import find_lessons
from tests.tools.run.test_save_results import collect, make_lesson


@pytest.fixture
def lesson(tmp_path):
    return make_lesson(tmp_path, "01_a")


@pytest.fixture
def results(tmp_path):
    found = collect(tmp_path, ("01_a",))
    found["versions"] = {"python": "3.12", "torch": "2.0", "lightning": "2.6"}
    found["hardware"] |= {"cores": 2, "system": "Linux"}
    return found


def rows(lesson, headline, *sets):
    table = format_headlines([dataclasses.replace(lesson, headline=[headline])], sets)
    return [line for line in table.splitlines() if "01_a" in line and line.startswith("|")]


def test_every_lesson_has_a_headline():
    shown = {lesson.name: lesson.headline for lesson in find_lessons()}
    techniques = [name for name in shown if name[:2] not in ("00", "90")]
    assert [name for name in techniques if not 1 <= len(shown[name]) <= 2] == []


def test_an_arm_is_compared_with_the_first_one(lesson, results):
    (row,) = rows(lesson, {"comparison": "short", "arm": "mixup"}, results)
    assert row == (
        "| [01_a](notebooks/01_a.ipynb) | mixup against baseline (short) "
        "| +1.00 points (+1.00 to +1.00, 3 seeds): helps |"
    )


def test_one_seed_gives_no_interval(lesson, results):
    entry = results["lessons"][0]
    entry["runs"] = [run for run in entry["runs"] if run["seed"] == 0]
    (row,) = rows(lesson, {"comparison": "short", "arm": "mixup"}, results)
    assert "+1.00 points (one seed, no interval): inconclusive" in row


def test_a_claim_is_shown_with_its_value_and_whether_it_holds(lesson, results):
    (row,) = rows(lesson, {"claim": "a < b & c"}, results)
    assert "| a &lt; b & c | holds (1e-07) |" in row
    (row,) = rows(lesson, {"claim": "it <b>helps</b>", "label": "mine | yours"}, results)
    assert r"| mine \| yours | does not hold |" in row


def test_a_set_without_the_lesson_leaves_its_cell_empty(lesson, results):
    other = results | {"name": "other", "dataset": "mine (folder)", "lessons": []}
    (row,) = rows(lesson, {"comparison": "short", "arm": "mixup"}, results, other)
    assert row.endswith("helps | – |")
    (row,) = rows(lesson, {"comparison": "short", "arm": "mixup"}, other)
    assert row == "| [01_a](notebooks/01_a.ipynb) | mixup | – |"


def test_a_claim_that_was_made_on_other_data_only_leaves_its_cell_empty(lesson, results):
    silent = results | {"lessons": [results["lessons"][0] | {"claims": []}]}
    (row,) = rows(lesson, {"claim": "a < b & c"}, silent, results)
    assert row.endswith("| a &lt; b & c | – | holds (1e-07) |")


def test_where_the_numbers_come_from_stands_below(lesson, results):
    assert format_headlines([lesson], [results]).splitlines()[-1] == (
        "- `some`: `course run 01 --profile quick --save-results some`; data photos, seeds from 0; "
        "a processor, 2 cores, no GPU, Linux; Python 3.12, torch 2.0, lightning 2.6; commit abc"
    )


@pytest.mark.parametrize(
    "headline",
    [
        {"claim": "no such"},
        {"comparison": "short", "arm": "no such"},
        {"comparison": "no such", "arm": "mixup"},
        {"comparison": "short"},
        {},
    ],
)
def test_a_headline_that_the_results_do_not_know(lesson, results, headline):
    with pytest.raises(
        CourseError, match=r"01_a: no results have anything for its headline .* correct"
    ):
        rows(lesson, headline, results)


def test_without_results_a_sentence_says_how_to_get_some(lesson):
    assert "course run --profile quick --save-results" in format_headlines([lesson], [])


def test_the_lessons_own_data_come_first_and_other_files_are_left_out(tmp_path, results):
    for name, dataset in (("a", "mine (folder)"), ("b", "photos")):
        (tmp_path / f"{name}.json").write_text(json.dumps(results | {"dataset": dataset}))
    (tmp_path / "freshness.json").write_text(json.dumps({"passed": 3}))
    assert [x["dataset"] for x in read_result_sets(tmp_path)] == ["photos", "mine (folder)"]
    assert read_result_sets(tmp_path / "nowhere") == []


def test_the_race_is_told_in_a_sentence_behind_the_table(tmp_path, lesson, results):
    race = {key: results[key] for key in ("hardware", "versions")} | {
        "dataset": "some (folder)",
        "command": "race",
        "commit": "abc",
        "goals": [0.5, 0.6, 0.9],
        "rivals": {
            "speedrun": {"label": "speed-run"},
            "speedrun_short": {"label": "speed-run, shorter"},
            "scratch": {"label": "ours"},
            "scratch_long": {"label": "ours, longer"},
            "scratch_short": {"label": "ours, shorter"},
            "backbone": {"label": "pretrained"},
        },
        "rows": [
            {"rival": "speedrun", "seed": 0, "curve": [[50.0, 0.5], [100.0, 0.6]]},
            {"rival": "speedrun_short", "seed": 0, "curve": [[30.0, 0.5]]},
            {"rival": "scratch", "seed": 0, "curve": [[2.0, 0.7]]},
            {"rival": "scratch", "seed": 1, "curve": [[4.0, 0.6]]},
            {"rival": "scratch", "seed": 2, "curve": [[1.0, 0.5], [5.0, 0.6]]},
            {"rival": "scratch_long", "seed": 0, "curve": [[20.0, 0.5], [2000.0, 0.9]]},
            {"rival": "scratch_short", "seed": 0, "curve": [[3.0, 0.4]]},
            {"rival": "backbone", "seed": 0, "curve": [[0.1, 0.95]]},
        ],
    }
    sentence = format_race(race)
    assert "A race on some (folder) from random weights" in sentence
    assert "each at the fastest of its variants (ours: 3, the record: 2)." in sentence
    assert "50 %: 2 s and 30 s; 60 %: 4 s and 100 s; 90 %: 2,000 s and not reached." in sentence
    assert "Medians over the seeds (seeds of each: 1 to 3); `race`; " in sentence
    once = race | {"rows": [row for row in race["rows"] if row["seed"] == 0]}
    assert "Medians over the seeds (seeds of each: 1); `race`; " in format_race(once)
    (tmp_path / RACE).write_text(json.dumps(race))
    (tmp_path / "some.json").write_text(json.dumps(results))
    table = format_headlines([lesson], [results])
    assert format_section([lesson], tmp_path) == f"{table}\n\n{sentence}"
