"""Notebooks as other programs write them are read as JupyterLab does; no kernel is started."""

import json
import warnings

import nbformat
import pytest

from course_tools.grade.answers import find_answers
from course_tools.grade.progress import find_key
from course_tools.grade.reading import read_submission
from course_utils.errors import CourseError
from tests.tools.grade.conftest import LESSON, make_notebook

STREAM = {"output_type": "stream", "name": "stdout", "text": "1"}


def change_outputs(**change):
    output = {name: value for name, value in (STREAM | change).items() if value is not None}
    return lambda entry: entry["cells"][1].update(outputs=[output])


def change_cell(number, **change):
    return lambda entry: entry["cells"][number].update(change)


def drop(number, name):
    return lambda entry: entry["cells"][number].pop(name)


def change(**fields):
    return lambda entry: entry.update(fields)


FORMS = {
    "ids in 4.4": change(nbformat_minor=4),
    "no ids": lambda entry: [cell.pop("id") for cell in entry["cells"]],
    "an id twice": change_cell(2, id="a"),
    "an id with a space": change_cell(1, id="my cell"),
    "an id that is a number": change_cell(1, id=7),
    "an odd minor version": change(nbformat_minor=99),
    "a minor version in words": change(nbformat_minor="five"),
    "no minor version": lambda entry: entry.pop("nbformat_minor"),
    "a version in words": change(nbformat="4"),
    "no version": lambda entry: entry.pop("nbformat"),
    "no metadata": lambda entry: entry.pop("metadata"),
    "a count of a star": change_cell(1, execution_count="*"),
    "no count": drop(1, "execution_count"),
    "no outputs": drop(1, "outputs"),
    "outputs that are a word": change_cell(1, outputs="none"),
    "a stream without name": change_outputs(name=None),
    "a display without metadata": change_outputs(output_type="display_data", data={}),
    "a result without count": change_outputs(output_type="execute_result", data={}, metadata={}),
    "an error without name": change_outputs(output_type="error", traceback="x"),
    "markdown with outputs": change_cell(0, outputs=[STREAM], execution_count=1),
    "a heading of old formats": change_cell(0, cell_type="heading", level=2),
    "a field that nobody knows": change_cell(1, cellView=None, colab={}),
    "lines as a list": change_cell(0, source=["## Exer", "cises"]),
}


@pytest.mark.parametrize("damage", FORMS.values(), ids=FORMS)
def test_what_other_programs_write_is_read(damage, tmp_path):
    entry = json.loads(nbformat.writes(make_notebook()))
    for cell, name in zip(entry["cells"], "abc", strict=True):
        cell["id"] = "a" if name == "a" else name
    damage(entry)
    path = tmp_path / "01_numbers.ipynb"
    path.write_text(json.dumps(entry))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing of nbformat's among the results
        notebook = read_submission(path)
        nbformat.validate(notebook)
    assert find_answers(notebook, LESSON) == {"double": [1], "triple": [2]}
    assert [cell.source for cell in notebook.cells] == [x.source for x in make_notebook().cells]


def test_a_notebook_of_format_3_is_read(tmp_path):
    old = nbformat.convert(make_notebook(), 3)
    path = tmp_path / "01_numbers.ipynb"
    entry = json.loads(nbformat.v3.writes_json(old))
    entry["worksheets"][0]["cells"][1]["outputs"] = [{"output_type": 5}]
    path.write_text(json.dumps(entry))
    assert make_notebook().cells[1].source in [x.source for x in read_submission(path).cells]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("x = 1  # \ud83d", "x = 1  # \ufffd"),
        ("\ude00", "\ufffd"),
        ("'\ud83d' + 'a'", "'\ufffd' + 'a'"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        ("\ufeffx", "\ufeffx"),
        ("é 🙂\r\n", "é 🙂\r\n"),
    ],
)
def test_half_a_character_is_replaced(written, read, tmp_path):
    notebook = make_notebook()
    path = tmp_path / "01_numbers.ipynb"
    entry = json.loads(nbformat.writes(notebook))
    entry["cells"][1]["source"] = written
    entry["cells"][0]["source"] = list("\ud83d\ude00")  # its halves in two lines
    path.write_text(json.dumps(entry))
    found = read_submission(path)
    assert [cell.source for cell in found.cells[:2]] == ["\U0001f600", read]
    assert len(find_key(found, LESSON)) == 64


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"nbformat": 4, "cells": [{"cell_type": "code", "source": 5}]}', "an iterable"),
        ('{"nbformat": 5, "cells": []}', "Unsupported nbformat version 5"),
        ('{"nbformat": 4, "cells": [{"cell_type": "code"}]}', "cell 1 has no source"),
        ("<<<<<<< HEAD", "Expecting value"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text, reason, tmp_path):
    path = tmp_path / "01_numbers.ipynb"
    path.write_text(text)
    with pytest.raises(CourseError, match=f"is not a notebook .*{reason}.*: save it again"):
        read_submission(path)
