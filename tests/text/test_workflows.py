"""The workflows of the forge are valid, and call only what exists."""

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from course_tools.cli.main import app
from course_utils.files import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ids = [path.stem for path in WORKFLOWS]


def check_schema(path):
    """With the schema that comes with check-jsonschema: nothing is fetched."""
    command = [sys.executable, "-m", "check_jsonschema"]
    schema = ["--builtin-schema", "vendor.github-workflows"]
    return subprocess.run([*command, *schema, str(path)], capture_output=True, text=True)


@pytest.mark.parametrize("path", WORKFLOWS, ids=ids)
def test_workflow_is_valid(path):
    done = check_schema(path)
    assert done.returncode == 0, done.stdout


def test_a_misspelt_key_is_found(tmp_path):
    broken = tmp_path / "ci.yml"
    broken.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "run-on:", 1))
    assert check_schema(broken).returncode != 0


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / ".ci" / "run"], ids=[*ids, ".ci/run"])
def test_workflow_calls_targets_and_options_that_exist(path):
    makefile = (ROOT / "Makefile").read_text()
    text = path.read_text()
    called = re.findall(r"^[^#\n]*\bmake ([\w -]+)", text, re.MULTILINE)
    targets = [target for line in called for target in line.split() if target.islower()]
    commands = re.findall(r"\bcourse (\w+)((?: +--[\w-]+(?: [^-\s]\S*)?)*)", text)
    assert targets or path.name == "ci.yml"  # which calls .ci/run
    for target in targets:
        assert re.search(rf"^([\w-]+ )*{target}( [\w-]+)*:", makefile, re.MULTILINE), target
    for command, options in commands:
        shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0, command
        for option in re.findall(r"--[\w-]+", options):
            assert option in shown.output, f"course {command} {option}"


@pytest.mark.parametrize("mark", ["cards", "faults"])
def test_a_target_collects_every_folder_with_tests_of_its_mark(mark):
    line = re.search(rf"PYTEST\) -m {mark} (.*) \$\(OPTIONS", (ROOT / "Makefile").read_text())
    collected = [ROOT / folder for folder in line[1].split()]
    marked = [
        path
        for folder in ("tests", "lesson_code")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(rf"mark\.{mark}\b", path.read_text(encoding="utf-8"))
    ]
    assert marked
    outside = [str(x) for x in marked if not any(x.is_relative_to(y) for y in collected)]
    assert not outside
