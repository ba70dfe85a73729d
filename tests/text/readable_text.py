"""What a person reads in a file: its passages, each with its place."""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NAMES = re.compile(
    r"```.*?```|``[^`\n]+``|`[^`\n]+`|<code>.*?</code>|\]\([^)\s]*\)|https?://\S+"
    r"|\$\$.*?\$\$|\$[^$\n]*\$",
    re.DOTALL,
)
SHOWN_METADATA = ("question", "technique", "seam")  # of a lesson, in the README and on the site


@dataclass(frozen=True)
class Passage:
    """A paragraph, a comment or a string.

    Args:
        text: without names: code, formulas and addresses are replaced by dots.
        line: the number of its first line.
        cell: the number of its cell, from 0; None: not of a notebook.
    """

    text: str
    line: int = 1
    cell: int | str | None = None

    def place(self, offset: int) -> str:
        """Where the character at ``offset`` stands."""
        if self.cell is not None:
            return f"cell {self.cell}"
        return f"line {self.line + self.text.count(chr(10), 0, offset)}"


def strip_names(text: str) -> str:
    """The text with code, formulas and addresses as dots, of the same length."""
    return NAMES.sub(lambda match: re.sub(r"[^\n]", "·", match.group()), text)


def read_markdown(source: str) -> Iterator[Passage]:
    """The paragraphs."""
    line = 1
    for paragraph in re.split(r"(\n\s*\n)", strip_names(source)):
        if paragraph.strip():
            yield Passage(paragraph, line)
        line += paragraph.count("\n")


def _read_comments(source: str) -> Iterator[Passage]:
    """Comments; whole lines of comment that follow each other are one passage."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token for token in tokens if token.type == tokenize.COMMENT]
    block: list[str] = []
    last = 0
    for token in comments:
        line, text = token.start[0], token.string.lstrip("#").strip()
        whole = token.line.lstrip().startswith("#")
        if block and whole and line == last + 1:
            block.append(text)
        else:
            if block:
                yield Passage(strip_names("\n".join(block)), last - len(block) + 1)
            block = [text]
        last = line
    if block:
        yield Passage(strip_names("\n".join(block)), last - len(block) + 1)


def _read_strings(source: str) -> Iterator[Passage]:
    """String literals, docstrings included; in f-strings a dot stands for what is filled in."""
    nodes = list(ast.walk(ast.parse(source)))
    filled = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    inside = {id(part) for node in filled for part in node.values}
    for node in filled:
        parts = [part.value if isinstance(part, ast.Constant) else "·" for part in node.values]
        yield Passage(strip_names("".join(map(str, parts))), node.lineno)
    for node in nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) not in inside:
            yield Passage(strip_names(node.value), node.lineno)


def read_python(source: str) -> Iterator[Passage]:
    """Comments, docstrings and other strings."""
    source = re.sub(r"^%%writefile .*\n", "\n", source)
    yield from _read_comments(source)
    yield from _read_strings(source)


def read_notebook(source: str) -> Iterator[Passage]:
    """Markdown cells, strings and comments of code cells, and what the README shows of it."""
    notebook = json.loads(source)
    about = notebook["metadata"].get("course", {})
    shown = [about[key] for key in SHOWN_METADATA if key in about]
    shown += [headline.get("label", "") for headline in about.get("headline", [])]
    for text in shown:
        yield Passage(strip_names(text), cell="metadata")
    for number, cell in enumerate(notebook["cells"]):
        read = read_python if cell["cell_type"] == "code" else read_markdown
        for passage in read("".join(cell["source"])):
            yield Passage(passage.text, passage.line, number)


READERS = {".ipynb": read_notebook, ".md": read_markdown, ".py": read_python}


def read_file(path: Path) -> Iterator[Passage]:
    """Everything that a person reads in a notebook, a module or a page, except outputs."""
    return READERS[path.suffix](path.read_text(encoding="utf-8"))
