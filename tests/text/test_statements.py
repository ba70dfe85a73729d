"""Words about a verdict in a lesson's text agree with the verdict that is printed above them.

Only what a machine can read without guessing is read: statements about *every* variant of a
comparison, and the letter of an answer.
"""

import re
from dataclasses import dataclass

import nbformat
import pytest

from tests.text.offenders import for_each_lesson

VERDICT = re.compile(
    r"^\[(?P<comparison>[^\]\n]+)\] (?P<variant>[^:\n]+): accuracy [+-][\d.]+ points against "
    r"[^\n]*?(?P<verdict>helps|hurts|equivalent|inconclusive)",
    re.MULTILINE,
)
ALL = r"(?:every|each|all|all of the|none of the|no) (?:\w+ )?(?:variants?|schemes?|of them)"
STATEMENTS = {  # what a sentence says of every variant, and the verdict that each must have
    rf"\b{ALL} (?:is|are) (?:clearly|far|significantly) (?:behind|worse|below)": {"hurts"},
    rf"\b{ALL} (?:is|are) (?:clearly|far|significantly) (?:ahead|better|above)": {"helps"},
    r"\b(?:every|each) (?:variant|scheme) hurts": {"hurts"},
    r"\b(?:every|each) (?:variant|scheme) helps": {"helps"},
    r"\b(?:every|each) (?:variant|scheme) is equivalent": {"equivalent"},
    r"\bno (?:variant|scheme) (?:hurts|is (?:clearly )?(?:worse|behind))": {
        "helps",
        "equivalent",
        "inconclusive",
    },
    r"\bno (?:variant|scheme) (?:helps|is (?:clearly )?(?:better|ahead))": {
        "hurts",
        "equivalent",
        "inconclusive",
    },
}
ANSWER = re.compile(r"\bAnswer ([A-C])\b(?! (?:forgets|counts|would))")
SAYS_ANSWER = re.compile(r"\b(?:[Ss]o )?(?:[Aa]nswer )([A-C]) (?:is|was) (?:right|true)\b")


@dataclass
class Printed:
    """What the cells above a text have printed last."""

    verdicts: dict[str, dict[str, str]]
    answers: set[str]


def read_printed(cell):
    return "\n".join(output.get("text", "") for output in cell.get("outputs", []))


def find_false_statements(notebook):
    """Sentences of the text that the verdicts above them contradict, each with the verdict."""
    printed, found = Printed({}, set()), []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            update(printed, read_printed(cell))
        elif cell.cell_type == "markdown":
            for sentence in re.split(r"(?<=[.!?])\s+", cell.source):
                found += contradict(sentence, printed)
    return found


def update(printed, text):
    """A cell that prints verdicts or an answer replaces those of the cells above it."""
    verdicts = {}
    for match in VERDICT.finditer(text):
        verdicts.setdefault(match["comparison"], {})[match["variant"]] = match["verdict"]
    printed.verdicts = verdicts or printed.verdicts
    printed.answers = set(ANSWER.findall(text)) or printed.answers


def contradict(sentence, printed):
    """The contradictions of one sentence; without a comparison's name it is about all of them."""
    named = [name for name in printed.verdicts if name in sentence.casefold()]
    pairs = [
        (variant, verdict)
        for name in named or printed.verdicts
        for variant, verdict in printed.verdicts[name].items()
    ]
    found = []
    for pattern, allowed in STATEMENTS.items():
        if re.search(pattern, sentence, re.IGNORECASE):
            wrong = [
                f"{variant}: {verdict}" for variant, verdict in pairs if verdict not in allowed
            ]
            found += [f"{sentence!r}, but {', '.join(wrong)}"] if wrong else []
    for letter in SAYS_ANSWER.findall(sentence):
        if printed.answers and letter not in printed.answers:
            found.append(f"{sentence!r}, but the answer was {sorted(printed.answers)}")
    return found


@for_each_lesson
def test_words_about_verdicts_agree_with_the_verdicts_above(name, notebook):
    return find_false_statements(notebook)


LINES = (
    "[drawings] rank 1: accuracy -14.07 points against full (3 paired seeds, 95 % interval "
    "-23.97 to -4.16): hurts.\n"
    "[drawings] rank 16: accuracy -10.83 points against full (3 paired seeds, 95 % interval "
    "-23.06 to +1.39): inconclusive, about 4 seeds would decide.\n"
    "[photographs] rank 1: accuracy +4.00 points against full (3 paired seeds, 95 % interval "
    "+3.00 to +5.00): helps.\nAnswer B: the gap depends on the images.\nAnswer C would cost 9.\n"
)


@pytest.mark.parametrize(
    ("sentence", "faults"),
    [
        ("On drawings every variant is clearly behind.", ["rank 16: inconclusive"]),
        ("On drawings no variant hurts.", ["rank 1: hurts"]),
        ("Every variant helps.", ["rank 1: hurts, rank 16: inconclusive"]),
        ("No scheme is better.", ["rank 1: helps"]),
        ("So answer A was right.", ["the answer was ['B']"]),
        ("So answer C was right.", ["the answer was ['B']"]),
        ("On photographs every variant is clearly better.", []),
        ("On drawings no variant helps.", []),
        ("Answer B is right.", []),
        ("On drawings the mean of every variant is below.", []),
    ],
)
def test_a_sentence_that_a_verdict_contradicts_is_found(sentence, faults):
    output = nbformat.v4.new_output("stream", text=LINES)
    cells = [
        nbformat.v4.new_code_cell("", outputs=[output]),
        nbformat.v4.new_markdown_cell(f"First. {sentence} Then."),
    ]
    found = find_false_statements(nbformat.v4.new_notebook(cells=cells))
    assert [
        sentence in text and text.endswith(fault) for text, fault in zip(found, faults, strict=True)
    ] == [True] * len(faults), found
