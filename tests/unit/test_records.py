import pytest

from course_utils.errors import CourseError
from course_utils.results import RECORDS, append_record, read_records


def test_records_come_back_by_kind_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_RUNS_DIR", str(tmp_path / "new"))
    append_record("run", {"seed": 1})
    append_record("claim", {"text": "λ = 1 changes nothing"})
    append_record("run", {"seed": 1})  # the same again: appended, not replaced
    assert read_records(tmp_path / "new", "run") == [{"seed": 1}, {"seed": 1}]
    assert read_records(tmp_path / "new", "claim") == [{"text": "λ = 1 changes nothing"}]


def test_no_file_has_no_records(tmp_path):
    assert read_records(tmp_path, "run") == []


def test_a_record_cut_off_at_the_end_is_skipped_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / RECORDS
    path.write_text('{"kind": "run", "seed": 0}\n{"kind": "run", "se')
    assert read_records(tmp_path, "run") == [{"seed": 0}]
    path.write_text('{"kind": "run", "seed": 0}\nnot JSON\n')
    with pytest.raises(CourseError, match="line 2 is damaged") as caught:
        read_records(tmp_path, "run")
    assert "\n" not in str(caught.value)
