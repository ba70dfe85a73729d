import json
from datetime import date

from course_tools.study import keep
from course_utils.measure.provenance import read_commit


def test_what_is_kept_says_how_and_where_it_was_measured(tmp_path, monkeypatch):
    begun = date.today()
    keep.keep(tmp_path / "mine.json", "lesson_code/some/study.py --save", times=[1.5, 2.0])
    kept = json.loads((tmp_path / "mine.json").read_text())
    assert kept["command"] == "lesson_code/some/study.py --save"
    assert kept["commit"] == read_commit()
    assert begun <= date.fromisoformat(kept["made"]) <= date.today()
    assert kept["hardware"]["cores"] >= 1
    assert "torch" in kept["versions"]
    assert kept["times"] == [1.5, 2.0]


def test_a_folder_is_named_without_its_place(tmp_path):
    assert keep.name_data(str(tmp_path / "images")) == "images (folder)"


def test_a_folder_called_like_a_data_set_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar10").mkdir()
    assert keep.name_data("cifar10") == "cifar10"


def test_a_kept_curve_is_rounded():
    assert keep.round_curve([(1.23456, 0.65432), (2, 0.7)]) == [[1.23, 0.6543], [2, 0.7]]
