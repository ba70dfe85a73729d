"""What must agree across files: pins, README, sizes, imports."""

import ast
import re
import subprocess
import tomllib
from itertools import chain

import packaging.markers
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from course_utils.doctor import read_lock
from course_utils.files import ROOT
from tests.places import find_notebooks
from tests.text.offenders import for_each

OURS = ("course_utils", "course_tools", "lesson_code", "scripts", "tests")
LOCK = ROOT / "requirements.lock"


def read_python(*folders):
    """Each module's text by its path from the root of the course."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in paths]


def read_pyproject():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read_environment_yml():
    text = (ROOT / "environment.yml").read_text()
    return [Requirement(line) for line in re.findall(r"^      - (\S+==.*)$", text, re.MULTILINE)]


def count_statement_lines(function):
    """From the first statement after the docstring to the end of the last."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_the_citation_names_the_version_and_the_licence():
    cited, project = yaml.safe_load((ROOT / "CITATION.cff").read_text()), read_pyproject()
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
    [title] = re.findall(r"^# (.+)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert cited["title"] == title


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (["'''Only said", "and said.'''"], 0),
        (["'''Said.'''", "a = (", "1)", "b = 2"], 3),
        (["pass"], 1),
    ],
)
def test_lines_of_statements_are_counted(lines, count):
    source = "\n    ".join(["def f():", *lines])
    assert count_statement_lines(ast.parse(source).body[0]) == count


@for_each(lambda: read_python(*OURS[:2]))
def test_functions_have_60_lines_at_most(name, text):
    """Of statements: the signature and the docstring of `fit` are long on purpose."""
    for node in ast.walk(ast.parse(text)):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and count_statement_lines(node) > 60:
            yield f"split {node.name}"


@for_each(lambda: read_python(*OURS))
def test_no_literal_is_unpacked_to_dodge_the_formatter(name, text):
    for line in re.findall(r"^\s*\*[(\[].*", text, re.MULTILINE):
        yield f"write the elements themselves, not {line.strip()}"


def test_lock_has_a_hash_for_every_version_and_no_index():
    entries = re.split(r"\n(?=\S)", LOCK.read_text())
    pinned = [entry for entry in entries if not entry.startswith("#")]
    assert len(pinned) > 100
    assert all(re.match(r"[\w.-]+==\S+", e) and "--hash=sha256:" in e for e in pinned)
    assert not re.search(r"://|--index|--find-links|--trusted-host", LOCK.read_text())


UNLOCKED = {"deepspeed"}  # extras whose build needs what the lock installs


def test_lock_satisfies_every_declared_dependency():
    pins = read_lock(LOCK)
    project = read_pyproject()
    optional = project["optional-dependencies"]
    extras = chain.from_iterable(optional[name] for name in optional.keys() - UNLOCKED)
    declared = [*project["dependencies"], *extras]
    requirements = [Requirement(text) for text in declared]
    here = [r for r in requirements if r.marker is None or r.marker.evaluate()]
    wrong = [r for r in here if not r.specifier.contains(pins[canonicalize_name(r.name)])]
    assert wrong == []


def test_conda_environment_has_the_same_pins(monkeypatch):
    """It asks conda for Python 3.11, so the pins are those of the lock for Python 3.11."""
    here = packaging.markers.default_environment()
    there = here | {"python_version": "3.11", "python_full_version": "3.11.9"}
    monkeypatch.setattr(packaging.markers, "default_environment", lambda: there)
    pins = read_lock(LOCK)
    listed = {canonicalize_name(r.name): str(r.specifier) for r in read_environment_yml()}
    wanted = {canonicalize_name(Requirement(t).name) for t in read_pyproject()["dependencies"]}
    wanted |= {"nvidia-dali-cuda120"}
    assert set(listed) == wanted
    assert {name: f"=={pins[name]}" for name in wanted if name in pins} == {
        name: pin for name, pin in listed.items() if name in pins
    }


def list_tracked_texts():
    """The contents of the repository's files that a person reads, by their names."""
    command = ["git", "-C", str(ROOT), "ls-files"]
    tracked = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    suffixes = (".md", ".toml", ".lock", ".yml", ".yaml", ".py", ".ipynb", "")
    return {name: (ROOT / name).read_text() for name in tracked if (ROOT / name).suffix in suffixes}


def test_no_package_index_is_named():
    host = re.compile(r"pypi" + r"\.org|pythonhosted" + r"\.org|download\.pytorch" + r"\.org")
    assert not [name for name, text in list_tracked_texts().items() if host.search(text)]


OTHER_DOCUMENTS = [
    "bad_" + "inputs",  # a list of cases that is not in the repository, by name or by its ids
    r"^\s*\"{3}(Cases? )?[a-zA-Z]\d{1,2}(:| and |, |\.?\"{3})",
    r"#.* [a-z]\d\d(, [a-z]\d\d)*$",
    r"id=\"[a-zA-Z]\d\d[\"-]",
    r"\(source \d{3}\b",
]


def test_no_document_is_referred_to_that_is_not_here():
    other = re.compile("|".join(OTHER_DOCUMENTS), re.MULTILINE)
    found = {name: other.search(text) for name, text in list_tracked_texts().items()}
    assert {name: match[0] for name, match in found.items() if match} == {}


@for_each(lambda: read_python(*OURS[:2]))
def test_modules_say_what_they_offer(name, text):
    tree = ast.parse(text)
    if text and not ast.get_docstring(tree):
        yield "it has no docstring"
    stem = name.rpartition("/")[2].removesuffix(".py")
    run = ("__init__", "__main__", "main", "conf", "kims_script")  # not imported for their names
    targets = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    if stem not in run and "__all__" not in names and text.count("\n") >= 10:
        yield "it has no __all__"


def test_notebooks_do_not_import_tools():
    assert [path.stem for path in find_notebooks() if "course_tools" in path.read_text()] == []
