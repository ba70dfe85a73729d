"""docs/race.md says what the race and its history have stored."""

import math
import statistics

import pytest

from course_tools.publish.fair_race import find_front, format_rivals, list_curves, list_ends
from course_utils.results import STUDIES, median_seconds_to, read_file
from tests.places import ROOT

FOLDER = STUDIES / "putting_it_together"
PAGE = ROOT / "docs" / "race.md"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def join(values: list[float]) -> str:
    """All of them in words, in the order of their seeds."""
    *first, last = map(percent, values)
    return f"{', '.join(first)} and {last}" if first else last


def write_sentences() -> dict[str, str]:
    """What the chronicle says of stored numbers, by a name each."""
    history, race = (read_file(FOLDER / f"{name}.json") for name in ("race_history", "study_race"))
    before, now = {}, {}
    for row in history["first_race"]["rows"]:
        before.setdefault(row["rival"], []).append(row["accuracy"])
    for name in race["rivals"]:
        now[name] = [curve[-1][1] for curve in list_curves(race, name)]
    said = {
        f"pilot_{number}": percent(pilot["accuracy"])
        for number, pilot in enumerate(history["pilots"][:-1])
    }
    wide = history["pilots"][-1]
    return said | {
        "pilot_wide": f"{percent(wide['accuracy'])} after {wide['seconds']} s",
        "first_short": join(before["scratch_short"]),
        "first": join(before["scratch"]),
        "first_long": join(before["scratch_long"]),
        "first_record": join(before["speedrun"]),
        "first_mean": percent(statistics.mean(before["scratch"])),
        "now_mean": percent(statistics.mean(now["scratch"])),
        "first_backbone": join(before["backbone"]),
        "now_backbone": join(now["backbone"]),
        "now_long": join(now["scratch_long"]),
        "record_6": join(now["speedrun_middle"]),
        "now_wide": join(now["scratch_wide"]),
        "now_record": join(now["speedrun"]),
    }


AROUND = {  # the words before and after a number, so that it stands where it belongs
    "pilot_0": "In pilots of 6 epochs the recipe had {}.",
    "pilot_1": "not at 7 % of its peak, it had {}",
    "pilot_2": "whitened stem of the speed-run, too, {}",
    "pilot_3": "shifts of 2 pixels in place of 4 {}.",
    "pilot_wide": "six of them at 24 × 24 pixels, had {}.",
    "first_short": "It ended at {} after 3 epochs",
    "first": "at {} after 6",
    "first_long": "at {} after 18",
    "first_record": "the speed-run had {} after its 10 epochs",
    "first_mean": "rose from {} to",
    "now_mean": "to {} on average",
    "first_backbone": "It had {} at a learning rate of 0.004",
    "now_backbone": "and {} with the settings of the table",
    "now_long": "18 epochs end at {},",
    "record_6": "below the {} that the speed-run has after 6",
    "now_wide": "It ends at {}, and",
    "now_record": "the speed-run of 10 epochs at {}.",
}


@pytest.mark.parametrize("name", AROUND)
def test_the_chronicle_says_what_is_stored(name):
    assert AROUND.keys() == write_sentences().keys()
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert AROUND[name].format(write_sentences()[name]) in text


def test_what_the_chronicle_concludes_is_so():
    race = read_file(FOLDER / "study_race.json")
    last = {x: [curve[-1][1] for curve in list_curves(race, x)] for x in race["rivals"]}
    for name in ("scratch_wide", "speedrun"):
        assert [value >= 0.9 for value in last[name]].count(True) == 1
        assert len(last[name]) == 2
    assert max(last["scratch_long"]) < min(last["speedrun_middle"])


def test_what_the_lesson_says_of_the_race_is_so():
    """Ours from random weights are first up to 85 %, nobody is at 90 %; seven rivals are few."""
    race = read_file(FOLDER / "study_race.json")
    curves = {name: list_curves(race, name) for name in race["rivals"]}
    for goal in race["goals"]:
        seconds = {name: median_seconds_to(goal, found) for name, found in curves.items()}
        del seconds["backbone"]  # pretrained
        if goal < 0.9:
            assert min(seconds, key=seconds.get) in ("scratch_short", "scratch")
        else:
            assert set(seconds.values()) == {math.inf}
            assert median_seconds_to(goal, curves["backbone"]) == math.inf
    assert sum(len(found) < 3 for found in curves.values()) == 7
    assert len(curves) == 10


def test_the_page_has_every_rival_and_says_which_ones_have_few_seeds():
    race = read_file(FOLDER / "study_race.json")
    text = PAGE.read_text(encoding="utf-8")
    assert format_rivals(race) in text
    for name, rival in race["rivals"].items():
        count = len(list_curves(race, name))
        assert (f"{rival['label']} ({count})" in text) == (count < 3)


def test_a_rival_that_another_one_beats_is_not_on_the_front():
    ends = {"slow": (9.0, 0.6), "fast": (1.0, 0.5), "middle": (4.0, 0.8), "same": (4.0, 0.7)}
    assert find_front(ends) == ["fast", "middle"]
    race = {
        "rivals": dict.fromkeys("ab"),
        "rows": [
            {"rival": name, "curve": [(1.0, 0.2), (seconds, accuracy)]}
            for name, seconds, accuracy in (("a", 2.0, 0.5), ("a", 4.0, 0.7), ("b", 3.0, 0.4))
        ],
    }
    assert list_ends(race) == {"a": (3.0, 0.6), "b": (3.0, 0.4)}
