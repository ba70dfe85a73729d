"""What every recipe card has to keep: its form, and that it computes what its lesson computes.

A card is code that a reader copies into an empty file. `find_faults` reads its form;
`check_card` executes it in a namespace of its own and gives that to ``check_pytorch_card(card)``
or ``check_lightning_card(card)`` of ``lesson_code/<name>/technique.py``. A toy lesson stands
here too.
"""

import ast
import builtins
import contextlib
import copy
import os
import random
import re
import runpy
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

import nbformat
import numpy as np

from course_tools.publish.cards import find_recipe
from course_tools.publish.sections import is_card
from course_tools.run.lessons import Lesson, find_lessons
from tests.places import NO_NETWORK

HEADINGS = {"pytorch": "In plain PyTorch", "lightning": "In Lightning"}
LEAD_INS = ["Use it when", "Not when", "Defaults", "Cost", "Trap", "Trap"]
LEAST_LINES, MOST_LINES, LINE_LENGTH = 5, 40, 100
LONGER = {  # scripts from start to end
    "09_ddp, card-pytorch": 41,
    "20_sharding, card-pytorch": 44,
}
MOST_MUTANTS = 40  # planted by the test in one card, until its check notices one
START_LIMIT_S = 300  # a guard against a hang, not a measurement


class CardFailed(AssertionError):
    """A card is not as it should be; the message names the lesson and the card."""


@dataclass(frozen=True)
class LessonCard:
    """One card of a lesson: ``kind`` is ``pytorch`` or ``lightning``."""

    lesson: Lesson
    kind: str

    def __str__(self) -> str:
        return f"{self.lesson.name}, card-{self.kind}"

    @property
    def source(self) -> str:
        cells = [cell for cell in self.lesson.read().cells if f"card-{self.kind}" in tags(cell)]
        if len(cells) != 1:
            raise CardFailed(f"{self}: {len(cells)} cells have the tag card-{self.kind}, not one")
        return cells[0].source


def tags(cell):
    return cell.metadata.get("tags", [])


def has_cards(lesson):
    """Whether a lesson has a Recipe, or a card outside of it."""
    notebook = lesson.read()
    return bool(find_recipe(notebook)) or any(map(is_card, notebook.cells))


def list_cards(lessons):
    return [LessonCard(lesson, kind) for lesson in lessons for kind in HEADINGS]


# ---- Form: each function yields a sentence for each fault.


def find_faults(lesson):
    """What is wrong with the form of a lesson's Recipe: one sentence for each fault."""
    notebook = lesson.read()
    cells = find_recipe(notebook)
    found = [*_find_order_faults(notebook, cells)]
    if not found:
        found += _find_list_faults(cells[0].source)
        for kind, place in (("pytorch", 1), ("lightning", 3)):
            heading, code = cells[place : place + 2]
            most = LONGER.get(f"{lesson.name}, card-{kind}", MOST_LINES)
            faults = [*_find_heading_faults(heading, kind), *_find_code_faults(code, kind, most)]
            found += [f"card-{kind}: {fault}" for fault in faults]
    return [f"{lesson.name}: {fault}" for fault in found]


def _find_order_faults(notebook, cells):
    kinds = [cell.cell_type for cell in cells]
    if kinds != ["markdown", "markdown", "code", "markdown", "code"]:
        yield (
            "a Recipe is a list, then twice a heading and one code cell; here its cells are "
            f"{', '.join(kinds) or 'missing'}"
        )
    inside = [cell.id for cell in cells if is_card(cell)]
    if outside := [cell.id for cell in notebook.cells if is_card(cell) and cell.id not in inside]:
        yield f"cells with the tag card lie outside of the Recipe: {', '.join(outside)}"


