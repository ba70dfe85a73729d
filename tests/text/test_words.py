"""The course uses the field's words: no text holds a word of `tests/text/words.py`."""

import json

import pytest

from tests.places import ROOT
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
    found = []
    for passage in read_file(path):
        for word in WORDS:
            for match in word.find(passage.text):
                if any(phrase.covers(passage.text, match) for phrase in kept):
                    continue
                place = passage.place(match.start())
                said = " ".join(match.group().split())
                found.append(f"{path.name}, {place}: {said!r} -> {word.better}")
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_file_uses_the_fields_words(name):
    kept = [phrase for phrase in KEPT if phrase.file == name]
    found = find_words(ROOT / name, kept)
    assert not found, "\n".join(["tests/text/words.py has the list:", *found])


# From the twenty sentences of the first edition that were hardest to read.
HARD_SENTENCES = (
    "Whether that flatters only images",
    "times what one scatters",
    "Threads share out every operation",
    "Frozen from the bottom up",
    "can neither be cached, nor shared",
    "measures that rate",
    "callbacks* that change a shared batch has it harder",
    "nothing pays for that",
    "may lie in what it opens",
    "it is for the lost updates",
    "Once everything is bf16",
    "seldom worth a thought",
    "a cosine would be broken off",
    "carry the training less far",
    "is ballast here",
    "turns to account",
    "it knows that pixel",
    "the segment that stands there whole",
    "spares only the decoding",
    "a grey dot a seed",
)


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith((".ipynb", ".md"))])
def test_no_hard_sentence_of_the_first_edition_is_left(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not [sentence for sentence in HARD_SENTENCES if sentence in text]


@pytest.mark.parametrize("phrase", KEPT, ids=lambda phrase: phrase.phrase)
def test_a_phrase_that_is_kept_still_stands_there(phrase):
    """An exception that nothing needs any more is taken out of the list."""
    others = [other for other in KEPT if other.file == phrase.file and other != phrase]
    assert find_words(ROOT / phrase.file, others), f"{phrase.file}: take {phrase.phrase} out"


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.example)
def test_every_word_is_found(word, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"A title.\n\nA plain line.\nBefore: {word.example}, and after.\n")
    assert [line for line in find_words(page) if line.endswith(f"-> {word.better}")]
    assert all("page.md, line 4: " in line for line in find_words(page))


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
        source = f'"""{CLEAN}"""\n\nrate = "learning rate"  # of the learning\n# rate\n'
    elif suffix == ".ipynb":
        source = json.dumps(make_notebook("markdown", CLEAN))
    path.write_text(source)
    assert find_words(path) == []


def make_notebook(kind, source, **about):
    cells = [{"cell_type": "markdown", "source": ["Fine.\n", "Yes."]}]
    cells.append({"cell_type": kind, "source": source.splitlines(keepends=True)})
    return {"cells": cells, "metadata": {"course": about}}


@pytest.mark.parametrize(
    "source",
    [
        "x = 1  # the rate of it\n",
        "# the\n# rate of it\n",
        'print("the rate of it")\n',
        'print(f"{1} rate {2}")\n',
        'def f():\n    """Of the rate."""\n',
        '%%writefile a.py\n"""The rate."""\n',
    ],
)
def test_code_is_read_where_a_person_reads_it(source, tmp_path):
    notebook = tmp_path / "lesson.ipynb"
    notebook.write_text(json.dumps(make_notebook("code", source)))
    assert find_words(notebook) == [
        "lesson.ipynb, cell 1: 'rate' -> learning rate; throughput",
    ]


def test_names_in_code_are_not_read(tmp_path):
    module = tmp_path / "module.py"
    module.write_text("rate = 0.1\n\n\ndef arm(window):\n    return rate * window\n")
    assert find_words(module) == []


def test_what_the_readme_shows_of_a_lesson_is_read(tmp_path):
    notebook = tmp_path / "lesson.ipynb"
    about = {"question": "Which rate?", "headline": [{"claim": "rate", "label": "the arm"}]}
    notebook.write_text(json.dumps(make_notebook("markdown", "Fine.", **about)))
    found = find_words(notebook)
    assert [line.split(" -> ")[0] for line in found] == [
        "lesson.ipynb, cell metadata: 'rate'",
        "lesson.ipynb, cell metadata: 'arm'",
    ]


def test_an_allowed_context_hides_only_itself(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("The learning rate, and the rate.\nMake sure, and be sure.\n")
    places = [line.split(" -> ")[0] for line in find_words(page)]
    assert places == ["page.md, line 1: 'rate'", "page.md, line 2: 'sure'"]


def test_the_line_is_that_of_the_word(tmp_path):
    module = tmp_path / "module.py"
    module.write_text('x = 1\n\n\ndef f():\n    """Fine.\n\n    By\n    heart.\n    """\n')
    assert find_words(module) == ["module.py, line 7: 'By heart' -> memorised, overfits"]
