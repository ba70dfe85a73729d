"""What a person reads in a file: its text, in which dots stand for code, formulas and addresses."""

import io
import json
import re
import tokenize
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

NAMES = re.compile(
    r"```.*?```|``[^`\n]+``|`[^`\n]+`|<code>.*?</code>|\]\([^)\s]*\)|https?://\S+"
    r"|\$\$.*?\$\$|\$[^$\n]*\$",
    re.DOTALL,
)
READ = ("COMMENT", "STRING", "FSTRING_MIDDLE")  # tokens of Python
QUOTES = re.compile(r"""(?i)^[bfru]*(?:\"{3}|'{3}|["'])|(?:\"{3}|'{3}|["'])$|^#+|\\[nt]""")
FILLED_IN = re.compile(r"\{[^{}]*\}")
INSIDE = re.compile(r"""(["'])(.*?)\1|\S""")  # of what is filled in: strings, and code
SHOWN_METADATA = ("question", "technique", "seam")  # of a lesson, in the README and on the site


def hide(pattern: re.Pattern, text: str, sign: str = "·") -> str:
    """The text with what fits the pattern as signs, of the same length and in the same lines."""
    return pattern.sub(lambda match: re.sub(r"[^\n]", sign, match.group()), text)


def hide_filled_in(text: str) -> str:
    """An f-string with code as signs; strings in that code are read, too."""

    def hide_code(match: re.Match) -> str:
        return INSIDE.sub(lambda part: f" {part[2]} " if part[1] else "·", match.group())

    return FILLED_IN.sub(hide_code, text)


def read_markdown(source: str) -> str:
    """All but names; a sign parts the paragraphs."""
    text = hide(NAMES, source)
    return re.sub(r"\n(?=\s*\n)", "¶\n", text)


def read_python(source: str) -> str:
    """Comments, docstrings and other strings, each where it stands."""
    source = re.sub(r"^%%writefile .*\n", "\n", source)
    lines = [0, *accumulate(len(line) + 1 for line in source.split("\n"))]
    text = re.sub(r"\S", "·", source)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if tokenize.tok_name[token.type] in READ:
            first, last = (lines[row - 1] + column for row, column in (token.start, token.end))
            read = hide(NAMES, hide_filled_in(hide(QUOTES, source[first:last], " ")))
            text = text[:first] + read + text[last:]
    return text


def read_notebook(source: str) -> Iterator[tuple[str, str]]:
    """The text of each cell, and what README and site show of the lesson."""
    notebook = json.loads(source)
    about = notebook["metadata"].get("course", {})
    shown = [about[key] for key in SHOWN_METADATA if key in about]
    shown += [headline.get("label", "") for headline in about.get("headline", [])]
    for text in shown:
        yield "cell metadata", hide(NAMES, text)
    for number, cell in enumerate(notebook["cells"]):
        read = read_python if cell["cell_type"] == "code" else read_markdown
        yield f"cell {number}", read("".join(cell["source"]))


def read_file(path: Path) -> list[tuple[str, str]]:
    """What a person reads in a notebook, a module or a page, but for outputs.

    Each text with its place: that of the cell, or empty where it is the whole file.
    """
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return list(read_notebook(source))
    return [("", {".md": read_markdown, ".py": read_python}[path.suffix](source))]