def _find_list_faults(text):
    if not text.startswith("## Recipe\n"):
        yield "the Recipe's first cell begins with another heading than ## Recipe"
    items = re.split(r"^[-*] ", text, flags=re.MULTILINE)[1:]
    lead_ins = [re.match(r"\*\*(.+?)\*\*", item) for item in items]
    found = [lead_in[1] if lead_in else "nothing bold" for lead_in in lead_ins]
    if found != LEAD_INS:
        yield f"the list begins with {', '.join(found)}, not with {', '.join(LEAD_INS)}"
    elif "](https://" not in items[LEAD_INS.index("Defaults")]:
        yield "the Defaults have no link to their source"
    if "$" in text:
        yield "the list has a formula: the printable page shows none, write the letters (α)"


def _find_heading_faults(cell, kind):
    heading, _, below = cell.source.partition("\n")
    if heading != f"### {HEADINGS[kind]}":
        yield f"its heading is {heading!r}, not '### {HEADINGS[kind]}'"
    if not below.strip() or "\n\n" in below.strip():
        yield "below its heading stands not one sentence"


def _find_code_faults(cell, kind, most):
    source = cell.source
    if {"card", f"card-{kind}"} - set(tags(cell)):
        yield f"its tags are {tags(cell)}, not card and card-{kind}"
    if "hide-input" in tags(cell) or cell.metadata.get("jupyter", {}).get("source_hidden"):
        yield "its code is folded, and a card is there to be seen"
    lines = source.splitlines()
    written = sum(bool(line.strip()) for line in lines)
    if not LEAST_LINES <= written <= most:
        yield f"it has {written} lines of code, not {LEAST_LINES} to {most}"
    if max(map(len, lines), default=0) > LINE_LENGTH:
        yield f"a line is longer than {LINE_LENGTH} characters"
    if "course_utils" in source:
        yield "it names course_utils: a reader has no such package"
    if "# yours" not in source:
        yield "no line says with '# yours' what the reader puts in place of it"
    yield from _find_undefined_names(source)


def _find_undefined_names(source):
    """Names that are neither defined nor imported, in functions that nothing calls too."""
    command = ["ruff", "check", "--isolated", "--select", "F821", "--output-format", "concise", "-"]
    done = subprocess.run(
        [sys.executable, "-m", *command], input=source, capture_output=True, text=True
    )
    if done.returncode:
        yield from re.findall(r"^-:(\d+:\d+: .+)$", done.stdout, re.MULTILINE) or [done.stderr]


# ---- Content: the card is executed, and the technique's own test reads what it defined.


def load_technique(lesson):
    """The file with the checks of a lesson's cards; an empty one if it is missing."""
    module = f"lesson_code.{lesson.name.partition('_')[2]}.technique"
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not module.startswith(str(error.name)):
            raise
        return SimpleNamespace()


def _import_but_the_course(name, *arguments, **options):
    if name.partition(".")[0] in ("course_utils", "course_tools", "lesson_code"):
        raise ModuleNotFoundError(f"No module named {name!r}: a reader has no such package")
    return builtins.__import__(name, *arguments, **options)


@contextlib.contextmanager
def alone(folder) -> Iterator[None]:
    """An empty folder, one thread, fixed seeds and no network; afterwards all is as it was."""
    import torch
    import torch.distributed as dist

    folder.mkdir(parents=True)
    states = random.getstate(), np.random.get_state(), torch.get_num_threads()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(mock.patch.dict(os.environ))
        stack.enter_context(mock.patch.object(socket.socket, "connect", socket.socket.connect))
        stack.enter_context(mock.patch.object(socket, "getaddrinfo", socket.getaddrinfo))
        stack.enter_context(torch.random.fork_rng())
        runpy.run_path(str(NO_NETWORK / "sitecustomize.py"))
        torch.set_num_threads(1)
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
            torch.set_num_threads(states[2])
            if dist.is_initialized():  # a faulty card may leave before its end
                dist.destroy_process_group()


def execute(source):
    """Execute a card in a module of its own, which cannot import the course; its namespace."""
    module = ModuleType("card")
    vars(module)["__builtins__"] = vars(builtins) | {"__import__": _import_but_the_course}
    before = sys.modules.get("card")
    sys.modules["card"] = module  # this one only: what the card imports stays imported
    try:
        exec(compile(source, "<card>", "exec"), vars(module))
    finally:
        if before is None:
            del sys.modules["card"]
        else:
            sys.modules["card"] = before
    return vars(module)


