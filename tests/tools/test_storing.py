import nbformat
import pytest

from course_utils.errors import CourseError
from course_utils.tools.running import run_lessons
from course_utils.tools.storing import store_outputs


def test_a_lesson_edited_after_it_started_is_not_overwritten(school):
    path = school.write("01_one", "print('old')")
    plan = school.plan()
    run_lessons(school.lessons, plan, school.console)
    school.write("01_one", "print('new')")
    (lesson,) = school.lessons
    with pytest.raises(CourseError, match="01_one was edited while it ran: run it again"):
        store_outputs(lesson, plan.output_path(lesson), 1.0)
    assert "new" in path.read_text()


def test_pictures_are_stored_smaller_and_still_are_pictures(school):
    draw = "import matplotlib.pyplot as plt, numpy as np\nplt.imshow(np.random.rand(32, 32, 3));"
    path = school.write("01_one", draw)
    plan = school.plan()
    run_lessons(school.lessons, plan, school.console)
    before = len(plan.output_path(school.lessons[0]).read_text())
    store_outputs(school.lessons[0], plan.output_path(school.lessons[0]), 1.0)
    assert len(path.read_text()) < before
    outputs = nbformat.read(path, as_version=4).cells[1].outputs
    assert any(o.get("data", {}).get("image/png", "").startswith("iVBOR") for o in outputs)
