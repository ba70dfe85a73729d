"""What a function of a notebook reads when it is called later must still mean the same then.

A slider calls its function whenever somebody moves it: after the whole notebook has run. A later
cell that gives one of the function's global names another meaning breaks it.
"""

import ast
import builtins
import symtable

import pytest

from tests.text.offenders import for_each_lesson

CALLED_LATER = {"interact", "interactive", "interactive_output", "interact_manual", "observe"}


def list_global_reads(source):
    """For each function of a cell, the global names that it reads, those of inner ones too."""

    def collect(table):
        names = {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
        return names.union(*(collect(child) for child in table.get_children()))

    tables = symtable.symtable(source, "<cell>", "exec").get_children()
    return {table.get_name(): collect(table) for table in tables if table.get_type() == "function"}


def list_bindings(source):
    """Names that a cell gives a value at its top level."""
    table = symtable.symtable(source, "<cell>", "exec")
    return {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}


def find_callbacks(source):
    """Functions that a cell hands over to be called later."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in CALLED_LATER:
                yield from (argument.id for argument in node.args if isinstance(argument, ast.Name))
        if isinstance(node, ast.FunctionDef):
            decorators = ast.unparse(ast.Module(node.decorator_list, []))
            if any(name in decorators for name in CALLED_LATER):
                yield node.name


def find_overwritten(sources):
    """``(function, name)`` for each global name of a callback that a later cell assigns."""
    reads: dict[str, set[str]] = {}
    watched: set[str] = set()
    found = []
    for source in sources:
        bound = list_bindings(source)
        for function in sorted(watched):
            found += [(function, name) for name in sorted(reads[function] & bound)]
        reads |= list_global_reads(source)
        for function in find_callbacks(source):
            if function in reads:
                watched.add(function)
                reads[function] = _follow(function, reads)
    return found


def _follow(function, reads):
    """The names that a function and the functions that it calls read."""
    names, waiting = set(), [function]
    while waiting:
        new = reads.get(waiting.pop(), set()) - names - set(dir(builtins))
        names |= new
        waiting += new
    return names


@for_each_lesson
def test_no_later_cell_takes_a_name_from_a_callback(name, notebook):
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    for function, overwritten in find_overwritten(x for x in code if x[:1] not in "%!"):
        yield f"{function} reads {overwritten}, which a later cell assigns"


SLIDER = "def show(x):\n    print(first, x)\ninteract(show, x=(0, 1))"


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["first = 1", SLIDER, "first = range(3)"], [("show", "first")]),
        (["first = 1", SLIDER, "for first in range(3): pass"], [("show", "first")]),
        (["first = 1", SLIDER, "import first"], [("show", "first")]),
        (["def paste(): return side", SLIDER.replace("first", "paste()"), "side = 2"],
         [("show", "side")]),
        (["@interact(x=(0, 1))\ndef show(x):\n    return first + x", "first, second = 1, 2"],
         [("show", "first")]),
        (["first = 1", SLIDER, "def other(first): return first"], []),
        (["first = 1", "first = 2", SLIDER, "x = 3"], []),
    ],
)  # fmt: skip
def test_a_name_with_a_second_meaning_is_found(sources, expected):
    assert find_overwritten(sources) == expected
