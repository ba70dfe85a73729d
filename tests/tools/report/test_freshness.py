import json
import sys

import pytest
from packaging.requirements import Requirement

from course_utils.errors import CourseError
from course_utils.tools.report import freshness
from course_utils.tools.report.freshness import FRESHNESS, read_freshness, summarize_tests
from tests.tools.test_repository import read_pyproject

JUNIT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="pytest" errors="2" failures="1" skipped="1"
    tests="6" time="1.0">
<testcase classname="tests.unit.test_a" name="test_one" time="0.1" />
<testcase classname="tests.unit.test_a" name="test_two[x]"><system-out>said</system-out></testcase>
<testcase classname="tests.unit.test_a" name="test_three[y]"><failure>t</failure></testcase>
<testcase classname="tests.unit.test_b" name="test_four"><error>set-up</error></testcase>
<testcase classname="" name="tests.unit.test_c"><error message="collection">t</error></testcase>
<testcase classname="tests.unit.test_b" name="test_five"><skipped message="no GPU" /></testcase>
</testsuite></testsuites>
"""


def test_every_test_is_counted_once_and_failures_are_named(tmp_path):
    (tmp_path / "junit.xml").write_text(JUNIT)
    assert summarize_tests(tmp_path / "junit.xml") == {
        "passed": 2,
        "failed": 3,
        "skipped": 1,
        "failures": [
            "tests.unit.test_a::test_three[y]",
            "tests.unit.test_b::test_four",
            "tests.unit.test_c",
        ],
        "finished": True,
    }


@pytest.mark.parametrize("content", [None, "", JUNIT[:300]])
def test_tests_that_did_not_end_are_said(tmp_path, content):
    if content is not None:
        (tmp_path / "junit.xml").write_text(content)
    found = summarize_tests(tmp_path / "junit.xml")
    assert found["finished"] is False
    assert found["failed"] == found["passed"] == 0


@pytest.mark.parametrize(("tests", "status", "passed"), [("True", 0, 1), ("False", 1, 0)])
def test_the_outcome_is_written_whatever_it_is(tmp_path, monkeypatch, tests, status, passed):
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    assert {tests}\n")
    (tmp_path / "test_other.py").write_text("def test_other():\n    assert False\n")
    monkeypatch.setattr(sys, "argv", ["freshness", "--deselect", "test_other.py"])
    monkeypatch.setattr(freshness, "ROOT", tmp_path)
    monkeypatch.setattr(freshness, "RESULTS", tmp_path / "results")
    with pytest.raises(SystemExit) as ended:
        freshness.main()
    assert ended.value.code == status
    found = read_freshness(tmp_path / "results")
    assert (found["passed"], found["failed"]) == (passed, 1 - passed)
    assert found["failures"] == ([] if passed else ["test_it::test_it"])
    assert found["python"] == sys.version.split()[0]
    declared = {Requirement(text).name for text in read_pyproject()["dependencies"]}
    assert declared <= set(found["versions"])
    assert "pytest" in found["versions"]


def test_no_file_is_no_outcome_and_a_damaged_one_is_said(tmp_path):
    assert read_freshness(tmp_path) is None
    (tmp_path / FRESHNESS).write_text("{")
    with pytest.raises(CourseError, match="is damaged"):
        read_freshness(tmp_path)
    (tmp_path / FRESHNESS).write_text(json.dumps({"passed": 1}))
    with pytest.raises(CourseError, match=r"is damaged \('date'\): run make test-latest again"):
        read_freshness(tmp_path)
    assert read_freshness() is not None
