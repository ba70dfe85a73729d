"""Figures that readers can change: sliders in the browser, without a kernel, server or network.

The script of a figure stands in the folder of its lesson. It defines ``draw(root, data)`` and uses
the parts of ``explore.js``: axes, sliders, a table of the numbers, and a sentence. Where scripts do
not run, as in an untrusted notebook or on paper, readers see a picture.
"""

import base64
import hashlib
import html
import io
import json
from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
from IPython.display import HTML
from matplotlib.figure import Figure

from course_utils.errors import CourseError
from course_utils.plots import COLOURS
from course_utils.results import STUDIES

__all__ = ["explore"]

PARTS = Path(__file__).with_suffix(".js")
STYLE = Path(__file__).with_suffix(".css")


def _encode(figure: Figure) -> str:
    """The figure as the address of a picture; it is closed, so that it is not shown twice."""
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    plt.close(figure)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def explore(script: str, data: Mapping, picture: Figure) -> HTML:
    """A figure with sliders for a notebook and its page.

    Args:
        script: The file below ``lesson_code`` that draws it, such as ``"mixup/mixture.js"``. It
            defines ``draw(root, data)``, in which ``root`` is an empty element of the page.
        data: What it draws, JSON values without NaN; ``data.colours`` are `plots.COLOURS`.
        picture: What is shown where scripts do not run. Its title (``suptitle``) says what both
            show, and is the picture's alternative text.

    Raises:
        CourseError: there is no such script, the data are no JSON, or the picture has no title.
    """
    title = html.escape(picture.get_suptitle())
    if not title:
        raise CourseError(f"the picture of {script} has no title: give it one by suptitle")
    file = STUDIES / script
    if not file.is_file():
        raise CourseError(f"no script {file}: restore it with git checkout")
    try:
        values = json.dumps({"colours": COLOURS, **data}, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise CourseError(f"{script} cannot draw these data ({error}): give JSON values") from None
    values = values.replace("<", "\\u003c")  # a text must not end the script
    source = "\n".join(path.read_text(encoding="utf-8") for path in (PARTS, file))
    name = f"explore-{hashlib.sha256((source + values).encode()).hexdigest()[:12]}"
    return HTML(f"""<div class="explore" id="{name}">
<img src="{_encode(picture)}" alt="{title}">
</div>
<style>{STYLE.read_text(encoding="utf-8")}</style>
<script>
(() => {{
{source}
const root = document.getElementById("{name}");
root.replaceChildren(make("strong", {{}}, root.querySelector("img").alt));
draw(root, {values});
}})();
</script>""")
