"""Which tests `pytest --since` leaves out, and that it leaves out no others."""

import re

import pytest

from tests.places import ROOT
from tests.since import SUBJECTS, is_needed, list_changed

MIXUP, LORA = "tests/lessons/test_exercises.py::test_a[05_mixup-x]", "lesson_code/lora/test_lora.py"


@pytest.mark.parametrize(
    ("changed", "nodeid", "needed"),
    [
        ("README.md", "tests/text/test_words.py::test_a", True),
        ("README.md", MIXUP, False),
        ("lesson_code/mixup/checks.py", MIXUP, True),
        ("lesson_code/mixup/study.json", MIXUP, True),
        ("notebooks/05_mixup.ipynb", MIXUP, True),
        ("notebooks/03_lora.ipynb", MIXUP, False),
        ("notebooks/03_lora.ipynb", LORA, True),
        ("notebooks/03_lora.ipynb", "tests/lessons/test_exercises.py::test_of_a_helper", True),
        ("notebooks/03_lora.ipynb", "tests/core/test_files.py::test_a", False),
        ("course_utils/training/fit.py", LORA, True),
        ("course_utils/training/fit.py", "tests/tools/run/test_key.py::test_a", True),
        ("course_tools/run/key.py", "tests/tools/run/test_key.py::test_a", True),
        ("course_tools/run/key.py", "tests/core/test_files.py::test_a", False),
        ("tests/core/test_files.py", "tests/core/test_files.py::test_a", True),
        ("tests/core/test_files.py", "tests/faults/test_grading.py::test_a", False),
        ("tests/places.py", "tests/faults/test_grading.py::test_a", True),
        ("lesson_code/mixup/technique.py", "tests/combinations/test_combinations.py::test_a", True),
        ("lesson_code/mixup/checks.py", "tests/combinations/test_combinations.py::test_a", False),
        ("notebooks/05_mixup.ipynb", "tests/browser/test_pages.py::test_a", True),
        ("notebooks/05_mixup.ipynb", "tests/browser/test_pages.py::test_a[05_mixup]", True),
        ("notebooks/05_mixup.ipynb", "tests/browser/test_pages.py::test_a[03_lora]", False),
        ("course_tools/publish/site.py", "tests/browser/test_pages.py::test_a[03_lora]", True),
        ("notebooks/05_mixup.ipynb", "tests/pretend/test_pretend.py::test_a", True),
        ("notebooks/05_mixup.ipynb", "tests/pretend/on_cards.py::test_a[05_mixup, x]", True),
        ("notebooks/05_mixup.ipynb", "tests/pretend/on_cards.py::test_a[03_lora, x]", False),
        ("notebooks/05_mixup.ipynb", "tests/pretend/on_fit.py::test_a", False),
        ("lesson_code/mixup/technique.py", "tests/pretend/on_fit.py::test_a", True),
        ("course_tools/run/key.py", "tests/pretend/test_pretend.py::test_a", False),
        ("notebooks/05_mixup.ipynb", "tests/browser/test_lab.py::test_a", False),
        ("requirements.lock", LORA, True),
        ("conftest.py", MIXUP, True),
        ("data/photos/photos.json", MIXUP, True),
    ],
)
def test_a_test_runs_if_something_that_it_is_about_has_changed(changed, nodeid, needed):
    assert is_needed(nodeid, ["CHANGELOG.md", changed]) == needed


@pytest.mark.parametrize(
    ("changed", "needed"),
    [
        ("course_utils/training/fit.py", False),
        ("lesson_code/mixup/checks.py", True),
        ("notebooks/05_mixup.ipynb", True),
        ("notebooks/03_lora.ipynb", False),
        ("tests/lessons/test_exercises.py", True),
        ("requirements.lock", True),
    ],
)
def test_a_slow_test_of_a_lesson_runs_if_the_lesson_has_changed(changed, needed):
    assert is_needed(MIXUP, [changed], of_lesson=True) == needed


def test_nothing_changed_leaves_the_tests_of_texts():
    assert not is_needed(MIXUP, [])
    assert is_needed("tests/text/test_words.py::test_a", [])


def test_every_folder_of_tests_says_what_it_is_about():
    paths = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "lesson_code").rglob("test_*.py")]
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    known = ("tests/text/", *SUBJECTS)
    assert [name for name in names if not name.startswith(known)] == []


def test_every_test_is_about_the_helpers_that_it_imports():
    overlooked = []
    for folder in ("tests", "lesson_code"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if not path.name.startswith(("test_", "on_")) or name.startswith("tests/text/"):
                continue
            for module in re.findall(r"^from (tests\.[\w.]+) import", path.read_text(), re.M):
                helper = module.replace(".", "/")
                helper += ".py" if (ROOT / f"{helper}.py").exists() else "/__init__.py"
                if not is_needed(f"{name}::test_a", [helper]):
                    overlooked.append(f"{name} imports {module}")
    assert overlooked == []


def test_an_unknown_revision_is_refused():
    with pytest.raises(pytest.UsageError, match="--since no-such: git knows no such revision"):
        list_changed("no-such")
