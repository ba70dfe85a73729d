"""The command line of the sandbox, and what it keeps from a command where it works."""

import os
import subprocess
import sys

import pytest

from course_utils.errors import CourseError
from course_utils.files import ROOT
from course_utils.tools.teach import sandbox
from course_utils.tools.teach.sandbox import (
    find_sandbox,
    list_python_folders,
    make_sandbox_command,
)


def list_binds(command, option):
    return [command[i + 1] for i, word in enumerate(command) if word == option]


def test_the_command_line_shares_nothing_but_what_is_named():
    command = make_sandbox_command(
        ["/usr/bin/python", "-c", ""], readable=["/a"], writable="/b", folder="/b/c"
    )
    options, inner = command[: command.index("--")], command[command.index("--") + 1 :]
    assert command[0] == "bwrap"
    assert inner == ["/usr/bin/python", "-c", ""]
    assert {"--unshare-all", "--die-with-parent", "--new-session"} <= set(options)
    assert "--share-net" not in options
    assert list_binds(options, "--cap-drop") == ["ALL"]
    assert list_binds(options, "--ro-bind") == ["/a"]
    assert list_binds(options, "--bind") == ["/b"]
    assert list_binds(options, "--chdir") == ["/b/c"]
    assert options.index("--tmpfs") < options.index("--bind")  # a later one covers an earlier one


def test_nothing_of_the_course_or_of_a_person_can_be_read():
    shared = [*sandbox.SYSTEM, *list_python_folders()]
    for private in (str(ROOT), os.path.expanduser("~"), "/", "/home", "/root", "/etc", "/tmp"):
        assert private not in shared


def test_python_is_found_where_links_lead():
    folders = list_python_folders()
    program = os.path.realpath(sys.executable)
    assert any(program.startswith(f"{folder}{os.sep}") for folder in folders)
    assert {sys.prefix, os.path.realpath(sys.prefix), sys.base_prefix} <= set(folders)


def test_a_sandbox_that_does_not_start_is_explained(tmp_path, monkeypatch):
    """As in a container that forbids it: bwrap is there, and fails."""
    program = tmp_path / "bwrap"
    program.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    reason = "bwrap does not work here (bwrap: No permissions to create new namespace)"
    assert find_sandbox(None) == (False, reason)
    assert find_sandbox(False) == (False, "as you asked")
    with pytest.raises(CourseError, match=r"No permissions .*: grade in a container, or"):
        find_sandbox(True)


ATTEMPTS = {
    "write the course": f"open({str(ROOT / 'README.md')!r}, 'r+')",
    "read a lesson": f"open({str(ROOT / 'notebooks' / '05_mixup.ipynb')!r})",
    "read passwords": "open('/etc/shadow')",
    "write Python": f"open({os.path.join(sys.prefix, 'x')!r}, 'w')",
    "see processes": f"import os; os.kill({os.getpid()}, 0)",
    "call a name": "import socket; socket.create_connection(('1.1.1.1', 53), 3)",
    "mount": "import subprocess; subprocess.run(['mount', '-t', 'tmpfs', 'x', '/mnt'], check=True)",
}


def test_a_folder_inside_a_readable_one_can_be_hidden(tmp_path):
    works, missing = find_sandbox(None)
    if not works:
        pytest.skip(missing)
    (tmp_path / "course" / "notebooks" / "solution").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    command = make_sandbox_command(
        [sys.executable, "-c", "import os, sys; sys.exit(len(os.listdir('../course/notebooks')))"],
        readable=[*list_python_folders(), str(tmp_path / "course")],
        writable=str(tmp_path / "work"),
        folder=str(tmp_path / "work"),
        hidden=[str(tmp_path / "course" / "notebooks")],
    )
    assert subprocess.run(command, timeout=120).returncode == 0


@pytest.mark.parametrize("attempt", [*ATTEMPTS.values(), ""], ids=[*ATTEMPTS, "nothing"])
def test_the_sandbox_holds(attempt, tmp_path):
    works, missing = find_sandbox(None)
    if not works:
        pytest.skip(missing)
    command = make_sandbox_command(
        [sys.executable, "-c", f"open('mine', 'w')\n{attempt}"],
        readable=list_python_folders(),
        writable=str(tmp_path),
        folder=str(tmp_path),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (tmp_path / "mine").exists()  # it may write where it was told
    assert (done.returncode == 0) == (not attempt), done.stderr
