"""The course uses the field's words: no text holds a word of `tests/text/words.py`."""

import json

import pytest

from tests.places import ROOT
from tests.text.offenders import for_each
from tests.text.readable_text import read_file
from tests.text.words import KEPT, WORDS

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "data/README.md",
    "data/results/README.md",
    "notebooks/glossary.md",
]
PATTERNS = ["notebooks/*.ipynb", "docs/*.md", "course_utils/**/*.py", "course_utils/**/*.md"]
FILES = PAGES + sorted(
    path.relative_to(ROOT).as_posix() for pattern in PATTERNS for path in ROOT.glob(pattern)
)


def find_words(path, kept=()):
    """Each forbidden word in a file: its place, and the better word."""
    for place, text in read_file(path):
        for word in WORDS:
            for match in word.find(text, kept):
                line = place or f"line {text.count(chr(10), 0, match.start()) + 1}"
                yield f"{line}: {' '.join(match.group().split())!r} -> {word.better}"


@for_each(lambda: [(name, ROOT / name) for name in FILES])
def test_files_use_the_fields_words(name, path):
    """`tests/text/words.py` has the list."""
    return find_words(path, KEPT.get(name, ()))


@for_each(KEPT.items)
def test_a_phrase_that_is_kept_still_stands_there(name, kept):
    for phrase in kept:
        others = tuple(other for other in kept if other != phrase)
        if not list(find_words(ROOT / name, others)):
            yield f"take {phrase} out of KEPT"


def test_every_word_is_found(tmp_path):
    page = tmp_path / "page.md"
    for word in WORDS:
        page.write_text(f"A title.\n\nA plain line.\nBefore: {word.example}, and after.\n")
        found = list(find_words(page))
        assert [line for line in found if line.endswith(f"-> {word.better}")], word.example
        assert all(line.startswith("line 4: ") for line in found), found


CLEAN = """Make sure that the learning rate is low: the error rate of the
dropout rate 0.1 tells. It runs on Windows, too. We talk it through. Once an epoch the loader gives
a batch a new order, and 24 of the classes resemble a class. In all training images a channel has
one value. `rate`, ``arm`` and $rate$ are names, and so is [this](by_heart.md#ladder). Pay
attention to the learning
rate.
"""


@pytest.mark.parametrize("suffix", [".md", ".py", ".ipynb"])
def test_a_clean_text_passes(suffix, tmp_path):
    path = tmp_path / f"clean{suffix}"
    source = CLEAN
    if suffix == ".py":
        source = f'"""{CLEAN}"""\n\nrate = arm("learning rate")  # of the learning\n# rate\n'
    elif suffix == ".ipynb":
        source = json.dumps(make_notebook("markdown", CLEAN))
    path.write_text(source)
    assert list(find_words(path)) == []


def make_notebook(kind, source, **about):
    cells = [{"cell_type": "markdown", "source": ["Fine.\n", "Yes."]}]
    cells.append({"cell_type": kind, "source": source.splitlines(keepends=True)})
    return {"cells": cells, "metadata": {"course": about}}


READ_CODE = {
    "x = 1  # the rate of it\n": 1,
    "# the\n# rate of it\n": 2,
    'print("the rate of it")\n': 1,
    'print("it is the\\nrate of it")\n': 1,
    'print(f"{1} rate {2}")\n': 1,
    "print(f\"a {'rate' if x else table['arm']}\")\n": 1,
    'def f():\n    """Fine.\n\n    Of the\n    rate.\n    """\n': 5,
    '%%writefile a.py\n"""The rate."""\n': 2,
    'x = 1  # `rate`\nrate = "{rate} https://x.org/rate"\n': 0,
}


def test_code_is_read_where_a_person_reads_it(tmp_path):
    notebook, module = tmp_path / "lesson.ipynb", tmp_path / "module.py"
    said = "'rate' -> learning rate; throughput"
    for source, line in READ_CODE.items():
        notebook.write_text(json.dumps(make_notebook("code", source)))
        module.write_text(source)
        assert list(find_words(notebook)) == [f"cell 1: {said}"] * bool(line), source
        assert list(find_words(module)) == [f"line {line}: {said}"] * bool(line), source


def test_what_the_readme_shows_of_a_lesson_is_read(tmp_path):
    notebook = tmp_path / "lesson.ipynb"
    about = {"question": "Which rate?", "headline": [{"claim": "rate", "label": "the arm"}]}
    notebook.write_text(json.dumps(make_notebook("markdown", "Fine.", **about)))
    found = [line.split(" -> ")[0] for line in find_words(notebook)]
    assert found == ["cell metadata: 'rate'", "cell metadata: 'arm'"]


def test_an_allowed_context_hides_only_itself(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("The learning rate, and the rate.\nMake sure, and be sure.\n")
    places = [line.split(" -> ")[0] for line in find_words(page)]
    assert places == ["line 1: 'rate'", "line 2: 'sure'"]
    assert len(list(find_words(page, ("the rate",)))) == 1
