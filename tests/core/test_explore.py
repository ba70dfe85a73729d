"""`explore`: a figure with sliders, and the picture where scripts do not run."""

import json
import re

import matplotlib.pyplot as plt
import pytest

from course_utils import explore as module
from course_utils.errors import CourseError
from course_utils.explore import explore


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A script of a lesson in a folder of its own."""
    monkeypatch.setattr(module, "STUDIES", tmp_path)
    (tmp_path / "mine.js").write_text("function draw(root, data) { root.textContent = data.text; }")
    return "mine.js"


def make_picture(title):
    figure = plt.figure()
    figure.suptitle(title)
    return figure


def test_the_page_has_picture_parts_script_and_data(script):
    data = {"text": "</script>", "numbers": [1, 0.5]}
    page = explore(script, data, make_picture('of "two" lines')).data
    assert re.search(r'<img src="data:image/png;base64,\S+" alt="of &quot;two&quot; lines">', page)
    assert page.index("function makeAxes") < page.index("function draw")
    assert page.count("</script>") == 1
    [values] = re.findall(r"draw\(root, (\{.*\})\);", page)
    assert json.loads(values).items() >= data.items()
    assert not plt.get_fignums()  # the picture is not shown a second time
    [place] = set(re.findall(r"explore-[0-9a-f]{12}", page))
    assert page.count(place) == 2


def test_equal_figures_are_equal_and_others_have_other_names(script):
    pages = [explore(script, {"text": text}, make_picture("a")).data for text in "aab"]
    assert pages[0] == pages[1]
    assert pages[0][:60] != pages[2][:60]


def test_what_cannot_be_drawn_is_said(script):
    with pytest.raises(CourseError, match=r"no script .*other\.js: restore it"):
        explore("other.js", {}, make_picture("a"))
    for value in (float("nan"), object()):
        with pytest.raises(CourseError, match=r"mine\.js cannot draw these data .*: give JSON"):
            explore(script, {"value": value}, make_picture("a"))
    with pytest.raises(CourseError, match=r"picture of mine\.js has no title: give"):
        explore(script, {}, plt.figure())
    plt.close("all")
