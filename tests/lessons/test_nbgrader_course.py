"""nbgrader grades a real lesson; bad submissions: tests/tools/grade/test_nbgrader.py."""

import nbformat
import pytest

from tests.nbgrader import make_class, read_scores, run_nbgrader
from tests.places import ROOT

LESSON = "90_find_the_bug"  # quick to run, and the one with the most exercises


@pytest.mark.nightly  # the lesson's metadata are read in tests/text, its solutions run beside it
def test_a_right_submission_of_a_real_lesson_gets_all_points(tmp_path):
    source = nbformat.read(ROOT / "notebooks" / f"{LESSON}.ipynb", as_version=4)
    make_class(tmp_path, LESSON, source, {})
    path = tmp_path / "submitted" / "right" / LESSON / f"{LESSON}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(source, path)
    run_nbgrader(tmp_path, "autograde", LESSON, "--create")
    graded = [cell.metadata.get("nbgrader", {}) for cell in source.cells]
    assert read_scores(tmp_path) == {"right": sum(x.points for x in graded if x.get("grade"))}
