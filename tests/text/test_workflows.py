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


@pytest.mark.parametrize("path", WORKFLOWS, ids=ids)
def test_workflow_calls_targets_and_options_that_exist(path):
    makefile = (ROOT / "Makefile").read_text()
    text = path.read_text()
    targets = re.findall(r"\bmake ([\w-]+)", text)
    commands = re.findall(r"\bcourse (\w+)((?: +--[\w-]+(?: [^-\s]\S*)?)*)", text)
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for command, options in commands:
        shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0, command
        for option in re.findall(r"--[\w-]+", options):
            assert option in shown.output, f"course {command} {option}"


def test_shards_cover_all_lessons():
    for path in WORKFLOWS:
        for listed in re.findall(r"shard: \[(.*)\]", path.read_text()):
            parts = re.findall(r'"(\d)/(\d)"', listed)
            count = len(parts)
            assert parts == [(str(number + 1), str(count)) for number in range(count)]


# --- what .ci/run leaves out after a change of text -----------------------------------------------

READS_TEXT = re.compile(r'\(ROOT( / "\w+")* / "\w+\.md"\)\.read_text|cell_type == "markdown"')


def read_list(name):
    """A list of test files in the Makefile, as make expands it."""
    done = subprocess.run(
        ["make", "--no-print-directory", "-s", "-f", "Makefile", "-f", "-", "show"],
        input=f"show:\n\t@echo $({name})\n",
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / word for word in done.stdout.split()]


def list_files(paths):
    return {file for path in paths for file in ([path] if path.suffix else path.rglob("test_*.py"))}


def find_readers(files):
    """Of test files, those that read the text of lessons or of the documentation."""
    return {file for file in files if READS_TEXT.search(file.read_text(encoding="utf-8"))}


def test_no_test_of_a_text_is_left_out_after_a_change_of_text():
    left_out = list_files(read_list("CODE_TESTS")) - list_files(read_list("READING_TESTS"))
    assert left_out
    assert not find_readers(left_out)


def test_a_test_that_reads_a_text_is_found(tmp_path):
    file = tmp_path / "test_toy.py"
    file.write_text('assert "90 %" in (ROOT / "README.md").read_text()')
    assert find_readers({file}) == {file}
    file.write_text("assert 1 + 1 == 2")
    assert not find_readers({file})