class _Enrich(ast.NodeTransformer):
    """Puts BatchNorm and dropout into every network that stands in for the reader's."""

    def __init__(self, lines):
        self.lines, self.inside, self.count = lines, False, 0

    def visit(self, node):
        before = self.inside
        first = getattr(node, "lineno", None)
        if isinstance(node, ast.ClassDef | ast.stmt) and first:
            last = first if isinstance(node, ast.ClassDef) else node.end_lineno
            self.inside |= any("# yours" in line for line in self.lines[first - 1 : last])
        node = super().visit(node)
        self.inside = before
        return node

    def visit_Call(self, node):
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if self.inside and name.endswith("nn.Linear"):
            part, (before, after) = name.removesuffix("Linear"), map(ast.unparse, node.args)
            new = (
                f"{part}Sequential({part}Linear({before}, 8), {part}BatchNorm1d(8), "
                f"{part}Dropout(0.1), {part}Linear(8, {after}))"
            )
        elif self.inside and name == "timm.create_model":
            node.keywords.append(ast.keyword("drop_rate", ast.Constant(0.1)))
            new = ast.unparse(node)
        elif name.endswith("nn.BatchNorm2d") and self.inside:
            new = f"{name.removesuffix('BatchNorm2d')}Sequential({ast.unparse(node)}, nn.Dropout())"
        elif name == "BoringModel":
            new = "enrich(BoringModel())"
        else:
            return node
        self.count += 1
        return ast.parse(new, mode="eval").body


ENRICH = """
def enrich(module):
    import torch.nn as nn
    module.layer = nn.Sequential(nn.Linear(32, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), module.layer)
    module.layer[-1] = nn.Linear(8, 2)
    return module
"""


def enrich_networks(source):
    """A card with BatchNorm and dropout in the networks that stand in; how many there are."""
    change = _Enrich(source.splitlines())
    tree = ast.fix_missing_locations(change.visit(ast.parse(source)))
    return ENRICH + ast.unparse(tree), change.count


def check_card(card, technique, folder, source=None):
    """Execute a card and give what it defined to the check of its lesson.

    Args:
        card: a `LessonCard`.
        technique: the file with the checks.
        folder: does not exist yet; the card is executed in it.
        source: in place of the card's own.

    Raises:
        CardFailed: there is no check; the card does not run, or computes something else.
    """
    from torch.distributed.checkpoint import CheckpointException

    check = getattr(technique, f"check_{card.kind}_card", None)
    if check is None:
        name = card.lesson.name.partition("_")[2]
        raise CardFailed(f"{card}: write check_{card.kind}_card in lesson_code/{name}/technique.py")
    source = card.source if source is None else source
    with alone(folder):
        try:
            namespace = execute(source)
        except (Exception, CheckpointException) as error:  # the second is no Exception
            message = f"{card}: it does not run: {type(error).__name__}: {error}"
            raise CardFailed(message) from error
        try:
            check(namespace)
        except Exception as error:
            message = f"{card}: it does not compute what its lesson computes: {error}"
            raise CardFailed(message) from error


