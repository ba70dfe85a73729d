import pytest

from course_utils.errors import CourseError
from course_utils.results import RECORDS, append_record, read_records

RECORD = '{"kind": "run", "record": {"seed": 0}}'


def test_records_come_back_by_kind_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_RUNS_DIR", str(tmp_path / "new"))
    append_record("run", {"seed": 1})
    append_record("claim", {"text": "λ = 1 changes nothing"})
    append_record("run", {"seed": 1})  # the same again: appended, not replaced
    assert read_records(tmp_path / "new", "run") == [{"seed": 1}, {"seed": 1}]
    assert read_records(tmp_path / "new", "claim") == [{"text": "λ = 1 changes nothing"}]


def test_a_record_has_fields_of_any_name(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_RUNS_DIR", str(tmp_path))
    append_record("claim", {"kind": "effect", "record": 1})
    assert read_records(tmp_path, "claim") == [{"kind": "effect", "record": 1}]
    assert read_records(tmp_path, "effect") == []


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_RUNS_DIR", str(tmp_path / "file"))
    with pytest.raises(CourseError, match=r"cannot write to .*records\.jsonl .*: set COURSE_RUNS"):
        append_record("run", {})


def test_no_file_has_no_records(tmp_path):
    assert read_records(tmp_path, "run") == []


def test_a_record_cut_off_at_the_end_is_skipped(tmp_path):
    path = tmp_path / RECORDS
    path.write_text(f'{RECORD}\n{{"kind": "run", "rec')
    assert read_records(tmp_path, "run") == [{"seed": 0}]


@pytest.mark.parametrize("line", ["no JSON", "[]", "null", '{"kind": "run"}', '{"record": {}}', ""])
def test_a_damaged_record_is_named(tmp_path, line):
    (tmp_path / RECORDS).write_text(f"{RECORD}\n{line}\n")
    with pytest.raises(CourseError, match="line 2 is damaged: delete the line") as caught:
        read_records(tmp_path, "run")
    assert "\n" not in str(caught.value)
