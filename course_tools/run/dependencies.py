"""What Python code depends on, read from its text: modules of the course, libraries, strings.

Nothing is imported or executed. Only what can change a result counts: comments, docstrings and
layout do not, nor do imports for type checkers.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from course_utils.errors import CourseError

__all__ = [
    "describe_code",
    "find_modules",
    "find_strings",
    "find_studies",
    "mentions",
    "parse_cell",
    "parse_file",
    "read_locked_versions",
]

PACKAGES = ("course_utils", "lesson_code")
# Checks of exercises: all that they leave in a notebook is whether the solution passed, and
# tests/lessons shows that again after every change. So no training is repeated for a check.
CHECKS = re.compile(r"course_utils\.checking\b|lesson_code\.\w+\.checks\b")
PROVIDERS = {  # distributions of modules that are called otherwise
    "IPython": "ipython",
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "nvidia": "nvidia-dali-cuda120",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
LOCKED = re.compile(r"^([\w.-]+)(?:\[.*?\])?==([^\s;]+)", re.MULTILINE)


def parse_cell(source: str) -> ast.Module:
    """The syntax tree of a code cell, its magics in front as a list of strings.

    The rest of a ``%%writefile`` cell is a script that the lesson runs, so it counts as code. Of a
    cell that is not Python all lines are strings.
    """
    lines = source.split("\n")
    magics = [line for line in lines if line.lstrip().startswith(("%", "!"))]
    python = "\n".join("" if line in magics else line for line in lines)
    try:
        tree = ast.parse(python)
    except SyntaxError:
        magics, tree = lines, ast.Module([], [])
    texts: list[ast.expr] = [ast.Constant(line) for line in magics]
    return ast.Module([ast.Expr(ast.List(texts, ast.Load())), *tree.body], [])


def _has_docstring(node: ast.AST) -> bool:
    owners = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return isinstance(node, owners) and ast.get_docstring(node, clean=False) is not None


def describe_code(node: object) -> object:
    """A syntax tree as nested tuples, without docstrings, comments and layout.

    Texts that differ only in these have the same description. It is the same in every version of
    Python, which `ast.dump` is not.
    """
    if isinstance(node, list):
        return tuple(describe_code(child) for child in node)
    if not isinstance(node, ast.AST):
        return repr(node)
    content = dict(ast.iter_fields(node))
    if _has_docstring(node):
        content["body"] = content["body"][1:]
    filled = {name: value for name, value in content.items() if value not in (None, [])}
    return type(node).__name__, *((name, describe_code(x)) for name, x in filled.items())


def mentions(tree: ast.Module, name: str) -> bool:
    """Whether a variable, an argument, an attribute or a string of the code is ``name``."""
    fields = ("id", "arg", "attr", "value")
    return any(name in [getattr(node, field, "") for field in fields] for node in ast.walk(tree))


def find_strings(tree: ast.AST) -> set[str]:
    """All string constants in the code, parts of f-strings included."""
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def find_studies(trees: Sequence[ast.Module]) -> set[str]:
    """The names of the studies that the code reads with ``read_study("name")``.

    Where a call has no literal, or the function is handed on, it may be any string of the code.
    """
    names, unclear = set(), False
    for tree in trees:
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        literals = {id(call.func): find_strings(call) for call in calls}
        for node in ast.walk(tree):
            if "read_study" in (getattr(node, "id", ""), getattr(node, "attr", "")):
                named = literals.get(id(node), set())
                names |= named
                unclear |= not named
    return names.union(*map(find_strings, trees)) if unclear else names


def _is_for_types_only(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def _find_imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """``(module, name)`` for each imported name; the name is empty for ``import module``."""
    for node in ast.iter_child_nodes(tree):
        if _is_for_types_only(node):
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)
        else:
            yield from _find_imports(node)


@cache
def _parse_file(path: Path, modified_ns: int) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise CourseError(f"{path} is not Python ({error}): correct it") from None


def parse_file(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return _parse_file(path, path.stat().st_mtime_ns)


def _locate(module: str, root: Path) -> Path | None:
    """The file of a module of the package below ``root``; None if there is no such module."""
    path = root.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _resolve(module: str, name: str, root: Path) -> Path | None:
    """The file in which an imported name is defined: re-exports are followed to their source."""
    submodule = _locate(f"{module}.{name}", root) if name else None
    if submodule is not None:
        return submodule
    path = _locate(module, root)
    if path is None or path.name != "__init__.py" or not name:
        return path
    for node in ast.walk(parse_file(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGES):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return _resolve(node.module, alias.name, root)
    return path


def _find_needs(tree: ast.Module, root: Path) -> tuple[set[Path], set[str]]:
    """Files of the package, and top-level names of other modules, that the code itself needs.

    A module that a string names counts as well: it is run as a script.
    """
    files, others = set(), set()
    for module, name in _find_imports(tree):
        if CHECKS.match(f"{module}.{name}"):
            continue
        if module.split(".")[0] in PACKAGES:
            files.add(_resolve(module, name, root))
        else:
            others.add(module.split(".")[0])
    for text in find_strings(tree):
        if re.fullmatch(r"\w+(\.\w+)+", text) and text.startswith(PACKAGES):
            files.add(_locate(text, root))
    return {path for path in files if path is not None}, others - sys.stdlib_module_names


@cache
def _find_needs_of_file(path: Path, modified_ns: int, root: Path) -> tuple[set[Path], set[str]]:
    return _find_needs(parse_file(path), root)


def find_modules(trees: Iterable[ast.Module], root: Path) -> tuple[set[Path], set[str]]:
    """What the code needs, also by way of other modules of the package.

    A package's ``__init__`` that only re-exports a name is not in it, the module behind it is.

    Args:
        trees: of the code.
        root: the folder in which the package lies.

    Returns:
        The files of the package but for checks of exercises, and the top-level names of all
        modules that do not come with Python.
    """
    found = [_find_needs(tree, root) for tree in trees]
    files = set().union(*(own for own, _ in found))
    others = set().union(*(names for _, names in found))
    waiting = list(files)
    while waiting:
        path = waiting.pop()
        own, names = _find_needs_of_file(path, path.stat().st_mtime_ns, root)
        others |= names
        waiting += own - files
        files |= own
    return files, others


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_locked_versions(names: Iterable[str], lock: str) -> dict[str, list[str]]:
    """Locked versions of the distributions that provide the modules called ``names``.

    A distribution may be locked in several versions, for several versions of Python. All of them
    count, so that the answer does not depend on who asks.

    Args:
        names: top-level names of modules, as in ``import name``.
        lock: the text of ``requirements.lock``.
    """
    versions: dict[str, list[str]] = {}
    for distribution, version in LOCKED.findall(lock):
        versions.setdefault(_normalize(distribution), []).append(version)
    needed = {_normalize(PROVIDERS.get(name, name)) for name in names}
    return {name: versions[name] for name in sorted(needed & versions.keys())}
