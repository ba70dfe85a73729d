"""The key of a result: it changes when something that the result depends on changes.

That is: the code cells of the lesson (not its prose), the modules of the package that they
import, also by way of others, the locked versions of the libraries that these import, the data and
the weights that are read, stored results and scripts that the lesson names, profile, data set and
first seed.
Checks of exercises are not in it (see `dependencies.CHECKS`).
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import nbformat

from course_tools.run.dependencies import (
    describe_code,
    find_modules,
    find_strings,
    find_studies,
    mentions,
    parse_cell,
    parse_file,
    read_locked_versions,
)
from course_utils.config import Config
from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = ["NAMED_DATA", "digest_file", "digest_outputs", "find_inputs", "lesson_key"]

TEXTS = (".css", ".ipynb", ".js", ".json", ".md", ".py", ".txt")
DIGITS = 16  # of a digest: 64 bits
RESULTS = ("data/results", "lesson_code")  # where the stored results lie that a lesson names
NAMED_DATA = ("shapes", "photos", "cifar10")  # anything else is a folder


def _digest(content: object) -> str:
    """A digest of nested lists, tuples, dictionaries and texts."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:DIGITS]


@cache
def _digest_module(path: Path, modified_ns: int) -> str:
    return _digest(describe_code(parse_file(path)))


def digest_file(path: Path) -> str:
    """A digest of a file's content; how the lines of a text end is not in it."""
    content = path.read_bytes()
    if path.suffix in TEXTS:
        content = content.replace(b"\r\n", b"\n")
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def _describe_data(names: Iterable[str], root: Path) -> dict[str, object]:
    """Digests of the data sets called ``names`` that are files; drawn ones are code."""
    found: dict[str, object] = {}
    for name in sorted(names):
        if name == "photos":  # its JSON has the checksum of every sheet
            found[name] = digest_file(root / "data" / "photos" / "photos.json")
        elif name not in NAMED_DATA:
            states = sorted(_list_files(name))
            found[name] = [(path, state.st_size, state.st_mtime_ns) for path, state in states]
    return found


def _list_files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """All files and folders below ``folder``; links are followed, each real folder once."""
    seen = {os.path.realpath(folder)}
    for place, folders, names in os.walk(folder, followlinks=True):
        for name in [*folders, *names]:
            path = os.path.join(place, name)
            try:
                yield path, os.stat(path)
            except OSError:  # a link to nothing: whoever reads it says so
                yield path, os.lstat(path)
        real = {name: os.path.realpath(os.path.join(place, name)) for name in folders}
        folders[:] = [name for name in folders if real[name] not in seen]
        seen.update(real.values())


def _describe_weights(models: Iterable[str], root: Path) -> dict[str, str]:
    """For each of the models that has pretrained weights, the digest of the JSON beside them."""
    files = sorted((root / "data" / "weights").glob("*.json"))
    names = {}
    for path in files:
        try:
            names[str(json.loads(path.read_text(encoding="utf-8"))["model"])] = path
        except (OSError, ValueError, KeyError, TypeError):
            raise CourseError(
                f"{path} is damaged: restore it with `git checkout data/weights`"
            ) from None
    return {name: digest_file(names[name]) for name in sorted(models) if name in names}


def _read_lock(root: Path) -> str:
    path = root / "requirements.lock"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise CourseError(
            f"{path} is missing or damaged: restore it with `git checkout {path.name}`"
        ) from None


def find_inputs(notebook: nbformat.NotebookNode, config: Config, root: Path = ROOT) -> dict:
    """What the results of a lesson depend on: a digest or a version for each input, by kind.

    Reference results of whole courses (``read_results``) are not in it: a lesson may draw them
    behind its own, and ``course run --save-results`` writes them from a run of the same lesson.

    Args:
        notebook: the lesson.
        config: its settings, for the profile, the data set and the first seed.
        root: the repository.

    Raises:
        CourseError: the lock, the JSON of weights or a module of the package is damaged.
    """
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    trees = [parse_cell(source) for source in sources]
    files, libraries = find_modules(trees, root)
    modules = {path.relative_to(root).as_posix(): path for path in sorted(files)}
    strings = set().union(*map(find_strings, trees))
    pretrained = any(mentions(tree, "pretrained") for tree in trees)
    prints_source = any(mentions(tree, "getsource") for tree in trees)
    datasets = {config.dataset} | strings & set(NAMED_DATA)
    named = [name for name in strings if name.endswith((".json", ".js"))]
    results = [root / folder / name for folder in RESULTS for name in named]
    if any(name.endswith(".js") for name in named):  # outputs of `explore` hold its scripts
        results += (root / "course_utils").glob("explore.*s")  # .js and .css
    studies = find_studies(trees)
    stored = (root / "lesson_code").glob("*/study.json")
    results += [path for path in stored if path.parent.name in studies]
    if any(mentions(tree, "read_measured") for tree in trees):
        results += (root / "data" / "results").glob("measured_*.json")
    return {
        "cells": [_digest(describe_code(tree)) for tree in trees],
        "modules": {
            name: _digest_module(path, path.stat().st_mtime_ns) for name, path in modules.items()
        },
        # a lesson that prints source code shows comments and docstrings too
        "texts": [digest_file(path) for path in modules.values()] if prints_source else [],
        "libraries": read_locked_versions(libraries, _read_lock(root)),
        "data": _describe_data(datasets, root),
        "weights": _describe_weights({config.model} | strings, root) if pretrained else {},
        "results": {
            path.relative_to(root).as_posix(): digest_file(path)
            for path in sorted(results)
            if path.is_file()
        },
        "asked": [config.profile, config.dataset, config.first_seed],
    }


def lesson_key(
    notebook: nbformat.NotebookNode, config: Config, parameters: dict, root: Path = ROOT
) -> str:
    """The key of what an execution of the lesson with these settings gives."""
    inputs = find_inputs(notebook, config, root)
    return _digest([inputs, repr(sorted(parameters.items()))])


def digest_outputs(notebook: nbformat.NotebookNode) -> str:
    """A digest of all outputs in a notebook: it changes when somebody edits one by hand."""
    return _digest([cell.outputs for cell in notebook.cells if cell.cell_type == "code"])
