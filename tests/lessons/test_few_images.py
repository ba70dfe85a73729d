"""What lessons do with a small folder of somebody's own images, before they train anything."""

import json
import re

import matplotlib as mpl
import pytest

from course_utils.config import PROFILES
from course_utils.data.image_data import FEWEST
from course_utils.errors import CourseError
from tests.own_folder import write_images

TRAINS = re.compile(r"\b(fit|compare|backward|step)\(")


def read_set_up(path):
    """The lesson's code up to the cell that reads the data; empty if it reads none."""
    cells = [c for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in cells]
    reading = [place for place, source in enumerate(sources) if "load_data(" in source]
    return "\n".join(sources[: reading[0] + 1]) if reading else ""


@pytest.fixture
def set_up(notebook_path, monkeypatch, tmp_path):
    """Executes the set-up of a lesson on a folder of images, in a profile."""
    code = read_set_up(notebook_path)
    if not code:
        pytest.skip("it reads no data")
    if '"glosses"' in code:
        pytest.skip("it is about texts: tests/core/data/test_own_texts.py")
    assert not TRAINS.search(re.sub("import .*", "", code))
    monkeypatch.chdir(tmp_path)  # lesson 09 goes to a folder of its own

    def execute(profile, classes, count):
        folder = tmp_path / f"{len(classes)}-{count}"
        if not folder.exists():
            write_images(folder, classes, count)
        monkeypatch.setenv("COURSE_PROFILE", profile)
        monkeypatch.setenv("COURSE_DATASET", str(folder))
        names = {}
        with mpl.rc_context():
            exec(compile(code, notebook_path.name, "exec"), names)
        return names

    return execute


@pytest.mark.parametrize("profile", PROFILES)
def test_a_lesson_says_how_many_images_it_needs_before_it_trains(set_up, profile):
    with pytest.raises(CourseError, match=f"has 12 images, and the lessons need {FEWEST} or more"):
        set_up(profile, ("bird", "cat", "dog"), 4)


@pytest.mark.parametrize("classes", [("cat", "dog"), ("bird", "cat", "dog"), tuple("abcdefghij")])
@pytest.mark.parametrize("profile", ["smoke", "quick"])
def test_a_lesson_takes_as_few_images_as_it_promises(set_up, profile, classes):
    names = set_up(profile, classes, FEWEST // len(classes))
    data = names.get("few") or names["data"]
    assert len(data.train) >= 2 * len(classes)
    assert 0 < data.batch_size <= len(data.train)
