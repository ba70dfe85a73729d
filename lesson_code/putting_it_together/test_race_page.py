"""docs/race.md says what the race and its history have stored."""

import math
import statistics

import nbformat
import pytest

from course_tools.publish.fair_race import find_front, format_rivals, list_curves, list_ends
from course_tools.run.lessons import NOTEBOOKS
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


@pytest.fixture
def lesson():
    """What lesson 12 says of the race, in one line."""
    cells = nbformat.read(NOTEBOOKS / "12_putting_it_together.ipynb", 4).cells
    [source] = [cell.source for cell in cells if cell.id == "race"]
    return " ".join(source.split())


def test_what_the_lesson_says_of_the_race_is_so(lesson):
    """Ours from random weights are first up to 85 %, none is at 90 %; seven rivals are few."""
    race = read_file(FOLDER / "study_race.json")
    curves = {name: list_curves(race, name) for name in race["rivals"]}
    first = {}
    for goal in race["goals"]:
        seconds = {name: median_seconds_to(goal, found) for name, found in curves.items()}
        assert goal < 0.9 or set(seconds.values()) == {math.inf}
        del seconds["backbone"]  # pretrained
        first[goal] = min(seconds, key=seconds.get)
    del first[0.9]
    assert set(first.values()) <= {"scratch_short", "scratch"}  # at half of the widths
    *but_last, last = (f"{100 * goal:.0f}" for goal in first)
    assert f"is first to {', '.join(but_last)} and {last} %" in lesson
    few = [name for name, found in curves.items() if len(found) < 3]
    assert (len(curves), len(few)) == (10, 7)
    assert "a race of ten rivals" in lesson
    assert "Seven rivals have fewer than three seeds" in lesson


def test_the_accuracies_of_single_rivals_in_the_lesson_are_so(lesson):
    race = read_file(FOLDER / "study_race.json")
    names = ("scratch_short", "scratch_wide", "seminar")
    short, wide, seminar = (list_curves(race, name) for name in names)
    assert race["rivals"]["scratch_short"]["epochs"] == 3
    seconds = median_seconds_to(0.8, short)
    assert f"our recipe of 3 epochs reaches 80 % after {seconds:.0f} s" in lesson
    others = (x for x in race["rivals"] if x not in ("scratch_short", "backbone"))
    assert seconds < min(median_seconds_to(0.8, list_curves(race, x)) for x in others)
    assert max(accuracy for curve in short for _, accuracy in curve) < 0.85
    ends = [100 * curve[-1][1] for curve in wide]
    assert min(ends) < 90
    assert f"ends at {statistics.median(ends):.1f} %, but not all" in lesson
    [curve] = seminar
    assert len(curve) == 5
    assert "ten epochs, of which five were trained" in lesson
    assert f"its {percent(curve[-1][1])} say" in lesson


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
