"""What must agree across files: pins, README, sizes, imports."""

import ast
import re
import subprocess
import sys
import tomllib
from itertools import chain

import packaging.markers
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from course_utils.doctor import read_lock
from course_utils.files import ROOT
from tests.places import find_notebooks

OURS = ("course_utils", "course_tools", "lesson_code", "scripts", "tests")
MODULES = sorted(path for folder in OURS[:2] for path in (ROOT / folder).rglob("*.py"))
LOCK = ROOT / "requirements.lock"


def read_pyproject():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read_environment_yml():
    text = (ROOT / "environment.yml").read_text()
    return [Requirement(line) for line in re.findall(r"^      - (\S+==.*)$", text, re.MULTILINE)]


def test_lint_and_format():
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, str(ROOT)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_types(tmp_path):
    """With a cache of its own: what an interrupted mypy left behind decides nothing here."""
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def count_statement_lines(function):
    """From the first statement after the docstring to the end of the last."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


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


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_functions_have_60_lines_at_most(path):
    """Of statements: the signature and the docstring of `fit` are long on purpose."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert count_statement_lines(node) <= 60, f"{node.name}: split it"


@pytest.mark.parametrize("folder", OURS)
def test_no_literal_is_unpacked_to_dodge_the_formatter(folder):
    for path in (ROOT / folder).rglob("*.py"):
        found = re.findall(r"^\s*\*[(\[].*", path.read_text(), re.MULTILINE)
        assert not found, f"{path}: write the elements themselves, not {found}"


def test_lock_has_a_hash_for_every_version_and_no_index():
    entries = re.split(r"\n(?=\S)", LOCK.read_text())
    pinned = [entry for entry in entries if not entry.startswith("#")]
    assert len(pinned) > 100
    assert all(re.match(r"[\w.-]+==\S+", e) and "--hash=sha256:" in e for e in pinned)
    assert not re.search(r"://|--index|--find-links|--trusted-host", LOCK.read_text())


def test_lock_satisfies_every_declared_dependency():
    pins = read_lock(LOCK)
    project = read_pyproject()
    extras = chain.from_iterable(project["optional-dependencies"].values())
    declared = [*project["dependencies"], *extras]
    for text in declared:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate():
            assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), text


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


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_modules_say_what_they_offer(path):
    source = path.read_text()
    tree = ast.parse(source)
    assert ast.get_docstring(tree) or not source
    scripts = ("__main__", "main", "conf", "kims_script")  # run, not imported
    if path.stem not in ("__init__", *scripts):
        names = [n.targets[0].id for n in tree.body if isinstance(n, ast.Assign)
                 and isinstance(n.targets[0], ast.Name)]  # fmt: skip
        assert "__all__" in names or source.count("\n") < 10


@pytest.mark.parametrize("path", find_notebooks(), ids=lambda path: path.stem)
def test_notebooks_do_not_import_tools(path):
    assert "course_tools" not in path.read_text()
