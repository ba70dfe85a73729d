"""What `course list` and the keys of `course run` read in the real lessons."""

from importlib.metadata import packages_distributions

from course_tools.cli import main as cli
from course_tools.run.dependencies import find_modules, parse_cell, read_locked_versions
from course_tools.run.key import find_inputs
from course_utils.config import load_config
from tests.places import ROOT
from tests.text.offenders import list_lessons, read_lessons


def test_modules_that_are_called_otherwise_than_their_distributions():
    """The table is right for all libraries of the lessons that are installed here."""
    installed = packages_distributions()
    lock = (ROOT / "requirements.lock").read_text()
    libraries = set()
    for notebook in read_lessons().values():
        trees = [parse_cell(c.source) for c in notebook.cells if c.cell_type == "code"]
        libraries |= find_modules(trees, ROOT)[1]
    wrong = []
    for name in libraries & installed.keys():
        [provider] = read_locked_versions([name], lock)
        if provider not in [x.lower().replace("_", "-") for x in installed[name]]:
            wrong.append(f"{name} is not of {provider}")
    assert wrong == []


def test_what_real_lessons_need():
    """A closure by hand: 09 writes scripts that import, 03 alone needs peft."""
    config = load_config("quick", dataset="photos", first_seed=0)
    inputs = {name[:2]: find_inputs(x, config) for name, x in read_lessons().items()}
    modules = {number: set(found["modules"]) for number, found in inputs.items()}
    assert "peft" in inputs["03"]["libraries"]
    assert "peft" not in inputs["01"]["libraries"]
    paths = [path for found in modules.values() for path in found]
    tools = ("course_tools", "course_utils/checking")
    assert [path for path in paths if path.startswith(tools) or "/checks" in path] == []
    assert "course_utils/training/torchrun.py" in modules["09"]
    assert "lesson_code/dali/dali_loader.py" in modules["11"]
    assert "lesson_code/dali/dali_loader.py" not in modules["01"]


def test_the_list_of_lessons_fits_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    cli.list_lessons(stale=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 1 + 3 * len(list_lessons())
    text = " ".join(" ".join(lines).split())
    assert [x.name for x in list_lessons() if x.question not in text] == []
