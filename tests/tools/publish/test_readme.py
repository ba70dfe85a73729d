import dataclasses
import json

import pytest

from course_tools.publish.fair_race import RACE, format_race
from course_tools.publish.readme import (
    format_findings,
    format_headlines,
    format_section,
    format_sources,
    read_result_sets,
    read_studies,
)
from course_utils.errors import CourseError
from course_utils.results import STUDIES
from tests.core.test_study_results import STUDY as DECLARED
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


def store(root, results, race):
    for name, content in (("data/results/some.json", results), (f"lesson_code/{RACE}", race)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(json.dumps(content))


def rows(lesson, headline, *sets, studies=None):
    shown = [dataclasses.replace(lesson, headline=[headline])]
    table = format_headlines(shown, sets, studies or {})
    return [line for line in table.splitlines() if "01_a" in line and line.startswith("|")]


def test_an_arm_is_compared_with_the_first_one(lesson, results):
    (row,) = rows(lesson, {"comparison": "short", "arm": "mixup"}, results)
    assert row == (
        "| [01_a](../notebooks/01_a.ipynb) | mixup against baseline (short) "
        "| +1.00 points (+1.00 to +1.00; 3 seeds): helps |"
    )


def test_an_arm_is_compared_with_another_one_that_the_headline_names(lesson, results):
    headline = {"comparison": "short", "baseline": "mixup", "arm": "baseline"}
    (row,) = rows(lesson, headline, results)
    assert "baseline against mixup (short) | -1.00 points (-1.00 to -1.00; 3 seeds): hurts" in row


@pytest.mark.parametrize(
    ("images", "epochs", "said"),
    [
        (1000, 8, "; 3 seeds, 1,000 images, 8 epochs)"),
        (50, 1, "; 3 seeds, 50 images, 1 epoch)"),
        (None, 2, "; 3 seeds, 2 epochs)"),
        (1000, None, "; 3 seeds, 1,000 images)"),
    ],
)
def test_a_row_says_the_regime_that_its_trainings_recorded(lesson, results, images, epochs, said):
    for run in results["lessons"][0]["runs"]:
        run["settings"] = {"data": {"train": images} if images else {}}
        run["metrics"] |= {"epoch": epochs} if epochs else {}
    assert said in rows(lesson, {"comparison": "short", "arm": "mixup"}, results)[0]


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
    assert row == "| [01_a](../notebooks/01_a.ipynb) | mixup | – |"


def test_a_claim_that_was_made_on_other_data_only_leaves_its_cell_empty(lesson, results):
    silent = results | {"lessons": [results["lessons"][0] | {"claims": []}]}
    (row,) = rows(lesson, {"claim": "a < b & c"}, silent, results)
    assert row.endswith("| a &lt; b & c | – | holds (1e-07) |")


def test_where_the_numbers_come_from_stands_below(lesson, results):
    assert format_sources([results]).splitlines() == [
        "- `some`: `course run 01 --profile quick --save-results some`; data photos, seeds from 0; "
        "a processor, 2 cores, no GPU, Linux; Python 3.12, torch 2.0, lightning 2.6; commit abc"
    ]


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
    assert "course run --profile quick --save-results" in format_headlines([lesson], [], {})


def test_the_lessons_own_data_come_first_and_other_files_are_left_out(tmp_path, results):
    for name, dataset in (("a", "mine (folder)"), ("b", "photos")):
        (tmp_path / f"{name}.json").write_text(json.dumps(results | {"dataset": dataset}))
    (tmp_path / "benchmark.json").write_text(json.dumps({"passed": 3}))
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
    assert "Medians over the seeds (seeds of each: 1 to 3)" in sentence
    once = race | {"rows": [row for row in race["rows"] if row["seed"] == 0]}
    assert "Medians over the seeds (seeds of each: 1)" in format_race(once)
    store(tmp_path, results, race)
    table = format_headlines([lesson], [results], {})
    sources = format_sources([results, race | {"name": "putting_it_together/study_race"}])
    assert format_section([lesson], tmp_path) == f"{table}\n\n{sentence}\n\n{sources}"


@pytest.mark.parametrize("missing", ["hardware", "versions", "command", "commit"])
def test_a_race_without_provenance_is_said(tmp_path, lesson, results, missing):
    race = json.loads((STUDIES / RACE).read_text())
    del race[missing]
    store(tmp_path, results, race)
    with pytest.raises(CourseError, match=r"study_race\.json is damaged"):
        format_section([lesson], tmp_path)


STUDY = {
    "dataset": "photos",
    "num_train": 1000,
    "epochs": 6,
    "search_seed": 100,
    "rows": [
        {"kind": kind, "seed": seed, "accuracy": accuracy, "best": accuracy + 0.05}
        for kind, values in (("a", (0.5, 0.52, 0.51)), ("b", (0.7, 0.72, 0.71)))
        for seed, accuracy in enumerate(values)
    ]
    + [{"kind": "a", "seed": 100, "accuracy": 0.9}] * 2,
}
FROM_STUDY = {"study": "mine", "arm": {"kind": "b"}, "baseline": {"kind": "a"}}


def test_a_headline_takes_its_numbers_from_a_stored_study(lesson, results):
    studies = {"mine": STUDY}
    (row,) = rows(lesson, FROM_STUDY, results, studies=studies)
    measured = "+20.00 points (+20.00 to +20.00; 3 seeds of `mine`, 1,000 images, 6 epochs): helps"
    assert row == f"| [01_a](../notebooks/01_a.ipynb) | b against a | {measured} |"
    other = FROM_STUDY | {"baseline": {"kind": "b", "metric": "best"}, "pairs": "settings"}
    (row,) = rows(lesson, other, results, studies=studies)
    assert "-5.00 points (-5.00 to -5.00; 3 settings of `mine`" in row
    (row,) = rows(lesson, FROM_STUDY, results | {"dataset": "mine (folder)"}, studies=studies)
    assert row.endswith("| – |"), "the study was measured on other data"


def test_the_last_of_accuracies_after_each_epoch_counts(lesson, results):
    changed = [row | {"accuracy": [0.1, row["accuracy"]]} for row in STUDY["rows"]]
    study = STUDY | {"rows": changed}
    assert "+20.00 points" in rows(lesson, FROM_STUDY, results, studies={"mine": study})[0]


@pytest.mark.parametrize(
    "change",
    [
        {"arm": {"kind": "c"}},
        {"baseline": {}},  # two variants in one group
        {"arm": {"kind": "b", "metric": "loss"}},
        {"baseline": "a"},
    ],
)
def test_a_headline_that_its_study_does_not_know(lesson, results, change):
    with pytest.raises(CourseError, match="01_a: no results have anything for its headline"):
        rows(lesson, FROM_STUDY | change, results, studies={"mine": STUDY})


TRAINED = {"study": "toy/study", "regime": "few", "arm": "mixed", "baseline": "plain"}


def test_a_headline_takes_its_numbers_from_a_study_that_the_course_trained(
    tmp_path, lesson, results
):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "study.json").write_text(DECLARED.to_json())
    shown = dataclasses.replace(lesson, headline=[TRAINED])
    studies = read_studies([shown], tmp_path)
    assert studies["toy/study"]["dataset"] == "photos"
    (row,) = rows(lesson, TRAINED, results | {"dataset": "other"}, studies=studies)
    found = DECLARED.difference("few", "mixed", "plain")
    about = "3 seeds of `toy/study`, 10 examples, 1 epoch"
    assert f"{100 * found.mean:+.2f} points ({found.format_interval(100)}; {about}): helps" in row
    assert "mixed against plain (few)" in row
    (row,) = rows(lesson, TRAINED | {"metric": "val_loss"}, results, studies=studies)
    other = DECLARED.difference("few", "mixed", "plain", "val_loss")
    assert other.mean != found.mean
    assert f"{100 * other.mean:+.2f} points" in row
    for change in ({"regime": "many"}, {"arm": "other"}, {"metric": "loss"}):
        with pytest.raises(CourseError, match="01_a: no results have anything for its headline"):
            rows(lesson, TRAINED | change, results, studies=studies)


