"""What a lesson reads of a study that is stored, and what it does not."""

import json
from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from course_utils.config import load_config
from course_utils.errors import CourseError
from course_utils.measure.paired import paired_difference
from course_utils.study_results import (
    RegimeResult,
    StudyResult,
    TrainingResult,
    read_study,
    read_study_file,
)

SEEDS = (0, 1, 2)
PLAIN, MIXED = [0.50, 0.60, 0.55], [0.58, 0.67, 0.64]  # accuracies at the reported seeds


def make_training(variant, seed, accuracy, trial="lr 0.1", loss=1.0):
    return TrainingResult(
        study="toy",
        regime="few",
        variant=variant,
        trial=trial,
        seed=seed,
        key=f"{variant} {trial}",
        metrics={"epoch": 2, "val_loss": loss, "val_accuracy": accuracy},
        trained_parameters=10,
        saved_bytes=None,
        seconds=1.5,
    )


STUDY = StudyResult(
    question="Does mixing help?",
    margin=0.02,
    seeds=SEEDS,
    search_seeds=(100,),
    regimes={"few": RegimeResult("Few images, ä.", load_config("smoke"), few=10)},
    command="course study toy",
    made=date(2026, 11, 27),
    hardware={"cpu": "A CPU", "cores": 2, "memory_bytes": 10**9, "gpu": None, "system": "Linux"},
    threads=1,
    versions={"torch": "2.0"},
    commit=None,
    best={"few": {"plain": "lr 0.1", "mixed": "lr 0.2"}},
    trainings=(
        make_training("plain", 100, 0.9),
        make_training("plain", 0, PLAIN[0]),
        make_training("plain", 1, PLAIN[1]),
        make_training("plain", 2, PLAIN[2]),
        make_training("plain", 0, 0.1, trial="lr 0.2"),
        make_training("mixed", 0, MIXED[0], trial="lr 0.2"),
        make_training("mixed", 1, MIXED[1], trial="lr 0.2"),
        make_training("mixed", 2, MIXED[2], trial="lr 0.2"),
    ),
)


def write(folder, text):
    (folder / "toy").mkdir(exist_ok=True)
    (folder / "toy" / "study.json").write_text(text, encoding="utf-8")
    return folder


def test_a_study_comes_back_as_it_was_written(tmp_path):
    assert read_study("toy", write(tmp_path, STUDY.to_json())) == STUDY
    assert read_study("toy", tmp_path).to_json() == STUDY.to_json()
    lines = STUDY.to_json().splitlines()
    assert len([line for line in lines if '"seed":' in line]) == len(STUDY.trainings)
    assert '  "few": {' in lines
    assert "Few images, ä." in STUDY.to_json()  # as it is read, not \\u00e4


def test_values_are_those_of_the_best_trial_in_the_order_of_the_seeds():
    mixed_up = replace(STUDY, trainings=STUDY.trainings[::-1])
    for study in (STUDY, mixed_up):
        np.testing.assert_array_equal(study.values("few", "plain"), PLAIN)
        np.testing.assert_array_equal(study.values("few", "mixed"), MIXED)
    np.testing.assert_array_equal(STUDY.values("few", "mixed", "val_loss"), [1, 1, 1])


def test_a_difference_is_paired_and_the_first_variant_is_the_baseline():
    found = STUDY.difference("few", "mixed")
    assert found == paired_difference(PLAIN, MIXED)
    assert found.mean == pytest.approx(0.08)
    assert STUDY.difference("few", "plain", baseline="mixed").mean == pytest.approx(-0.08)
    assert STUDY.difference("few", "mixed", metric="val_loss").mean == 0


def test_a_table_has_a_row_for_each_variant():
    table = STUDY.table("few")
    assert table.to_dict("index") == {
        "plain": {
            "accuracy (mean)": 55.0,
            "difference (points)": "–",
            "95 % interval": "–",
            "verdict": "baseline",
            "seeds": 3,
            "trial": "lr 0.1",
        },
        "mixed": {
            "accuracy (mean)": 63.0,
            "difference (points)": 8.0,
            "95 % interval": "+5.52 to +10.48",
            "verdict": "helps",
            "seeds": 3,
            "trial": "lr 0.2",
        },
    }


