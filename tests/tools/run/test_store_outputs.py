import nbformat
import pytest

from course_tools.run.runner import run_lessons
from course_tools.run.store_outputs import store_outputs
from course_utils.errors import CourseError
from course_utils.results import LessonResult

RESULT = LessonResult("01_one", time_s=1.9, peak_memory_bytes=1_234_567_890, claims=[], runs=[])


def test_a_lesson_edited_after_it_started_is_not_overwritten(school):
    path = school.write("01_one", "print('old')")
    plan = school.plan()
    run_lessons(school.lessons, plan, school.console)
    school.write("01_one", "print('new')")
    (lesson,) = school.lessons
    with pytest.raises(CourseError, match="01_one was edited while it ran: run it again"):
        store_outputs(lesson, plan.output_path(lesson), RESULT)
    assert "new" in path.read_text()


def test_metadata_are_those_of_the_lesson_and_what_the_execution_cost(school):
    path = school.write("01_one", "print('fine')")
    plan = school.plan()
    run_lessons(school.lessons, plan, school.console)
    (lesson,) = school.lessons
    assert (lesson.time_s, lesson.peak_mb, lesson.headline) == (None, None, [])
    notebook, headline = nbformat.read(path, as_version=4), [{"claim": "a < b"}]
    notebook.metadata["course"]["headline"] = headline  # after it was executed
    notebook.metadata["jupytext"] = {"notebook_metadata_filter": "course"}
    nbformat.write(notebook, path)
    store_outputs(lesson, plan.output_path(lesson), RESULT)
    (lesson,) = school.lessons
    assert (lesson.time_s, lesson.peak_mb, lesson.headline) == (2, 1235, headline)
    assert "jupytext" not in lesson.read().metadata


def test_the_code_of_hidden_cells_is_folded(school):
    path = school.write("01_one", "print('drawn')", "print('read')")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].metadata["tags"] = ["hide-input"]
    nbformat.write(notebook, path)
    plan = school.plan()
    run_lessons(school.lessons, plan, school.console)
    (lesson,) = school.lessons
    store_outputs(lesson, plan.output_path(lesson), RESULT)
    _, drawn, read = (cell.metadata for cell in lesson.read().cells)
    assert drawn == {"tags": ["hide-input"], "jupyter": {"source_hidden": True}, "cellView": "form"}
    assert read == {}


def test_pictures_are_stored_smaller_and_still_are_pictures(school):
    draw = "import matplotlib.pyplot as plt, numpy as np\nplt.imshow(np.random.rand(32, 32, 3));"
    path = school.write("01_one", draw)
    plan = school.plan()
    run_lessons(school.lessons, plan, school.console)
    before = len(plan.output_path(school.lessons[0]).read_text())
    store_outputs(school.lessons[0], plan.output_path(school.lessons[0]), RESULT)
    assert len(path.read_text()) < before
    outputs = nbformat.read(path, as_version=4).cells[1].outputs
    assert any(o.get("data", {}).get("image/png", "").startswith("iVBOR") for o in outputs)
