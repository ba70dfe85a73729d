import re

from tests.groups import ASKING_FOR_PORTS, SHARING, find_group
from tests.places import ROOT, find_notebooks

TESTS = ("tests", "lesson_code")


def list_parts_of_test_names():
    """What a test's name is made of: its file, its function, the lesson that it is about."""
    paths = [path for folder in TESTS for path in (ROOT / folder).rglob("test_*.py")]
    sources = "\n".join(path.read_text() for path in paths)
    functions = re.findall(r"^def (test_\w+)", sources, re.MULTILINE)
    lessons = [f"[{path.stem}]" for path in find_notebooks()]
    return [path.name for path in paths] + functions + lessons


def test_every_name_listed_is_one_of_a_test():
    """What is renamed would leave its group, and nothing would say so."""
    parts = list_parts_of_test_names()
    gone = [x for x in SHARING + ASKING_FOR_PORTS if not any(x in part for part in parts)]
    assert not gone, f"tests/groups.py lists what is no test's name: {gone}"


def test_tests_are_found_in_their_group():
    assert find_group("tests/lessons/test_execution.py::test_lesson_runs[09_ddp]") == "ports"
    assert find_group("tests/tools/publish/test_site.py::test_links") == "test_site.py"
    assert find_group("tests/core/test_files.py::test_a") == "tests/core/test_files.py::test_a"