@pytest.mark.parametrize(
    ("margin", "metric", "verdict"),
    [
        (0.11, "val_accuracy", "equivalent (±11 points)"),  # of the study
        (0.01, "val_loss", "equivalent (±0.02 nats)"),  # of the metric
    ],
)
def test_the_word_equivalent_has_its_margin(margin, metric, verdict):
    table = replace(STUDY, margin=margin).table("few", metric)
    assert table.loc["mixed", "verdict"] == verdict


def test_a_training_that_diverged_is_not_a_number_and_is_said(tmp_path):
    lost = make_training("mixed", 1, 0.1, "lr 0.2", loss=None)
    assert lost.diverged
    trainings = tuple(lost if (x.variant, x.seed) == ("mixed", 1) else x for x in STUDY.trainings)
    text = replace(STUDY, trainings=trainings).to_json()
    assert "NaN" not in text
    study = read_study("toy", write(tmp_path, text))
    np.testing.assert_array_equal(study.values("few", "mixed", "val_loss"), [1, np.nan, 1])
    assert study.values("few", "mixed")[1] == 0.1
    assert study.table("few").loc["mixed", "seeds"] == "3, 1 diverged"
    losses = study.table("few", "val_loss").loc["mixed"]
    assert losses["verdict"] == "inconclusive"
    assert losses.iloc[:3].tolist() == ["–", "–", "–"]  # mean, difference, interval


def test_provenance_is_one_line():
    assert STUDY.describe_provenance() == (
        "3 paired seeds; A CPU, 2 cores, no GPU; 1 thread for each training; 2026-11-27"
    )
    on_gpu = replace(STUDY, seeds=(0,), threads=2, hardware=STUDY.hardware | {"gpu": "A GPU"})
    assert on_gpu.describe_provenance() == (
        "1 seed; A CPU, 2 cores, A GPU; 2 threads for each training; 2026-11-27"
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: STUDY.values("fev", "plain"), "no regime 'fev': did you mean 'few'?"),
        (lambda: STUDY.values("few", "x"), "no variant 'x': choose from plain, mixed"),
        (lambda: STUDY.values("few", "plain", "val_los"), "no metric 'val_los': did you mean"),
        (lambda: STUDY.difference("few", "mixed", "none"), "no variant 'none'"),
        (lambda: STUDY.table("few", "train_loss"), "no metric 'train_loss'"),
    ],
)
def test_unknown_names_are_named(call, message):
    with pytest.raises(CourseError) as caught:
        call()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"best": None},
        {"best": {}},
        {"seeds": (*SEEDS, 3)},
        {"trainings": STUDY.trainings[:-1]},
    ],
)
def test_a_study_with_trainings_left_is_refused(tmp_path, change):
    write(tmp_path, replace(STUDY, **change).to_json())
    with pytest.raises(CourseError) as caught:
        read_study("toy", tmp_path)
    assert str(caught.value) == "the study toy is not complete: go on with `course study toy`"
    assert read_study_file(tmp_path / "toy" / "study.json").question == STUDY.question


def test_a_missing_study_names_the_command(tmp_path):
    with pytest.raises(CourseError, match=r"no study .*tay.study\.json: train it with `course s"):
        read_study("tay", tmp_path)


def replace_in_row(**changes):
    content = json.loads(STUDY.to_json())
    content["trainings"][0] |= changes
    return json.dumps(content)


DAMAGED = {
    "cut off": (STUDY.to_json()[:-20], "(char "),
    "no file of `course study`": ('{"command": "mine", "rows": []}', "question: Field required"),
    "a list": ("[]", "Input should be an object"),
    "NaN": (replace_in_row(metrics={"val_accuracy": float("nan")}), "trainings → 0 → metrics"),
    "a word for a number": (replace_in_row(seconds="long"), "trainings → 0 → seconds"),
    "a negative time": (replace_in_row(seconds=-1), "trainings → 0 → seconds"),
    "no day": (STUDY.to_json().replace("2026-11-27", "yesterday"), "made: "),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_one_line_with_the_fix(tmp_path, case):
    text, where = DAMAGED[case]
    path = write(tmp_path, text) / "toy" / "study.json"
    with pytest.raises(CourseError) as caught:
        read_study("toy", tmp_path)
    assert str(caught.value).startswith(f"{path} is damaged, or no file of `course study` (")
    assert where in str(caught.value)
    assert str(caught.value).endswith(
        f"restore it with `git checkout {path}`, or delete it and run `course study toy`"
    )
    assert "\n" not in str(caught.value)
