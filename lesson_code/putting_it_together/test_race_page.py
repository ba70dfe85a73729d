"""docs/race.md says what the race and its history have stored."""

import math
import statistics

import nbformat
import pytest

from course_tools.publish.fair_race import find_front, format_rivals, list_curves, list_ends
from course_tools.run.lessons import NOTEBOOKS
from course_utils.measure.paired import paired_difference
from course_utils.results import STUDIES, median_seconds_to, read_file
from tests.places import ROOT

FOLDER = STUDIES / "putting_it_together"
PAGE = ROOT / "docs" / "race.md"
RECORD_AND_OURS = ("speedrun", "scratch_wide")


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
    ahead = paired_difference(now["speedrun"], now["scratch_wide"])
    edges = f"{100 * ahead.low:+.1f} to {100 * ahead.high:+.1f}".replace("-", "−")
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
        "now_long": percent(history["left_out"][0]["accuracy"]),
        "seminar": percent(history["left_out"][1]["accuracy"]),
        "record_6": percent(statistics.median(now["speedrun_middle"])),
        "now_wide": join(now["scratch_wide"]),
        "now_record": join(now["speedrun"]),
        "ahead": f"{100 * ahead.mean:+.1f} points ahead (95 % interval {edges})",
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
    "now_long": "One training of 18 epochs ended at {},",
    "seminar": "5 of its ten epochs, it ended at {}",
    "record_6": "below the median of {} that the speed-run has after 6",
    "now_wide": "It ends at {}, and",
    "now_record": "the speed-run of 10 epochs at {}.",
    "ahead": "Seed by seed ours is {}, at more epochs",
}


@pytest.mark.parametrize("name", AROUND)
def test_the_chronicle_says_what_is_stored(name):
    assert AROUND.keys() == write_sentences().keys()
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert AROUND[name].format(write_sentences()[name]) in text


def test_what_the_chronicle_concludes_is_so():
    history, race = (read_file(FOLDER / f"{name}.json") for name in ("race_history", "study_race"))
    last = {x: [curve[-1][1] for curve in list_curves(race, x)] for x in race["rivals"]}
    passed = {name: [x >= 0.9 for x in last[name]].count(True) for name in RECORD_AND_OURS}
    assert passed == {"speedrun": 2, "scratch_wide": 1}
    assert history["left_out"][0]["accuracy"] < statistics.median(last["speedrun_middle"])


@pytest.fixture
def lesson():
    """What lesson 12 says of the race, in one line."""
    cells = nbformat.read(NOTEBOOKS / "12_putting_it_together.ipynb", 4).cells
    [source] = [cell.source for cell in cells if cell.id == "race"]
    return " ".join(source.split())


def test_who_is_first_in_the_lesson_is_first_in_the_race(lesson):
    """Of trainings from random weights: ours up to 85 %, the speed-run at 90 %."""
    race = read_file(FOLDER / "study_race.json")
    curves = {x: list_curves(race, x) for x in race["rivals"] if x != "backbone"}
    assert [len(found) for found in curves.values()] == [3] * 7
    assert "a race of eight rivals" in lesson
    first = {}
    for goal in race["goals"]:
        seconds = {name: median_seconds_to(goal, found) for name, found in curves.items()}
        first[goal] = min(seconds, key=seconds.get)
    *others, last = race["goals"]
    assert {first[goal] for goal in others} <= {"scratch_short", "scratch"}  # at half of the widths
    assert f"is first to {', '.join(f'{100 * x:.0f}' for x in others[:-1])} and 85 %" in lesson
    assert first[last] == "speedrun"
    seconds = median_seconds_to(last, curves["speedrun"])
    assert f"Only the speed-run of 10 epochs reaches 90 %, after {seconds:.0f} s" in lesson
    del curves["speedrun"]
    assert min(median_seconds_to(last, found) for found in curves.values()) == math.inf


def test_the_accuracies_of_single_rivals_in_the_lesson_are_so(lesson):
    race = read_file(FOLDER / "study_race.json")
    short, wide = (list_curves(race, name) for name in ("scratch_short", "scratch_wide"))
    assert race["rivals"]["scratch_short"]["epochs"] == 3
    seconds = median_seconds_to(0.8, short)
    assert f"our recipe of 3 epochs reaches 80 % after {seconds:.0f} s" in lesson
    others = (x for x in race["rivals"] if x not in ("scratch_short", "backbone"))
    assert seconds < min(median_seconds_to(0.8, list_curves(race, x)) for x in others)
    assert max(accuracy for curve in short for _, accuracy in curve) < 0.85
    ends = [100 * curve[-1][1] for curve in wide]
    assert f"14 epochs at full width ends at {statistics.median(ends):.1f} %" in lesson


def test_the_page_has_every_rival():
    race = read_file(FOLDER / "study_race.json")
    assert format_rivals(race) in PAGE.read_text(encoding="utf-8")


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
