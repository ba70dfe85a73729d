"""The README's figure: what it reads, what it says, and what happens to damaged results."""

import json

import pytest

from course_utils.errors import CourseError
from course_utils.tools.report.readme_figure import (
    FILES,
    RACERS,
    RECORD,
    format_figure,
    read_series,
)

ABOUT = {"command": "measure", "hardware": {"cpu": "a processor", "cores": 2}, "commit": "abc"}
COMPARISON = "many photographs"


def make_run(arm, seed, seconds, accuracy):
    curve = [[seconds, accuracy]]
    return {"comparison": COMPARISON, "arm": arm, "seed": seed, "curve": curve}


@pytest.fixture
def results(tmp_path):
    runs = [make_run("from scratch", seed, 7.0, 0.4) for seed in range(3)]
    times = ((2.0, 0.6), (2.4, 0.65), (9.0, 0.7))
    runs += [make_run("linear probe", seed, *end) for seed, end in enumerate(times)]
    runs.append({"comparison": "few", "arm": "linear probe", "seed": 0, "curve": [[1.0, 0.1]]})
    contents = (
        {"lessons": [{"name": "02_freezing", "runs": runs}, {"name": "03_lora", "runs": []}]},
        {
            "rivals": {name: {"label": f"the {name}"} for name in (*RACERS, RECORD)},
            "rows": [
                {"rival": "scratch_short", "seed": 0, "curve": [[60.0, 0.6], [119.0, 0.79]]},
                {"rival": "scratch_long", "seed": 0, "curve": [[35.0, 0.5], [605.0, 0.88]]},
                {"rival": "speedrun", "seed": 0, "curve": [[100.0, 0.5], [1199.0, 0.92]]},
            ],
        },
    )
    for name, content in zip(FILES, contents, strict=True):
        (tmp_path / name).write_text(json.dumps(ABOUT | content))
    return tmp_path


def test_ends_are_medians_over_the_seeds(results):
    series = read_series(results)
    assert [len(one.curves) for one in series] == [3, 3, 1, 1, 1]
    assert series[1].end == (2.4, 0.65)
    assert series[-1].end == (1199.0, 0.92)


def test_title_and_provenance_are_those_of_the_results(results):
    text = format_figure(results)
    ours = "65 % in 2 s, 79 % in 2 minutes, 88 % in 10 minutes"
    record = "the recipe of a record: 92 % in 20 minutes"
    assert f"two CPU cores: {ours} ({record})](docs/" in text
    assert text.count("`measure` (a processor, 2 cores, commit abc)") == 2


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (FILES[0], {"lessons": []}),
        (FILES[0], {"lessons": None}),
        (FILES[1], {"rows": []}),
        (FILES[1], {"rows": 3}),
    ],
)
def test_results_without_the_trainings_are_said(results, name, change):
    path = results / name
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CourseError, match=r"nothing for the README's figure .*: restore it"):
        format_figure(results)


def test_results_without_provenance_are_said(results):
    path = results / FILES[1]
    about = json.loads(path.read_text())
    del about["hardware"]
    path.write_text(json.dumps(about))
    with pytest.raises(CourseError, match=r"fair_race_2cores\.json is damaged"):
        format_figure(results)
