"""What a notebook defines, for the benchmarks and tests that use it."""

import ast
from typing import Any

import nbformat

from course_utils.files import ROOT

__all__ = ["read_definitions"]


def read_definitions(stem: str, **names: object) -> dict[str, Any]:
    """The functions and classes that a notebook defines, by name; its trainings do not run.

    The cell of imports is executed, then each definition in the notebook's order. A name that two
    cells define is that of the last one. Cards and exercises are left out.

    Args:
        stem: of the notebook's file, such as ``"16_optimizers"``.
        names: what the definitions use beside imports and each other, such as a parameter.
    """
    notebook = nbformat.read(ROOT / "notebooks" / f"{stem}.ipynb", as_version=4)
    namespace: dict[str, Any] = dict(names)
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type != "code" or "card" in tags or "nbgrader" in cell.metadata:
            continue
        if cell.source.startswith("%%"):  # a script for another process
            continue
        for node in ast.parse(cell.source).body:
            defines = isinstance(node, ast.FunctionDef | ast.ClassDef)
            imports = isinstance(node, ast.Import | ast.ImportFrom) and "imports" in tags
            if defines or imports:
                exec(ast.unparse(node), namespace)
    return namespace
