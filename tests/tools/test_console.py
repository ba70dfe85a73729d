"""Paths and messages are printed as they are, whatever they would mean to rich."""

import re

import pytest

from course_tools.cli import main as cli
from course_tools.cli import race
from course_tools.cli import teaching as commands
from course_tools.console import make_console
from course_tools.run.record import CourseResult
from course_utils.files import ROOT
from course_utils.results import LessonResult

HOSTILE = ["my courses [v2]", "b[/bold]", "[red]", ":cat:", "[link=x]y", r"a\[b]"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_path_is_shown_with_all_its_characters(name, capsys):
    console = make_console()
    console.print(f"written: /home/{name}/x", style="green", soft_wrap=True)
    assert capsys.readouterr().out == f"written: /home/{name}/x\n"


@pytest.mark.parametrize("module", [cli, commands, race], ids=["cli", "teach", "race"])
@pytest.mark.parametrize("name", HOSTILE)
def test_every_command_prints_so(module, name):
    with module.console.capture() as printed:
        module.console.print(name, soft_wrap=True)
    assert printed.get() == f"{name}\n"


def test_commands_make_no_console_of_another_kind():
    sources = {path: path.read_text("utf-8") for path in (ROOT / "course_tools").rglob("*.py")}
    makers = [path.name for path, text in sources.items() if re.search(r"\bConsole\(", text)]
    assert makers == ["console.py"]


@pytest.mark.parametrize("name", HOSTILE)
def test_the_reason_of_a_failure_is_shown_with_all_its_characters(name, capsys):
    failed = LessonResult("01_a", 1.0, 1, [], [], status="failed", reason=f"no {name}")
    passed = LessonResult("02_b", 1.0, 1, [], [])
    cli._print_outcome(CourseResult("smoke", "photos", 0, {}, {}, None, [failed, passed]))
    printed = capsys.readouterr().out
    assert f"no {name}" in printed
    assert "passed" in printed
