"""A reader's predictions are kept in a file of their own, beside what the lesson found."""

import pytest

from course_utils.errors import CourseError
from course_utils.predictions import (
    FILE,
    compare_prediction,
    read_predictions,
    record_prediction,
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_without_numbers_nothing_is_written():
    prediction = record_prediction("03_lora", points=None, share=None)
    table = compare_prediction(prediction, points=-0.4, share=0.01)
    assert table.loc["points"].tolist() == ["–", "-0.4"]
    assert not FILE.exists()
    assert read_predictions() == {}


def test_numbers_are_kept_beside_what_was_found():
    record_prediction("02_freezing", points=1)
    prediction = record_prediction("03_lora", points=2.5, memory_share=None)
    assert read_predictions()["03_lora"] == {"points": {"predicted": 2.5}}
    table = compare_prediction(prediction, points=-0.4, memory_share=0.01)
    assert table.loc["points"].tolist() == ["2.5", "-0.4"]
    assert table.loc["memory share"].tolist() == ["–", "0.01"]
    assert read_predictions() == {
        "02_freezing": {"points": {"predicted": 1}},
        "03_lora": {"points": {"predicted": 2.5, "found": -0.4}},
    }


def test_a_second_prediction_replaces_the_first():
    compare_prediction(record_prediction("03_lora", points=1), points=3)
    record_prediction("03_lora", points=2)
    assert read_predictions() == {"03_lora": {"points": {"predicted": 2}}}


@pytest.mark.parametrize("number", ["two", float("nan"), float("inf"), [1]])
def test_what_is_no_number_is_refused(number):
    with pytest.raises(CourseError, match="is no number"):
        record_prediction("03_lora", points=number)
    assert not FILE.exists()


def test_other_names_are_refused():
    with pytest.raises(ValueError, match="found"):
        compare_prediction(record_prediction("03_lora", points=1), share=1)


@pytest.mark.parametrize(
    "content", ["", "[]", '{"03": []}', '{"03": {"a": {}}}', '{"03": {"a": {"predicted": "x"}}}']
)
def test_a_damaged_file_says_what_to_do(content):
    FILE.write_text(content)
    with pytest.raises(CourseError, match="delete it"):
        record_prediction("03_lora", points=1)
    assert FILE.read_text() == content
