"""README and pages say what lessons and stored results say, and are as `course sync` makes them."""

import dataclasses
import itertools
import re

import numpy as np

from course_tools.publish.fair_race import (
    OURS,
    RECORD,
    fastest_seconds,
    find_front,
    format_race,
    list_curves,
    list_ends,
    list_variants,
    say_seconds,
)
from course_tools.publish.readme import format_headlines, read_result_sets, read_studies
from course_tools.publish.readme_figure import FILES, format_figure, is_stale, read_series
from course_tools.publish.sync import format_problems, list_changes
from course_utils.results import RESULTS, STUDIES, median_seconds_to, read_file, seconds_to
from tests.places import ROOT
from tests.text.offenders import for_each, list_lessons, read_lessons
from tests.tools.publish.test_readme_figure import check_labels

README_FILES = ("README.md", "course_tools/publish/student/README.md")
CONCLUSIVE = r"(helps|hurts|equivalent( \(.*\))?|holds( \(.*\))?|not measured yet) \|$"
NEEDED_WORDS = {  # of a label: without them the README would mislead
    "12": "pretrained start",  # which brings nearly all of it
    "13": "new BatchNorm statistics for both",  # which alone bring most of the rest
    "14": r"\d+ photographs, SGD",
    "15": "planted heavy",
    "16": "fresh seeds",  # not those that were in the tuning
}


def find_lesson(number):
    (lesson,) = (lesson for lesson in list_lessons() if lesson.name.startswith(number))
    return lesson


def test_readme_and_lessons_are_as_course_sync_makes_them():
    assert not list_changes(ROOT, list(list_lessons())), "run course sync"
    assert not is_stale(ROOT), "the README's figure shows older results: run course sync"


def test_the_readme_shows_the_problems_of_lesson_00_and_their_links_lead_to_lessons():
    table = format_problems(list_lessons()[0])
    assert "measure first" not in table
    assert table in (ROOT / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(notebooks/([^)]+)\)", table))
    assert linked <= {lesson.path.name for lesson in list_lessons()}
    assert len(linked) >= 10
    assert table.count("](") == len(re.findall(r"\[(\d\d)\]\(notebooks/\1_\w+\.ipynb\)", table))


# ---- The table of results.


def test_every_lesson_has_a_headline():
    shown = {lesson.name: lesson.headline for lesson in list_lessons()}
    techniques = [name for name in shown if name[:2] not in ("00", "90")]
    assert [name for name in techniques if not 1 <= len(shown[name]) <= 2] == []


def effect_rows():
    """Each headline's lesson and row in the README, but for those of claims of identity."""
    sets = read_result_sets(RESULTS)
    kinds = {c["text"]: c["kind"] for r in sets for x in r["lessons"] for c in x["claims"]}
    studies = read_studies(list_lessons())
    for lesson in list_lessons():
        for headline in lesson.headline:
            if kinds.get(headline.get("claim")) != "identity":
                shown = dataclasses.replace(lesson, headline=[headline])
                yield lesson.name, format_headlines([shown], sets, studies).splitlines()[-1]


@for_each(effect_rows)
def test_rows_of_effects_say_over_how_many_seeds(name, row):
    if not re.search(r"\d+ (seeds|equal settings)", row):
        yield row


@for_each(NEEDED_WORDS.items)
def test_the_readme_says_what_would_mislead_without_it(number, words):
    labels = [headline.get("label", "") for headline in find_lesson(number).headline]
    assert any(re.search(words, label) for label in labels), f"no label says {words}"


def test_a_conclusive_result_is_not_left_out_for_an_inconclusive_one():
    first = dict(reversed(list(effect_rows())))  # of each lesson
    chosen = {name: row for name, row in first.items() if name[:2] in ("11", "18")}
    assert len(chosen) == 2
    assert [row for row in chosen.values() if not re.search(CONCLUSIVE, row)] == []


def test_the_optimizers_of_the_readme_are_judged_at_seeds_that_no_trial_has_seen():
    headline = find_lesson("16").headline[0]
    stored = read_file(STUDIES / "optimizers/study_trials.json")["rows"]
    seeds = {
        kind: {row["seed"] for row in stored if row["kind"] == kind} for kind in ("trial", "fresh")
    }
    assert headline["study"] == "optimizers/study_trials"
    assert headline["arm"]["kind"] == headline["baseline"]["kind"] == "fresh"
    assert not seeds["trial"] & seeds["fresh"]


# ---- The race.


