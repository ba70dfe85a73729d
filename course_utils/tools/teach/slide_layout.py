"""No slide is too full: what does not fit goes on to the next one.

Heights are estimates in pixels of a slide of 1280 × 720: the page itself then draws figures as
large as the slide allows, and a slide that is still too full a little smaller. The tests in
tests/browser measure what comes out of it.
"""

import base64
import io
import math
import re

import nbformat
from PIL import Image

from course_utils.tools.teach.sections import is_card

__all__ = ["MAX_CARD_LINES", "break_full_slides"]

SLIDE_HEIGHT = 640  # below the margins
CARD_HEIGHT = 715  # with the code of a card, which is drawn smaller: its heading stays with it
LINE_LENGTH = 105  # characters of text that fit into a line
TEXT_LINE, CODE_LINE, OUTPUT_LINE, TABLE_ROW = 31, 24, 24, 34
HEADINGS = {"#": 70, "##": 62, "###": 52}
FORMULA = 70
PARAGRAPH_GAP = 18
CELL_GAP = 16
FIGURE = 400  # a figure is drawn as large as there is room, and gets this much at least
MAX_CODE_LINES = 25
MAX_CARD_LINES = 45  # of a card on one slide; a longer one could not be read
WIDTH = 1200
HEADING = re.compile(r"#+ .*")


def _measure_text(source: str) -> int:
    """The height of Markdown; of a folded answer only its summary is seen."""
    source = re.sub(r"<details><summary>(.*?)</summary>.*?</details>", r"\n\n\1\n\n", source)
    source, formulas = re.subn(r"\$\$.*?\$\$", "", source, flags=re.DOTALL)
    height = FORMULA * formulas
    is_code = False
    for line in source.splitlines():
        if line.startswith("```"):
            is_code = not is_code
        elif is_code:
            height += CODE_LINE
        elif found := re.match(r"#+(?= )", line):
            height += HEADINGS.get(found[0], 52)
        elif line.startswith("|"):
            height += TABLE_ROW * math.ceil(len(line) / (1.2 * LINE_LENGTH))
        elif line.strip():
            gap = 4 if line.lstrip().startswith(("*", "-")) else PARAGRAPH_GAP
            height += TEXT_LINE * math.ceil(len(line) / LINE_LENGTH) + gap
    return height


