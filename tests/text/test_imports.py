import ast
import graphlib
import os
import subprocess
import sys
from importlib import import_module

import pytest

from course_tools.lesson_folder import is_for_teachers
from course_tools.publish.planted import APART
from course_utils.files import ROOT

# A folder or module imports from the floors below its own alone. Lowest first:
FLOORS = {
    "course_utils": [
        ["errors", "files", "processes"],
        ["config", "measure", "models", "predictions", "results"],
        ["measured", "study_results"],
        ["claims", "data"],
        ["doctor", "training"],
        ["__init__", "checking", "plots"],
        ["explore", "gantt", "ranks"],
    ],
    "course_tools": [
        [
            "__init__",
            "console",
            "lesson_folder",
            "options",
            "pages",
            "study",
            "measure",
            "pretrain",
        ],
        ["run"],
        ["grade", "interrupts", "lab"],
        ["publish", "race"],
        ["cli"],
        ["__main__"],
    ],
}
# Which packages a package may import. Planted answers, tests and studies of a lesson use more.
BELOW = {
    "course_utils": {"course_utils"},
    "course_tools": {"course_utils", "course_tools"},
    "lesson_code": {"course_utils", "lesson_code"},
    "scripts": {"course_utils", "course_tools"},
}
# Who imports these trains nothing yet, and does not wait for what a training needs. Lightning
# imports torchmetrics, and that imports transformers where it is installed (peft brings it).
LIGHT = [
    "course_utils",
    "course_utils.data",
    "course_utils.measure",
    "course_utils.models",
    "course_utils.plots",
    "lesson_code.gradient_checkpointing.checks",
    "course_tools.run.runner",
    "course_tools.publish.readme",
    "course_tools.run.report",
]
HEAVY = ["lightning", "torchmetrics", "transformers", "peft", "timm", "torchvision", "cv2"]
HEAVY += ["albumentations", "nvidia.dali"]


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [(LIGHT, HEAVY), (["conftest"], ["torch", "nbformat"])],
    ids=["course_utils", "tests"],
)
def test_heavy_packages_wait_until_they_are_needed(modules, heavy):
    code = f"""
import sys
from importlib import import_module
for module in {modules}:
    import_module(module)
    found = [name for name in {heavy} if name in sys.modules]
    assert not found, f"{{module}} imports {{found}}"
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_pytest_starts_without_nbval(pytestconfig):
    # it imports nbformat, jsonschema and rfc3987_syntax, which compiles its grammars on import
    assert not pytestconfig.pluginmanager.hasplugin("nbval")


@pytest.mark.parametrize(
    "package", ["course_utils", "course_utils.measure", "course_utils.training"]
)
def test_a_package_has_all_names_that_it_lists_and_no_others(package):
    module = import_module(package)
    for name in module.__all__:
        assert getattr(module, name).__name__ == name  # `fit` is the function, not the module
    assert not hasattr(module, "no_such_name")


def test_augmenting_asks_nobody_for_news(offline_environment):
    """The import of albumentations would look for a newer version, and warn where it cannot."""
    code = (
        "from course_utils.data.augment import train_transform; "
        "train_transform((0.5,) * 3, (0.2,) * 3)"
    )
    environment = os.environ | offline_environment
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stderr == ""


def name_module(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def name_entry(module):
    """The folder or file of a package to which a module belongs; of the package: ``__init__``."""
    return module.split(".")[1] if "." in module else "__init__"


def find_imports(source, modules):
    """Those of ``modules`` that a source imports: at its top, in functions, or by a string."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write the whole name: relative imports are not read here"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            # `from package import module` needs the module, and not what the package exports
            if all(f"{node.module}.{alias.name}" in modules for alias in node.names):
                found.discard(node.module)
    if "import_module(" in source:  # lazily, as the package does it: the strings name modules
        found |= {n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant)}
    return found & set(modules)


def list_paths(*packages):
    found = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    return {name_module(path): path for path in found}


def read_graph(*packages):
    """Every module of the packages to those that it imports."""
    paths = list_paths(*BELOW)
    return {
        name: find_imports(path.read_text(), paths) for name, path in list_paths(*packages).items()
    }


def join_entries(graph):
    """The edges ``(entry, imported entry)`` between the top-level entries."""
    edges = {(name_entry(a), name_entry(b)) for a, imported in graph.items() for b in imported}
    return {(a, b) for a, b in edges if a != b}


def test_imports_in_functions_and_by_a_string_are_found():
    modules = ["a", "a.b", "a.c", "a.d", "a.e"]
    source = "import a.b\ndef f():\n    from a.c import x\n    from a import d"
    assert find_imports(source, modules) == {"a.b", "a.c", "a.d"}
    assert find_imports("from a import x", modules) == {"a"}
    assert find_imports("import_module(HOMES[name])\nHOMES = {1: 'a.e'}", modules) == {"a.e"}
    assert find_imports("text = 'a.e'", modules) == set()


@pytest.mark.parametrize("package", list(FLOORS))
def test_entries_import_from_the_floors_below(package):
    floor = {entry: number for number, floor in enumerate(FLOORS[package]) for entry in floor}
    inside = list_paths(package)
    graph = {a: imported & set(inside) for a, imported in read_graph(package).items()}
    assert {name_entry(module) for module in graph} == set(floor), "give it a floor in FLOORS"
    assert [(a, b) for a, b in sorted(join_entries(graph)) if floor[b] >= floor[a]] == []


@pytest.mark.parametrize("package", list(BELOW))
def test_a_package_imports_those_below_it(package):
    graph = read_graph(package)
    wrong = [
        (a, b)
        for a, imported in graph.items()
        for b in imported
        if b.split(".")[0] not in BELOW[package]
        and not is_for_teachers(list_paths(package)[a].relative_to(ROOT).as_posix())
    ]
    assert wrong == []


def find_arrows_between_lessons(graph):
    lessons = [(a.split(".")[1:2], b.split(".")[1:2], a, b) for a in graph for b in graph[a]]
    return [(a, b) for one, other, a, b in lessons if b.startswith("lesson_code.") and one != other]


def test_no_lesson_imports_another():
    assert find_arrows_between_lessons(read_graph("lesson_code")) == []
    wrong = {"lesson_code.one.checks": {"lesson_code.two.checks", "lesson_code.one.own"}}
    assert find_arrows_between_lessons(wrong) == [
        ("lesson_code.one.checks", "lesson_code.two.checks")
    ]


def test_checks_use_no_module_that_their_stored_outputs_leave_out():
    def is_apart(module):
        return module.startswith("lesson_code.") and APART.fullmatch(module.rpartition(".")[2])

    graph = read_graph("lesson_code")
    assert any(map(is_apart, graph))
    assert not [(a, b) for a in graph for b in graph[a] if is_apart(b) and not is_apart(a)]


def test_no_modules_import_each_other_in_a_circle():
    graphlib.TopologicalSorter(read_graph(*BELOW)).prepare()  # raises CycleError, with the circle