def read_table_of_the_page():
    """The rows of the rivals' table of ``docs/race.md``: label to cells by column."""
    lines = (ROOT / "docs/race.md").read_text(encoding="utf-8").splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("| rival |"))
    head, _, *rows = ([part.strip() for part in x.split("|")[1:-1]] for x in lines[first:])
    rows = itertools.takewhile(bool, rows)
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def test_figure_sentence_and_page_mean_the_same_by_reached():
    race = read_file(ROOT / FILES[1])
    goals, sentence = sorted(race["goals"])[-3:], format_race(race)
    title, reached_there = format_figure(), read_table_of_the_page()
    for goal in goals:
        mine, theirs = (say_seconds(fastest_seconds(race, r, goal)) for r in (OURS, RECORD))
        assert f"{100 * goal:.0f} %: {mine} and {theirs}" in sentence
        for recipe in (OURS, RECORD):
            own = [race["rivals"][name]["label"] for name in list_variants(race, recipe)]
            shown = [reached_there[label][f"s to {100 * goal:.0f} %"] for label in own]
            seconds = [float(x.replace(",", "")) for x in shown if x != "–"]
            said = fastest_seconds(race, recipe, goal)
            assert min(seconds, default=np.inf) == (said if said == np.inf else round(said))
        reached = "not reached" if mine == "not reached" else f"in {mine}"
        assert f"{100 * goal:.0f} % {reached}" in title
    assert title.count("not reached") == sentence.split("Medians")[0].count("not reached")


def test_the_front_of_the_page_is_that_of_lesson_12s_exercise():
    ends = list_ends(race := read_file(ROOT / FILES[1]))
    cells = read_lessons()[find_lesson("12_").name].cells
    ids = {x.metadata.get("nbgrader", {}).get("grade_id"): x.source for x in cells}
    known = {}
    exec(ids["pareto_front"], known)
    front = known["pareto_front"](ends)
    assert front == find_front(ends)
    labels = [race["rivals"][name]["label"] for name in front]
    rows = read_table_of_the_page()
    assert sorted(labels) == sorted(label for label, row in rows.items() if row["front"] == "yes")


def test_the_stored_race_has_a_goal_that_one_seed_reaches_and_the_median_does_not():
    """So the test above compares what differed once."""
    race = read_file(ROOT / FILES[1])
    curves = list_curves(race, "scratch_wide")
    assert min(seconds_to(0.9, x) for x in curves) < median_seconds_to(0.9, curves) == np.inf


def test_labels_of_the_figure_are_apart():
    check_labels(*read_series(ROOT)[:2])


# ---- Badges and promises.


def find_dead_badges(text):
    """The targets of linked images that a browser does not show as a page."""
    targets = re.findall(r"\[!\[[^\]]*\]\([^)]*\)\]\(([^)]*)\)", text)
    return [t for t in targets if not re.search(r"^https://|\.(md|ipynb|html)(#.*)?$", t)]


@for_each(lambda: [(name, ROOT / name) for name in README_FILES])
def test_badges_open_something(name, path):
    return find_dead_badges(path.read_text(encoding="utf-8"))


def test_a_badge_that_opens_nothing_is_found():
    dead = ["environment.yml", "Makefile", "docs/nbgrader_config.py"]
    targets = [*dead, "docs/teaching.md#binder-and-colab", "https://example.org"]
    assert find_dead_badges("".join(f"[![a badge](docs/a.svg)]({x})" for x in targets)) == dead


def test_the_readmes_promise_nothing_that_nobody_has_seen():
    """Lessons and cards ran on one GPU, in smoke; and the course shows photographs."""
    seen = read_file(RESULTS / "smoke_nvidia_h200.json")
    lessons, cards = seen["executed"], seen["cards"]
    assert all(row["result"] == "passed" for row in lessons)
    assert all(row["exit"] == 0 for row in cards)
    course, student = ((ROOT / name).read_text(encoding="utf-8") for name in README_FILES)
    assert f"on a real one {len(lessons)} lessons passed once, in `smoke`" in course
    using = (ROOT / "docs" / "using.md").read_text(encoding="utf-8")
    assert f"all {len(lessons)} lessons passed from beginning to end in `smoke`" in using
    assert f"all {len(cards)} recipe cards ran" in using
    assert "uses an NVIDIA GPU where one is" not in course
    assert "draws itself" not in student


def test_no_time_stands_in_the_readme_that_the_stored_runs_do_not_keep():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    promised = [float(seconds) for seconds in re.findall(r"≤ (\d+) s", text)]
    taken = [x.time_s for x in list_lessons() if x.time_s]
    assert all(max(taken) <= seconds for seconds in promised)


def test_readme_and_contributing_stay_short():
    limits = {"README.md": 9000, "CONTRIBUTING.md": 7000}  # characters: people read them whole
    lengths = {name: len((ROOT / name).read_text("utf-8")) for name in limits}
    assert all(lengths[name] <= limit for name, limit in limits.items()), lengths