def test_a_study_that_is_missing_is_said(tmp_path, lesson):
    shown = dataclasses.replace(lesson, headline=[FROM_STUDY])
    with pytest.raises(CourseError, match=r"mine\.json is damaged"):
        read_studies([shown], tmp_path)


def test_a_claim_that_is_newer_than_the_results_is_not_measured_yet(tmp_path, lesson, results):
    cell = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": 'claim("it is new", 1)'}
    content = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    lesson.path.write_text(json.dumps(content))
    (row,) = rows(lesson, {"claim": "it is new", "label": "new"}, results)
    assert row.endswith("| new | not measured yet |")
    with pytest.raises(CourseError, match="correct it"):
        rows(lesson, {"claim": "it is"}, results)


def test_findings_are_the_first_headlines_that_are_decided_over_ten_seeds(
    tmp_path, lesson, results
):
    measured = results["lessons"][0]
    runs = {run["arm"]: run for run in measured["runs"] if run["comparison"] == "short"}
    many = [
        run | {"seed": seed, "comparison": "ten"} for run in runs.values() for seed in range(10)
    ]
    measured["runs"] += many
    store(tmp_path, results, {})
    values = enumerate([0.5] * 12 + [0.7] * 12)
    trials = [{"kind": "ab"[n // 12], "seed": n % 12, "accuracy": value} for n, value in values]
    path = tmp_path / "lesson_code" / "mine.json"
    path.write_text(json.dumps({**STUDY, "rows": trials}))
    settings = FROM_STUDY | {"pairs": "equal settings"}
    few = {"comparison": "short", "arm": "mixup"}
    undecided = {"claim": results["lessons"][0]["claims"][0]["text"], "label": "it holds"}
    helpful = {"comparison": "ten", "arm": "mixup"}
    shown = dataclasses.replace(lesson, headline=[undecided, few, settings, helpful, helpful])
    assert format_findings([shown], tmp_path) == (
        "- 01 · mixup against baseline (ten): **helps**, +1.00 (+1.00 to +1.00)"
    )
    hidden = dataclasses.replace(lesson, headline=[undecided | {"finding": False}, helpful])
    assert "- 01" not in format_findings([hidden], tmp_path)
