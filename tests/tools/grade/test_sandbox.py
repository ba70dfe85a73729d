"""The command line of the sandbox, and what it keeps from a command where it works."""

import os
import subprocess
import sys

import pytest

from course_tools.grade import sandbox
from course_tools.grade.sandbox import find_sandbox, list_python_folders, make_sandbox_command
from course_utils.errors import CourseError
from course_utils.files import ROOT


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
    for prefix in (sys.prefix, os.path.realpath(sys.prefix), sys.base_prefix):
        assert os.path.join(prefix, "lib") in folders
        assert prefix not in folders, "it may be somebody's home, or hold data"


def test_a_python_in_somebodys_home_shares_no_more_of_it(tmp_path, monkeypatch):
    """As after ``./configure --prefix=$HOME``."""
    for name in ("bin", "lib", "images", ".ssh"):
        (tmp_path / name).mkdir()
    for name in ("prefix", "base_prefix", "exec_prefix", "base_exec_prefix"):
        monkeypatch.setattr(sys, name, str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    assert set(list_python_folders()) == {str(tmp_path / "bin"), str(tmp_path / "lib")}


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
    with pytest.raises(CourseError, match=r"no sandbox, .*No permissions .*: add --no-sandbox"):
        find_sandbox(True)


ATTEMPTS = {
    "write the course": f"open({str(ROOT / 'README.md')!r}, 'r+')",
    "read a lesson": f"open({str(ROOT / 'notebooks' / '05_mixup.ipynb')!r})",
    "read passwords": "open('/etc/shadow')",
    "write Python": f"open({os.path.join(sys.prefix, 'bin', 'x')!r}, 'w')",
    "see processes": f"import os; os.kill({os.getpid()}, 0)",
    "call a name": "import socket; socket.create_connection(('1.1.1.1', 53), 3)",
    "mount": "import subprocess; subprocess.run(['mount', '-t', 'tmpfs', 'x', '/mnt'], check=True)",
}


def run_python(source, tmp_path, hidden=(), readable=()):
    """Run Python code in the sandbox, in a folder that it may write; skips where there is none."""
    works, missing = find_sandbox(None)
    if not works:
        pytest.skip(missing)
    (tmp_path / "work").mkdir(exist_ok=True)
    command = make_sandbox_command(
        [sys.executable, "-c", source],
        readable=[*list_python_folders(), *readable],
        writable=str(tmp_path / "work"),
        folder=str(tmp_path / "work"),
        hidden=hidden,
    )
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_what_lies_in_a_readable_folder_can_be_hidden(tmp_path):
    course = tmp_path / "course"
    (course / "notebooks" / "solution").mkdir(parents=True)
    (course / "images.tar").write_text("images")
    missing = course / "not" / "there"
    source = f"""
import os
assert os.listdir({str(course)!r}) and not os.listdir({str(course / "notebooks")!r})
open({str(course / "images.tar")!r})
"""
    solution = course / "notebooks" / "solution"
    hidden = [*map(str, [solution, solution.parent, course / "images.tar", missing, tmp_path])]
    done = run_python(source, tmp_path, hidden, readable=[str(course)])
    assert "PermissionError" in done.stderr, done.stderr


FILLED = {
    "temporary": "/tmp/x",
    "shared memory": "/dev/shm/x",
    "root": "/x",
    "devices": "/dev/x",
    "hidden folder": "{}/hidden/x",
}


@pytest.mark.parametrize("path", FILLED.values(), ids=FILLED)
def test_files_in_memory_are_few(path, tmp_path):
    """What is written there is memory that belongs to no process."""
    (tmp_path / "hidden").mkdir()
    source = f"""
import os
with open({path.format(tmp_path)!r}, "wb") as file:
    os.posix_fallocate(file.fileno(), 0, {sandbox.IN_MEMORY_BYTES + 2**20})
"""
    done = run_python(source, tmp_path, [str(tmp_path / "hidden")])
    assert "No space left" in done.stderr or "Read-only" in done.stderr, done.stderr


@pytest.mark.parametrize("attempt", [*ATTEMPTS.values(), ""], ids=[*ATTEMPTS, "nothing"])
def test_the_sandbox_holds(attempt, tmp_path):
    done = run_python(f"open('mine', 'w')\n{attempt}", tmp_path)
    assert (tmp_path / "work" / "mine").exists()  # it may write where it was told
    assert (done.returncode == 0) == (not attempt), done.stderr
