"""The list of studies: what each took, how old it is, and how long the rest will take."""

import json
from dataclasses import replace
from datetime import date, timedelta

import pytest

from course_tools.study import describe
from course_tools.study.declare import load_study
from course_tools.study.describe import describe_study, describe_time_left, list_studies
from course_tools.study.study_file import StudyFile
from tests.tools.study.toy_study import TOY, list_toy, make_row, write_toy

TODAY = date(2026, 11, 27)
HARDWARE = {"cpu": "A CPU", "cores": 2, "gpu": None}
REGIMES_END = """        )
    },
"""
OTHER = """        ),
        "other": Regime("Fewer.", CONFIG, {"plain": tune(), "smooth": tune()}, few=20),
    },
"""


@pytest.fixture
def toy(tmp_path):
    yield write_toy(tmp_path / "lessons")
    load_study.cache_clear()


def keep(folder, seconds=2.0, **names):
    """Keep rows for the declared trainings with these values."""
    found = StudyFile("toy", folder)
    for training in list_toy(folder, **names):
        found.add(make_row(training, seconds=seconds), HARDWARE)
    return found


def keep_all(folder):
    keep(folder, trial="lr 0.001")  # of equal trials the first one is reported
    return keep(folder, trial="lr 0.01", seed=100)


def test_a_study_that_is_not_begun_has_trainings_left(toy):
    found = StudyFile("toy", toy)
    assert describe_study(found, 2, TODAY) == "toy: Does smoothing help on a toy? 8 left"
    assert describe_time_left(found, 2) == ""


def test_the_time_left_is_that_of_the_trainings_so_far(toy):
    found = keep(toy, seconds=100.0, variant="plain", seed=100)
    assert found.count_left() == {"tiny": 6}
    assert describe_time_left(found, 1) == "about 10 minutes"
    assert describe_time_left(found, 2) == "about 5 minutes"
    described = describe_study(found, 2, TODAY)
    assert "? 6 left, about 5 minutes with --jobs 2; 2 trainings in 4 minutes of" in described


def test_a_regime_without_a_training_takes_more(toy):
    assert TOY.count(REGIMES_END) == 1
    write_toy(toy, TOY.replace(REGIMES_END, OTHER))
    found = keep(toy, seconds=100.0, regime="tiny", variant="plain", seed=100)
    assert found.count_left() == {"tiny": 6, "other": 8}
    assert describe_time_left(found, 1) == "more than 10 minutes"
    assert describe_time_left(found, 10) == "more than 1 minute"


@pytest.mark.parametrize(("days", "age"), [(0, "today"), (1, "1 day ago"), (40, "40 days ago")])
def test_a_complete_study_has_its_cost_its_age_and_its_machine(toy, days, age):
    keep_all(toy)
    study = StudyFile("toy", toy)
    made = study.stored.made
    assert describe_study(study, 2, made + timedelta(days)) == (
        "toy: Does smoothing help on a toy? 8 trainings in 1 minute of one core; "
        f"made {made} ({age}); A CPU, 2 cores, no GPU"
    )


def test_a_declaration_that_is_not_written_yet_is_said(toy):
    keep_all(toy)
    write_toy(toy, TOY.replace("a toy?", "this toy?"))
    described = describe_study(StudyFile("toy", toy), 2, TODAY)
    assert "? its declaration has changed: `course study toy` writes it again; 8 train" in described


def test_studies_made_by_hand_are_listed_with_their_command(toy, course, monkeypatch):
    about = {"command": "mine.py --save", "commit": "abc", "hardware": HARDWARE}
    made = (TODAY - timedelta(3)).isoformat()
    (toy / "old").mkdir()
    (toy / "old" / "study.json").write_text(json.dumps(about | {"made": made}))
    (toy / "toy" / "study_more.json").write_text(json.dumps(about))
    (toy / "toy" / "checks.json").write_text("{}")
    monkeypatch.setattr(
        describe, "list_studies", lambda jobs, _: list_studies(jobs, TODAY, folder=toy)
    )
    status, out, _ = course("study")
    assert status == 0
    assert out.splitlines() == [
        "toy: Does smoothing help on a toy? 8 left",
        f"old/study.json: by hand: `mine.py --save`; commit abc; made {made} (3 days ago); "
        "A CPU, 2 cores",
        "toy/study_more.json: by hand: `mine.py --save`; commit abc; A CPU, 2 cores",
    ]


def test_a_damaged_study_hides_no_other(toy):
    (toy / "toy" / "study.json").write_text("{}")
    for name, text in (("old", "["), ("other", "{}")):
        (toy / name).mkdir()
        (toy / name / "study.json").write_text(text)
    lines = list(list_studies(2, TODAY, toy))
    assert "study.json is damaged, or no file of `course study`" in lines[0]
    assert "study.json is damaged" in lines[1]
    assert lines[2] == "other/study.json: by hand: `unknown command`"


def test_the_row_of_a_training_is_kept_as_it_is(toy):
    [training] = list_toy(toy, variant="plain", trial="lr 0.001", seed=100)
    row = replace(make_row(training, loss=None), saved_bytes=None)
    StudyFile("toy", toy).add(row, HARDWARE)
    assert StudyFile("toy", toy).rows == {training: row}