def _measure_output(output: nbformat.NotebookNode) -> int:
    data = output.get("data", {})
    if "image/png" in data:
        try:
            width, height = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).size
        except (OSError, ValueError):  # damaged: the browser shows that
            return FIGURE
        return min(FIGURE, height * WIDTH // width)
    if "<tr" in str(data.get("text/html", "")):
        return TABLE_ROW * str(data["text/html"]).count("<tr") + CELL_GAP
    text = output.get("text") or data.get("text/plain", "")
    lines = [math.ceil(len(line) / LINE_LENGTH) or 1 for line in text.splitlines()]
    return OUTPUT_LINE * sum(lines) + CELL_GAP


def _measure_outputs(outputs: list[nbformat.NotebookNode]) -> int:
    """Two figures stand side by side."""
    figures = [_measure_output(x) for x in outputs if "image/png" in x.get("data", {})]
    others = [_measure_output(x) for x in outputs if "image/png" not in x.get("data", {})]
    return sum(others) + sum(max(figures[i : i + 2]) for i in range(0, len(figures), 2))


def _measure_code(source: str) -> int:
    return CODE_LINE * (source.count("\n") + 1) + CELL_GAP


def _hides_input(cell: nbformat.NotebookNode) -> bool:
    return "hide-input" in cell.metadata.get("tags", [])


def _measure(cell: nbformat.NotebookNode) -> int:
    if cell.cell_type != "code":
        return _measure_text(cell.source)
    code = 0 if _hides_input(cell) else _measure_code(cell.source)
    return code + _measure_outputs(cell.outputs)


def _split_source(source: str) -> list[str]:
    """Code in parts that fit on a slide, if possible between two statements."""
    lines = source.splitlines()
    if len(lines) <= MAX_CODE_LINES:
        return [source]
    middle = min(len(lines) // 2, MAX_CODE_LINES)
    places = range(middle - 4, min(middle + 4, MAX_CODE_LINES) + 1)

    def rank(place: int) -> tuple[bool, bool, int]:
        inside = lines[place].startswith((" ", ")", "]", "}"))
        return (bool(lines[place - 1].strip()), inside, abs(place - middle))

    best = min(places, key=rank)
    head, tail = "\n".join(lines[:best]).rstrip(), "\n".join(lines[best:])
    return [head, *_split_source(tail)]


def _split_text(cell: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """A text that is too long for a slide, a cell for each paragraph; a heading joins its first."""
    if _measure(cell) <= SLIDE_HEIGHT:
        return [cell]
    blocks: list[str] = []
    for block in cell.source.split("\n\n"):
        in_code = bool(blocks) and blocks[-1].count("```") % 2 == 1  # after an empty line in it
        if in_code or (blocks and HEADING.fullmatch(blocks[-1])):
            blocks[-1] += f"\n\n{block}"
        else:
            blocks.append(block)
    parts = [_copy(cell, f"text{i}", source=block) for i, block in enumerate(blocks)]
    parts[0].metadata.slideshow.slide_type = cell.metadata.slideshow.slide_type
    return parts


def _split_output(output: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """Printed text in parts that fit on a slide; anything else as it is."""
    lines = str(output.get("text", "")).splitlines(keepends=True)
    if len(lines) <= MAX_CODE_LINES:
        return [output]
    slides = math.ceil(len(lines) / MAX_CODE_LINES)
    size = math.ceil(len(lines) / slides)  # equal parts: no slide holds one last line only
    starts = range(0, len(lines), size)
    return [
        nbformat.from_dict(output | {"text": "".join(lines[start : start + size])})
        for start in starts
    ]


def _copy(cell: nbformat.NotebookNode, part: str, **changes: object) -> nbformat.NotebookNode:
    copied = nbformat.from_dict(cell)
    copied.id = f"{cell.id}-{part}"
    copied.metadata.slideshow.slide_type = "-"
    copied.update(changes)
    return copied


def _split_code(cell: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """A code cell as cells of its own for parts of its source, and for its outputs."""
    parts = []
    if not _hides_input(cell):
        is_whole = is_card(cell) and cell.source.count("\n") < MAX_CARD_LINES
        sources = [cell.source] if is_whole else _split_source(cell.source)
        parts += [_copy(cell, f"in{i}", source=s, outputs=[]) for i, s in enumerate(sources)]
    groups = [cell.outputs]
    if _measure_outputs(cell.outputs) > SLIDE_HEIGHT:
        groups = [[part] for output in cell.outputs for part in _split_output(output)]
    for i, outputs in enumerate(groups):
        if outputs:
            part = _copy(cell, f"out{i}", outputs=outputs)
            part.metadata["tags"] = sorted({*cell.metadata.get("tags", []), "hide-input"})
            parts.append(part)
    parts[0].metadata.slideshow.slide_type = cell.metadata.slideshow.slide_type
    return parts


def break_full_slides(cells: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The cells, some of them in parts, with a new slide wherever one would be too full."""
    laid_out: list[nbformat.NotebookNode] = []
    used = 0
    for cell in cells:
        kind = cell.metadata.slideshow.slide_type
        if kind in ("skip", "notes"):
            laid_out.append(cell)
            continue
        if kind == "slide":
            used = 0
        room = CARD_HEIGHT if is_card(cell) else SLIDE_HEIGHT
        if used + _measure(cell) <= room:
            parts = [cell]
        else:
            parts = _split_code(cell) if cell.cell_type == "code" else _split_text(cell)
        for part in parts:
            height = _measure(part)
            if used and used + height > room:
                part.metadata.slideshow.slide_type = "slide"
                used = 0
            used += height
            laid_out.append(part)
    return laid_out
