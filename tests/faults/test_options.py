"""Odd values of options and variables."""

import os
import re
import shutil
import sys

import pytest

from course_tools.cli import main as cli
from course_tools.run.plan import parse_parameters
from course_utils.errors import CourseError
from tests.own_folder import write_images
from tests.tools.conftest import assert_one_line

LONG = "a" * 300


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-p", f"ALPHA={'-' * 100_000}1"], "at most 1000 characters"),
        pytest.param(["-p", "ALPHA={1, 2}"], "-p ALPHA: give a number, a string", id="own-set"),
        (["--save-results", LONG], "use letters, digits, - and _ only, 100"),
        (["--dataset", LONG], "File name too long: aaa"),
        pytest.param(["--dataset", "~nobody-at-all/x"], "there is no such user", id="own-home"),
        (["--time-limit", "1e307"], "above 0, at most 1440"),
        (["--time-limit", "nan"], "--time-limit nan: give minutes above 0"),
        pytest.param(["--stop-after", "nan"], "--stop-after nan: give minutes", id="own-nan"),
        pytest.param(["--shard", f"1/{'9' * 5000}"], "write number and count", id="own-shard"),
        ([""], "an empty word is no lesson: is a variable not set"),
    ],
)
def test_odd_values_of_run_are_one_line(course, school, arguments, sentence):
    assert_one_line(course("run", "--profile", "smoke", *arguments), sentence)
    assert not school.build.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["run", "00", "--dataset", ""], id="own-dataset"),
        pytest.param(["release", "--output", ""], id="own-release"),
        pytest.param(["site", "--output", " "], id="own-site"),
        pytest.param(["slides", "00", "--output", ""], id="own-slides"),
        pytest.param(["plan", "05", "--run", ""], id="own-plan"),
        pytest.param(["grade", "x", "--output", ""], id="own-grade"),
    ],
)
def test_an_empty_word_does_not_mean_the_default(arguments, monkeypatch, tmp_path, capfd):
    """A variable that was not set: the wrong data, or the current folder, would be taken."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["course", *arguments])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert "is a variable not set?" in " ".join(re.findall(r"[\w?]+", capfd.readouterr().err))
    assert not list(tmp_path.iterdir())


def test_an_empty_word_is_no_lesson_of_a_plan(course):
    assert_one_line(course("plan", ""), "an empty word is no lesson")


@pytest.mark.parametrize("command", ["run", "report"])
def test_an_empty_word_is_no_build_folder(course, school, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["course", command, "--profile", "smoke", "--build", ""])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert not (tmp_path / "smoke").exists()


def test_a_build_folder_that_is_a_link_to_itself_is_one_line(course, school, tmp_path):  # own
    school.build = tmp_path / "loop"
    school.build.symlink_to(school.build)
    assert_one_line(course("run", "--profile", "smoke"), "cannot write to .*loop.*--build")


@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_tilde_that_the_shell_left_is_the_home_folder(course, school, monkeypatch, tmp_path, by):
    """With ``--dataset=~/mine`` the run noticed no change of the images."""
    monkeypatch.setenv("HOME", str(tmp_path))
    images = write_images(tmp_path / "mine", count=30)
    option = ["--dataset=~/mine"]
    if by == "variable":
        monkeypatch.setenv("COURSE_DATASET", "~/mine")
        option = []
    assert course("run", "00", "--profile", "smoke", *option)[0] == 0
    assert school.execute.asked["00_start_here"]["environment"]["COURSE_DATASET"] == str(images)
    assert "unchanged" in course("run", "00", "--profile", "smoke", *option)[1]
    (images / "train" / "cat" / "0.jpg").unlink()
    assert "unchanged" not in course("run", "00", "--profile", "smoke", *option)[1]


def test_a_class_that_is_a_link_to_a_folder_elsewhere_is_watched_too(course, tmp_path):  # own
    images = write_images(tmp_path / "mine", count=30)
    shutil.move(images / "train" / "cat", tmp_path / "cats")
    (images / "train" / "cat").symlink_to(tmp_path / "cats")
    run = ("run", "00", "--profile", "smoke", "--dataset", str(images))
    assert course(*run)[0] == 0
    assert "unchanged" in course(*run)[1]
    (tmp_path / "cats" / "0.jpg").write_bytes((images / "train" / "dog" / "0.jpg").read_bytes())
    assert "unchanged" not in course(*run)[1]


def test_a_link_in_a_circle_among_the_images_is_one_line(course, tmp_path):  # i_selfloop
    images = write_images(tmp_path / "mine", count=30)
    (images / "train" / "cat" / "me").symlink_to("me")
    (images / "train" / "dog" / "all").symlink_to(images)
    status, out, error = course("run", "00", "--profile", "smoke", "--dataset", str(images))
    assert (status, error) == (0, "")
    assert "passed" in out


def test_parameters_that_papermill_can_write_stay_what_they_are():
    given = {"A": "1", "B": "[1, 'x']", "C": "{'a': (1.5, None)}", "D": "True", "E": "a word"}
    assert parse_parameters([f"{name}={text}" for name, text in given.items()]) == {
        "A": 1,
        "B": [1, "x"],
        "C": {"a": (1.5, None)},
        "D": True,
        "E": "a word",
    }


@pytest.mark.parametrize("text", ["{1}", "1j", "b'x'", "...", "[{1}]", "{1: 2}"])
def test_parameters_that_papermill_would_turn_into_strings_are_refused(text):
    with pytest.raises(CourseError, match="give a number, a string, a list or a dictionary"):
        parse_parameters([f"A={text}"])


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(36, "File name too long", "x"), "File name too long: x: choose another path"),
        (OSError(16, "Device or resource busy", "a", None, "b"), "busy: b: choose another path"),
        (OSError(40, "Too many levels of symbolic links", "x"), "links: x: choose another path"),
        (OSError(5, "Input/output error"), "Input/output error: standard output, or a file: "),
        (OSError(28, "No space left on device", "x"), "x: make room, or choose another folder"),
        (PermissionError(13, "Permission denied", b"x"), "x: allow it, or choose another folder"),
        (shutil.Error([("a", "b", "no space"), ("c", "d", "e")]), r"cannot copy a to b \(no space"),
        (shutil.Error("'a' and 'b' are the same file"), "are the same file"),
        (OSError("cannot identify\nimage file"), "cannot identify image file"),
    ],
)
def test_every_error_of_the_system_is_one_line(course, monkeypatch, error, sentence):
    """Some of these were tracebacks."""

    def fail():
        raise error

    monkeypatch.setattr(cli, "find_lessons", fail)
    assert_one_line(course("list"), sentence)


def test_what_is_missing_in_the_clone_is_restored_from_git(course, monkeypatch):
    def fail():
        raise FileNotFoundError(2, "No such file or directory", str(cli.ROOT / "x.lock"))

    monkeypatch.setattr(cli, "find_lessons", fail)
    assert_one_line(course("list"), "x.lock: if it belongs to the course, restore it with `git")


def test_developers_may_see_the_traceback(course, monkeypatch):
    def fail():
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(cli, "find_lessons", fail)
    monkeypatch.setenv("COURSE_TRACEBACK", "1")
    with pytest.raises(OSError, match="Input/output error"):
        course("list")


def test_escape_sequences_in_a_name_do_not_reach_the_terminal(course):  # own
    refused = course("run", "--save-results", "\x1b]0;title\x07")
    assert_one_line(refused, "--save-results �]0;title�: use letters")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("command", ["list", "doctor"])
def test_a_console_that_is_not_utf8_is_no_error(monkeypatch, tmp_path, command, encoding):
    """As where the output is redirected on Windows."""
    path = tmp_path / "out.txt"
    with path.open("w", encoding=encoding) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "argv", ["course", command])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code in (0, None)
        print("λ", os.fsdecode(b"\xe9"))  # a name that is not UTF-8, too
    assert path.read_text(encoding=encoding).rstrip().endswith("? ?")
