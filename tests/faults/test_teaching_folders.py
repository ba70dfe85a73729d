"""What release, site, slides, plan and lab made of bad input.

Each case is a command line in an empty folder, what is in that folder before, and what the command
must say: one line, or that it works. In every case nothing that was there may be lost.
"""

import json
import shutil
import sys

import pytest

from course_tools.cli import main as cli
from course_tools.cli import teaching as commands
from course_tools.publish import offline, release, slides
from course_tools.publish.made_folder import MadeFolder
from course_tools.run.lessons import find_lessons
from course_utils.files import ROOT

LESSONS = find_lessons()[:2]
NO_RELEASE = "is no release: choose an empty folder with --output"
HOLDS_WORK = "holds work ({}): move it away, or choose another folder with --output"
AMONG_SOURCES = "lies among the course's sources: choose a folder in "


@pytest.fixture(autouse=True)
def _two_lessons(monkeypatch):
    """Two lessons instead of all, and no pictures: what is copied does not matter here."""
    monkeypatch.setattr(commands, "find_lessons", lambda: LESSONS)
    monkeypatch.setattr(release, "COPIED", ("LICENSE", "pyproject.toml"))


@pytest.fixture
def course(monkeypatch, capsys, tmp_path):
    """``course("release", …)`` runs the command in an empty folder: exit status and its lines."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["course", *arguments])
        capsys.readouterr()
        status = 0
        try:
            cli.main()
        except SystemExit as end:
            status = end.code
        seen = capsys.readouterr()
        return status, (seen.out + seen.err).strip().splitlines()

    return run


def read_all(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


WORK_IN_A_RELEASE = {
    "a lesson": ("notebooks/01_baseline.ipynb", "{}"),
    "a file beside runs": ("notebooks/mine/runs/notes.txt", "years"),
    "a file called runs": ("runs.txt", "years"),
    "a damaged list": (".released.json", "\x00damaged"),
    "an empty list": (".released.json", "{}"),
}


@pytest.mark.parametrize("case", WORK_IN_A_RELEASE)
def test_release_over_a_students_work(course, tmp_path, case):
    name, text = WORK_IN_A_RELEASE[case]
    assert course("release", "--output", "rel")[0] == 0
    path = tmp_path / "rel" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    before = read_all(tmp_path)
    status, lines = course("release", "--output", "rel")
    assert (status, len(lines)) == (2, 1)
    said = {
        "a damaged list": NO_RELEASE,
        "an empty list": "holds work (LICENSE, Makefile, README.md and",
    }
    assert said.get(case, HOLDS_WORK.format(name)) in lines[0]
    assert read_all(tmp_path) == before


def test_release_over_a_students_runs_keeps_them(course, tmp_path):
    """What lessons measured lies in notebooks/runs, and moves into the new release."""
    course("release", "--output", "rel")
    runs = tmp_path / "rel" / "notebooks" / "runs"
    runs.mkdir()
    (runs / "records.jsonl").write_text("hours")
    assert course("release", "--output", "rel")[0] == 0
    assert (runs / "records.jsonl").read_text() == "hours"


@pytest.mark.parametrize(
    "target",
    [
        "course_utils/student_out",
        "data/results/x",
        "docs/../course_tools/out",
        "notebooks",
        "",  # the course itself
    ],
)
def test_release_into_its_own_sources(course, target):
    status, lines = course("release", "--output", str(ROOT / target))
    assert (status, len(lines)) == (2, 1)
    assert AMONG_SOURCES in lines[0]
    assert not (ROOT / "course_utils" / "student_out").exists()
    assert not list(ROOT.rglob(".release-*"))


def test_release_into_its_own_sources_through_a_link(course, tmp_path):
    (tmp_path / "link").symlink_to(ROOT / "docs")
    status, lines = course("release", "--output", "link/out")
    assert (status, len(lines)) == (2, 1)
    assert AMONG_SOURCES in lines[0]


@pytest.mark.parametrize(
    "address", ['https://x/"; import os; os.system(1) #', "javascript:alert(1)"]
)
def test_release_for_colab_with_a_hostile_address(course, tmp_path, address):
    status, lines = course("release", "--output", "rel", "--colab", address)
    assert (status, len(lines)) == (2, 1)
    assert "give the https:// address of your git repository" in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_two_releases_at_once(course, tmp_path, monkeypatch):
    """The second one is made while the first one is."""
    replacing, once = MadeFolder.replacing, []

    def interrupted(self, target):
        if not once:
            once.append(True)
            assert release.release(LESSONS, target) == target
        return replacing(self, target)

    monkeypatch.setattr(MadeFolder, "replacing", interrupted)
    assert course("release", "--output", "rel")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["rel"]


@pytest.mark.parametrize("name", ["notes.txt", ".github/workflows/deploy.yml", "index.html"])
def test_site_over_an_owners_files(course, tmp_path, name):
    site = tmp_path / "site"
    (site / name).parent.mkdir(parents=True)
    (site / "index.html").write_text("made")
    digest = "8b0d3f3c4c0b1b5d8d0e0bb0d7c0c5e7f1a2f2d9b2a2d7e0b9d6a0c0f0a1b2c3"
    (site / ".course-site.json").write_text(json.dumps({"index.html": digest}))
    (site / name).write_text("years")
    before = read_all(tmp_path)
    status, lines = course("site", "--output", "site")
    assert (status, len(lines)) == (2, 1)
    assert "holds work" in lines[0]
    assert name in lines[0]
    assert read_all(tmp_path) == before


def test_site_over_a_site_of_the_first_edition(course, tmp_path):
    """It has no checksums, so nobody knows which of its files are the owner's."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / ".course-site").touch()
    status, lines = course("site", "--output", "site")
    assert (status, len(lines)) == (2, 1)
    assert "is no site: choose an empty folder with --output" in lines[0]


@pytest.mark.parametrize("what", ["release", "slides"])
def test_a_full_disk_leaves_nothing_half(course, tmp_path, monkeypatch, what):
    """An error of the disk in the middle of copying."""
    module = {"release": release, "slides": offline}[what]
    copytree, copied = shutil.copytree, []

    def fill(source, target, *arguments, **options):
        if copied:
            raise shutil.Error([(str(source), str(target), "[Errno 28] No space left on device")])
        copied.append(source)
        return copytree(source, target, *arguments, **options)

    monkeypatch.setattr(module.shutil, "copytree", fill)
    (tmp_path / "out").mkdir()
    arguments = [LESSONS, tmp_path / "out"] if what == "release" else [LESSONS[0], tmp_path / "out"]
    monkeypatch.setattr(release, "COPIED", ("docs",))
    function = {"release": release.release, "slides": slides.write_slides}[what]
    with pytest.raises(OSError, match="No space left"):
        function(*arguments)
    assert list((tmp_path / "out").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_slides_of_a_lesson_without_outputs(course, tmp_path, monkeypatch):
    notebook = LESSONS[0].read()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    monkeypatch.setattr(type(LESSONS[0]), "read", lambda lesson: notebook)
    status, lines = course("slides", "00", "--output", "slides")
    assert status == 0
    assert "no figures and no results on them: course run 00" in " ".join(lines)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lab", "--port", "70000"], "65535"),
        (["plan", "00", "--minutes", "9"], "10"),
        (["slides"], "Missing argument"),
        (["plan", "00", "--run", "none"], "has no times of 00_start_here"),
        (["plan", "77"], "no lesson '77'"),
    ],
)
def test_commands_of_teachers(course, arguments, said):
    status, lines = course(*arguments)
    assert status == 2
    assert said in " ".join(lines)
