"""Slides, seminar plans and alternative texts that tools make of the real lessons."""

import re

import nbformat

from course_tools.publish.figures import describe_figures, has_figure
from course_tools.publish.sections import is_card
from course_tools.publish.seminars import choose_sections, split_sections
from course_tools.publish.slides import MOST_SLIDES, number_slides
from tests.pages import read_slides
from tests.text.offenders import for_each, for_each_lesson, list_lessons

NO_TECHNIQUE = ("00", "90")


def read_text(notebook):
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


@for_each_lesson
def test_slides_are_not_empty_and_show_what_they_announce(name, notebook):
    slides = read_slides(notebook)
    if not 10 <= len(slides) <= MOST_SLIDES:
        yield f"{len(slides)} slides"
    for heading, text, note in slides:
        faults = {
            "is no heading": not re.match(r"##? \S", heading),
            "is nearly empty": len(text.split()) <= 5,
            "announces what is not there": text.strip().endswith(":"),
            "has no note": len(note.split()) <= 4,
            "tells an answer": re.search("Worked answer|<summary>Hint", text + note),
        }
        yield from (f"{heading} {fault}" for fault, is_so in faults.items() if is_so)


@for_each_lesson
def test_slides_show_the_important_parts_and_no_exercise_cells(name, notebook):
    slides, numbers = read_slides(notebook), number_slides(notebook)
    sections = re.findall(r"^## (Question|Verdict|Recipe|Exercises)$", read_text(notebook), re.M)
    missing = {f"## {section}" for section in sections} - {heading for heading, _, _ in slides}
    yield from (f"no slide {heading}" for heading in missing)
    cells = notebook.cells
    yield from (f"cell {i} is shown" for i in numbers if "nbgrader" in cells[i].metadata)
    pictures = [i for i, cell in enumerate(cells) if "image/png" in str(cell.get("outputs"))]
    if pictures and pictures[0] not in numbers:
        yield "the first figure is not shown"
    asked = [cell.source for cell in cells if "<details><summary>A. " in cell.source]
    for option in re.findall(r"<summary>[A-D]\. .*?</summary>", "".join(asked)):
        if not any(option in text for _, text, _ in slides):
            yield f"the prediction {option} is not shown"


@for_each_lesson
def test_nothing_that_a_lesson_says_is_lost_for_the_speaker(name, notebook):
    """Beside hints and worked answers; words, because long texts are in parts."""
    told = " ".join(heading + text + note for heading, text, note in read_slides(notebook))
    cut = r"<details>.*?</details>|\[([^\]]+)\]\([^)]*\)|<a.*?</a>|^#+ .*$|<[^>]+>"
    text = re.sub(cut, " ", read_text(notebook), flags=re.DOTALL | re.MULTILINE)
    yield from set(re.findall(r"\w{5,}", text)) - set(re.findall(r"\w{5,}", told))
    numbers = number_slides(notebook)
    for number, card in enumerate(notebook.cells):
        if is_card(card):
            if number not in numbers:
                yield f"card {card.id} is not shown"
            yield from (line for line in card.source.splitlines() if line not in told)


def list_shown_lessons():
    lessons = list_lessons()
    return [(x.name, x) for x in lessons if not x.name.startswith(NO_TECHNIQUE)]


@for_each(list_shown_lessons)
def test_a_plan_has_every_cell_and_slide_once(name, lesson):
    notebook = lesson.read()
    sections = split_sections(notebook, [1.0] * len(notebook.cells))
    places = [place for s in sections for place in range(s.first, s.last + 1)]
    assert places == list(range(1, len(notebook.cells) + 1))
    titles = [section.title for section in sections]
    assert titles[:3] == ["Title", "Question", "Set-up"]
    exercises = [title for title in titles if set(title) <= {"☆", "★"}]
    assert exercises == sorted(exercises, key=lambda x: (x != "☆", x)), "easy ones first"
    assert {"★", "★★", "★★★"} <= set(exercises)
    assert len(exercises) <= 5
    numbers = {number for section in sections for number in section.slides}
    assert sorted(numbers) == list(range(1, len(read_slides(notebook)) + 1))


@for_each(list_shown_lessons)
def test_a_seminar_has_room_for_what_matters(name, lesson):
    notebook = lesson.read()
    sections = split_sections(notebook, [1.0] * len(notebook.cells))
    for minutes in (45, 90):
        chosen = choose_sections(sections, minutes)
        assert sum(section.minutes for section in chosen) <= 0.85 * minutes
        assert {"Question", "Idea", "Verdict"} <= {section.title for section in chosen}
        headline = [section.is_headline for section in chosen if section.title == "Experiment"]
        assert any(headline), "the room sees a verdict that nobody saw measured"
    times = {section.title: section.talk_min for section in sections}
    assert times["Question"] >= 2, "everybody makes a prediction"
    assert times["Set-up"] == 0.5
    # the estimate is near what the lesson promises a student, who reads faster than one speaks
    assert 0.7 < sum(s.talk_min for s in sections) / lesson.minutes < 1.8


@for_each_lesson
def test_every_figure_is_described(name, notebook):
    described = nbformat.from_dict(notebook)
    describe_figures(described)
    for cell in filter(has_figure, described.cells):
        alt = cell.metadata["mystnb"]["image"]["alt"]
        if not 8 <= len(alt) <= 250:
            yield f"cell {cell.id}: {alt!r}"


@for_each_lesson
def test_every_speakers_note_is_folded(name, notebook):
    for cell in notebook.cells:
        if cell.metadata.get("slideshow", {}).get("slide_type") == "notes":
            begins = cell.source.startswith("<details><summary>For the teacher</summary>\n\n")
            if not (begins and cell.source.endswith("</details>")):
                yield f"cell {cell.id}"