def run_as_file(card, folder):
    """Run a card as a person does who has copied it into an empty file.

    PYTHONPATH holds nothing but `tests/no_course`, which takes the course and the network away.

    Raises:
        CardFailed: it ends with an error.
    """
    folder.mkdir(parents=True)
    (folder / "card.py").write_text(card.source, encoding="utf-8")
    away = str(Path(__file__).parents[1] / "no_course")
    done = subprocess.run(
        [sys.executable, "card.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": away, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise CardFailed(f"{card}: as a file of its own it does not run: {last}")


# ---- Planted faults: a check that nothing can fail checks nothing.

SWAPPED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}


def _plant(node):
    """Change an operator or a number, or leave a call out, in place; whether that was possible."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        node.value = ast.Constant(None)
        return True
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPPED:
        node.op = SWAPPED[type(node.op)]()
        return True
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        node.value += 1
        return True
    return False


def plant_faults(source):
    """The card with one operator, number or call changed, for each of these but the stand-ins'."""
    lines = source.splitlines()
    tree = ast.parse(source)
    for place, node in enumerate(ast.walk(tree)):
        if "# yours" in lines[getattr(node, "lineno", 1) - 1]:
            continue
        changed = copy.deepcopy(tree)
        if _plant(list(ast.walk(changed))[place]):
            yield ast.unparse(changed)


def notices(card, technique, folder, source):
    """Whether the check says that this source computes something else."""
    try:
        check_card(card, technique, folder, source)
    except CardFailed as error:
        return isinstance(error.__cause__, AssertionError)
    return False


def check_faults_are_noticed(card, technique, folder):
    """Plant faults in a card: the check of its lesson has to notice at least one.

    Raises:
        CardFailed: it notices none, so it may be a check that nothing can fail.
    """
    for number, source in enumerate(plant_faults(card.source)):
        if number == MOST_MUTANTS:
            break
        if notices(card, technique, folder / str(number), source):
            return
    raise CardFailed(f"{card}: its check notices none of the faults that a test plants in it")


# ---- A toy lesson.

TOY_LIST = """\
## Recipe

- **Use it when** the images are too *bright*, as in [Question](#Question).
- **Not when** they are dark: see [mixup](05_mixup.ipynb#Idea).
- **Defaults** factor 0.5, from [the paper](https://arxiv.org/abs/1710.09412).
- **Cost** none.
- **Trap** black images → the factor is 0 → choose a larger one.
- **Trap** `NaN` → the factor is infinite → choose a smaller one.
"""
TOY_CODE = """\
import torch

images = torch.ones(2, 3, 4, 4)  # yours


def {name}(images, factor=0.5):
    return images * factor


print({name}(images).mean() < 1, "<b>&amp;")"""
TOY_CODES = {"pytorch": TOY_CODE.format(name="scale"), "lightning": TOY_CODE.format(name="dim")}
ABOUT = {"question": "Too <bright>?", "technique": "scaling", "seam": "data", "minutes": 1}


def _check(name):
    def check(card):
        import torch

        images = torch.rand(2, 3, 4, 4)
        torch.testing.assert_close(card[name](images, 0.25), images / 4)

    return check


TOY_TECHNIQUE = SimpleNamespace(
    check_pytorch_card=_check("scale"), check_lightning_card=_check("dim")
)


def make_toy_cells(text=TOY_LIST, **codes):
    """The cells of a Recipe; ``codes``: other code for ``pytorch`` or ``lightning``."""
    cells = [nbformat.v4.new_markdown_cell(text, id="recipe")]
    for kind, code in (TOY_CODES | codes).items():
        heading = f"### {HEADINGS[kind]}\n\nThe function `scale` is all."
        cells.append(nbformat.v4.new_markdown_cell(heading, id=f"{kind}-heading"))
        about = {"tags": ["card", f"card-{kind}"]}
        cells.append(nbformat.v4.new_code_cell(code, metadata=about, id=kind))
    for cell in cells:
        cell.metadata["slideshow"] = {"slide_type": "-"}
    cells[0].metadata.slideshow.slide_type = "slide"
    return cells


def write_toy_lesson(folder, name="50_scale", change=lambda notebook: None, **recipe):
    """A lesson with a title, a question and a Recipe, but for what ``change`` does to it."""
    notebook = nbformat.v4.new_notebook()
    number, _, subject = name.partition("_")
    notebook.cells = [
        nbformat.v4.new_markdown_cell(f"# {number} · The {subject}", id="title"),
        nbformat.v4.new_markdown_cell("## Question\n\nToo bright?", id="question"),
        *make_toy_cells(**recipe),
        nbformat.v4.new_markdown_cell("## Exercises\n\nNone.", id="exercises"),
    ]
    notebook.metadata["course"] = ABOUT | {"budget_s": 1}
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    change(notebook)
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, folder / f"{name}.ipynb")
    return next(lesson for lesson in find_lessons(folder) if lesson.name == name)
