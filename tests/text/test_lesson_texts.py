"""Sentences of lessons against the stored results that they are about, and against each other."""

import re
from collections import defaultdict
from functools import partial

from course_tools.lab import lab
from course_tools.run.lessons import NOTEBOOKS, find_lessons
from course_utils.results import RESULTS, read_file


def read_cells(number):
    """The sources of a lesson's cells, by their names, in order."""
    (lesson,) = (lesson for lesson in find_lessons() if lesson.name.startswith(number))
    return {cell.id: cell.source for cell in lesson.read().cells}


def test_lesson_13_asks_its_question_before_it_measures():
    """The heading and what is measured were lost once."""
    question = read_cells("13")["flat-md"]
    assert question.startswith("### Is the average in a flatter minimum?")
    assert question.index("the study measures") > question.index("needs a number")


def test_a_source_has_the_same_authors_in_every_lesson():
    authors = defaultdict(set)
    for lesson in find_lessons():
        text = lesson.read().cells[-1].source
        for source in re.split(r" · |Sources: |\n", text):
            if found := re.match(r"(\w+\. [^,\[]+), \[[^\]]*\]\(([^)]+)\)", source):
                authors[found[2]].add(found[1])
    assert len(authors) > 50
    assert {link: names for link, names in authors.items() if len(names) > 1} == {}


def test_a_recipe_of_lesson_91_lies_where_the_file_browser_makes_it():
    shown = lab.__dict__["NOTEBOOKS"]
    assert shown == NOTEBOOKS
    recipes = re.findall(r"course race (?:lesson_12 )?(\S+\.py)", read_cells("91")["race"])
    assert len(recipes) == 3
    assert {name.rpartition("/")[0] for name in recipes} == {NOTEBOOKS.name}


def test_what_lessons_say_of_a_gpu_is_what_was_measured():
    """Lesson 11 has a test of its own, in its folder."""
    rows = read_file(RESULTS / "measured_nvidia_h200.json")["rows"]
    found = {(row["table"], *row["settings"].values()): row for row in rows}

    def read(number):
        (said,) = [text for text in read_cells(number).values() if "NVIDIA H200" in text]
        return said

    def ratio(name, table, one, other):
        return found[(table, *one)][name] / found[(table, *other)][name]

    times = [
        ("ResNet-50", "fp32", "contiguous"),
        ("ResNet-50", "fp32, PyTorch's default", "contiguous"),
        ("ResNet-50", "bf16", "contiguous"),
        ("ResNet-50", "tf32", "channels last"),
        ("ResNet-50", "bf16", "channels last"),
        ("ViT-B/16", "fp32, PyTorch's default", "contiguous"),
        ("ViT-B/16", "tf32", "contiguous"),
        ("ViT-B/16", "bf16", "contiguous"),
    ]
    said = re.findall(r"[\d.]+(?= ms)", read("07"))
    assert said == [f"{found[('formats', *key, False)]['ms']:.3g}" for key in times]
    of_256 = partial(ratio, table="accumulation", other=(256, 256))
    less = 1 - of_256("peak_bytes", one=(256, 128))
    more = of_256("ms", one=(256, 128)) - 1
    assert f"of 128 images need {less:.0%} less memory".replace("%", " %") in read("08")
    assert f"and {more:.0%} more time".replace("%", " %") in read("08")
    assert f"of 16 take {of_256('ms', one=(256, 16)):.1f} times as long" in read("08")
    of_plain = partial(ratio, table="checkpointing", other=("nothing",))
    left, longer = of_plain("peak_bytes", one=("blocks",)), of_plain("ms", one=("blocks",)) - 1
    expected = f"leaves {left:.0%} of the peak for {longer:.0%} more time".replace("%", " %")
    assert expected in read("10")
    selective = ("all but matrix products",)
    left = of_plain("peak_bytes", one=selective)
    assert f"leaves {left:.0%} of the peak, and is no faster".replace("%", " %") in read("10")
    assert of_plain("ms", one=selective) >= of_plain("ms", one=("blocks",))
    of_loop = partial(ratio, "ms", "optimizers", ("AdamW", "loop"))
    foreach, fused = of_loop(("AdamW", "foreach")), of_loop(("AdamW", "fused"))
    assert f"{foreach:.1f} times as long as `foreach` and {fused:.1f} times as" in read("16")
