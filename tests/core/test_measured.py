import json

import pytest

from course_utils.errors import CourseError
from course_utils.measured import read_measured


def write(folder, name, rows, **hardware):
    about = {"hardware": {"cpu": "Some CPU", "gpu": None} | hardware}
    (folder / f"measured_{name}.json").write_text(json.dumps({"about": about, "rows": rows}))


def row(table, ms=1.0, **values):
    return {"table": table, "settings": {"micro_batch": 4}, "ms": ms, **values}


def test_each_device_has_its_rows_with_units(tmp_path):
    write(tmp_path, "gpu", [row("steps", 1234.5, peak_bytes=2.5e9), row("other")], gpu="Big GPU")
    write(tmp_path, "cpu", [row("steps", 0.12345, waiting=0.25)])
    found = read_measured("steps", tmp_path)
    assert list(found.columns) == ["ms", "peak (GB)", "waiting (%)"]
    assert found.index.names == ["device", "micro batch"]
    assert found.loc["Big GPU"].to_numpy().tolist() == [["1,230", "2.5", "–"]]
    assert found.loc["Some CPU"].to_numpy().tolist() == [["0.123", "–", "25"]]


def test_a_row_that_could_not_be_measured_says_why(tmp_path):
    failed = {"table": "steps", "settings": {"micro_batch": 8}, "problem": "out of memory"}
    write(tmp_path, "gpu", [row("steps"), failed])
    assert read_measured("steps", tmp_path)["problem"].tolist() == ["–", "out of memory"]


def test_without_the_table_the_command_is_named(tmp_path):
    write(tmp_path, "gpu", [row("steps")])
    with pytest.raises(CourseError, match=r"no table 'stairs' in .*: measure it with `course meas"):
        read_measured("stairs", tmp_path)


@pytest.mark.parametrize(
    "content", ['{"rows": [{}]}', '{"about": {"hardware": 1}, "rows": []}', "{"]
)
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "measured_gpu.json").write_text(content)
    with pytest.raises(CourseError, match=r"measured_gpu\.json"):
        read_measured("steps", tmp_path)
