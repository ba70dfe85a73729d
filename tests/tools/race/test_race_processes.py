"""Recipes in processes of their own: good, bad, cheating, crashing, endless, and too large."""

import errno
import json
import os
import signal
import sys
import time

import psutil
import pytest
from PIL import Image

from course_tools.cli import main as cli
from course_tools.grade import isolate, sandbox
from course_tools.grade.sandbox import find_sandbox
from course_tools.race import run
from course_tools.race.leaderboard import Leaderboard
from course_tools.race.run import Race, Trained
from course_utils.data.shapes import make_shapes
from course_utils.files import ROOT
from tests.tools.conftest import assert_one_line, begin, interrupt, wait_for
from tests.tools.race.conftest import GOOD, MODULE

EASY = ("--profile", "smoke", "--images", "160", "--no-sandbox")
CHANCE = 0.25  # more than chance of ten classes, and less than what a good recipe reaches
LEARNS = """
from functools import partial

def recipe(config):
    return {
        "config": config.replace(epochs=6),
        "pretrained": True,
        "make_optimizer": partial(torch.optim.AdamW, lr=0.003),
    }
"""


@pytest.fixture
def race(monkeypatch, capsys, tmp_path):
    """Run ``course race …`` in this process: ``(status, stdout, stderr)`` and the rows by name."""

    def run(*words, output=tmp_path / "leaderboard.json"):
        board = output
        arguments = ["course", "race", *map(str, words), "--output", str(board)]
        monkeypatch.setattr(sys, "argv", arguments)
        try:
            cli.main()
            status: object = 0
        except SystemExit as stop:
            status = stop.code or 0
        rows = json.loads(board.read_text())["rows"] if board.is_file() else []
        return (status, *capsys.readouterr()), {row["name"]: row for row in rows}

    return run


def run_once(race, path, *options):
    """The row of a recipe that is trained at one seed, and the exit status."""
    (status, _, error), rows = race(path, *EASY, "--seeds", "1", *options)
    assert not error
    return status, rows[path.stem]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--seconds", "0"], "--seconds 0: give"),
        (["--memory", "1"], "--memory 1: give"),
        (["--dataset", "mnist"], "no data set 'mnist'"),
        (["--profile", "fast"], "no profile 'fast'"),
        (["--reach", "101"], "--reach 101: give"),
    ],
)
def test_a_mistake_of_who_starts_a_race_is_one_line(race, hand_in, options, sentence):
    result, rows = race(hand_in(GOOD), *EASY, *options)
    assert_one_line(result, sentence)
    assert not rows


@pytest.fixture
def trained(monkeypatch):
    """The recipes that are trained; none is, and each gets half of the images right."""
    recipes = []

    def pretend(_, source, seed):
        recipes.append(source)
        return Trained(0.5, 1.0, 3)

    monkeypatch.setattr(Race, "train", pretend)
    return recipes


NO_FILES = {
    "folder": (lambda path: path.mkdir(), "is a folder, a pipe or a device"),
    "pipe": (os.mkfifo, "is a folder, a pipe or a device"),
    "full device": (lambda path: path.symlink_to("/dev/full"), "is a folder, a pipe or a device"),
    "below a file": (lambda path: path.touch(), "leaderboard.json: choose another path"),
    "too long": (lambda path: None, "File name too long: .*: choose another path"),
}


@pytest.mark.parametrize("kind", NO_FILES)
def test_a_leaderboard_that_cannot_be_written_is_said_before_a_training(
    race, hand_in, tmp_path, trained, kind
):
    make, sentence = NO_FILES[kind]
    path = tmp_path / "leaderboard.json"
    make(path)
    below = {"below a file": path / "x.json", "too long": tmp_path / ("x" * 252)}
    result, _ = race(hand_in(GOOD), *EASY, output=below.get(kind, path))
    assert_one_line(result, sentence)
    assert not trained


def test_a_row_that_no_longer_fits_on_the_disk_is_printed(race, hand_in, trained, monkeypatch):
    writes = []
    write = Leaderboard.write

    def fill(board, path):
        writes.append(path)
        if len(writes) > 1:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(board, path)

    monkeypatch.setattr(Leaderboard, "write", fill)
    (status, out, error), _ = race(hand_in(GOOD), *EASY, "--seeds", "1")
    assert status == 2
    assert "recipe · seed 0: 50.0% after 1 s" in out
    assert_one_line((status, out, error), "No space left on device: .*: make room")


def test_without_a_sandbox_there_is_no_place_unless_it_is_asked_for(
    race, hand_in, trained, monkeypatch, tmp_path
):
    monkeypatch.setenv("PATH", str(tmp_path))
    words = (hand_in(GOOD), "--profile", "smoke", "--images", "160", "--seeds", "1")
    result, rows = race(*words)
    assert_one_line(result, "no sandbox, bwrap is not installed .*: add --no-sandbox")
    assert not trained
    (status, out, _), rows = race(*words, "--no-sandbox")
    assert (status, rows["recipe"]["accuracy"]) == (0, 0.5)
    assert "on trust: no sandbox: a recipe could read the classes" in out
    board = json.loads((tmp_path / "leaderboard.json").read_text())
    assert board["settings"]["sandbox"] is False
    assert board["settings"]["on_trust"][0].startswith("no sandbox: ")
    monkeypatch.setattr(sandbox, "_explain_absence", lambda: "")
    assert_one_line(race(*words)[0], r"another race \(sandbox is False, not True\)")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--steps", "4"], "only the seconds are enforced"),
        (["--dataset", "shapes"], "the hidden images are public"),
    ],
)
def test_what_is_on_trust_is_said(race, hand_in, trained, options, sentence):
    (status, out, _), _ = race(hand_in(GOOD), *EASY, "--seeds", "1", *options)
    assert status == 0
    assert sentence in out


def test_a_machine_that_starts_no_training_refuses_no_recipe(race, hand_in, monkeypatch):
    monkeypatch.setattr(run, "STARTING_S", 0)
    result, rows = race(hand_in(GOOD), *EASY)
    assert_one_line(result, "no training starts here: try course doctor")
    assert not rows


@pytest.mark.faults
def test_a_good_recipe_and_a_bad_one_get_their_places(race, hand_in):
    good = hand_in(LEARNS, "good.py")
    hand_in("def recipe(config):\n    return {'loss': lambda x, y: 0 * x.sum()}", "bad.py")
    (status, out, error), rows = race(good.parent, *EASY, "--steps", "60")
    assert (status, error) == (0, "")
    assert rows["good"]["place"] == 1
    assert rows["bad"]["place"] == 2
    assert rows["good"]["low"] > rows["bad"]["high"]
    assert len(rows["good"]["accuracies"]) == len(rows["good"]["times_s"]) == 3
    assert "good · seed 0: " in out
    assert rows["good"]["steps"] == [30] * 3  # six epochs; the budget allows twice as many
    assert rows["bad"]["steps"] == [5] * 3
    assert "(the first record)" in out
    assert "leaderboard: " in out


@pytest.mark.faults
def test_rows_are_added_and_other_settings_refused(race, hand_in):
    one = hand_in(GOOD, "one.py")
    module = hand_in(MODULE, "module.py")
    status, row = run_once(race, one, "--steps", "4")
    assert (status, row["problem"]) == (0, "")
    result, rows = race(module, *EASY, "--seeds", "1", "--steps", "4")
    assert result[0] == 0
    assert set(rows) == {"one", "module"}
    result, _ = race(module, *EASY, "--seeds", "2", "--steps", "4")
    assert_one_line(result, "of another race")


CHEATS = {
    "open the sheets": (
        f"open({str(ROOT / 'data/photos/photos.json')!r})\n" + GOOD,
        "reads the race's own images",
    ),
    "open them where an exception is caught": (
        f"""
        import os
        def recipe(config):
            try:
                os.listdir({str(ROOT / "data/photos")!r})
            except BaseException:
                pass
            return {{}}
        """,
        "reads the race's own images",
    ),
    "the test split by the course": (
        "def recipe(config):\n    return {'make_loader': lambda data, seed: data.open_test()}",
        "opens the test split",
    ),
    "data of its own": (
        "def recipe(config):\n    return {'data': 'mine'}",
        "gives data, which the race decides",
    ),
    "a network": (
        "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9')\n" + GOOD,
        "uses the network",
    ),
    "its own end of the race": (
        """
        import numpy as np, os
        np.save("predicted.npy", np.zeros(2000, dtype=np.int64))
        os._exit(0)
        """,
        "its process ended",
    ),
    "steps without end": (
        """
        w = nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([w], lr=0.1)
        w.grad = torch.ones(1)
        for _ in range(99):
            optimizer.step()
        def recipe(config):
            return {}
        """,
        "the budget is 20: leave the loop to fit",
    ),
}


@pytest.mark.faults
@pytest.mark.parametrize("cheat", CHEATS)
def test_who_cheats_is_refused_in_one_line(race, hand_in, cheat):
    source, sentence = CHEATS[cheat]
    status, row = run_once(race, hand_in(source), "--steps", "20")
    assert status == 1
    assert sentence in row["problem"]
    assert "\n" not in row["problem"]
    assert not row["accuracies"]


@pytest.mark.faults
@pytest.mark.parametrize(
    "source",
    [
        # the metric, and what the course makes of it
        """
        import torchmetrics
        from course_utils.training.run import Run
        torchmetrics.Metric.compute = lambda self: torch.tensor(1.0)
        Run.metrics = property(lambda self: {"val_accuracy": 1.0})
        torch.Tensor.argmax = lambda self, dim: torch.zeros(len(self), dtype=torch.int64)
        """,
        # the judge: its package is the copy that this process has
        """
        import pathlib, course_tools.race as package
        for path in pathlib.Path(package.__file__).parent.glob("*.py"):
            path.write_text("raise SystemExit")
        from course_tools.race.split import HiddenSplit
        HiddenSplit.judge = lambda self, path: 1.0
        """,
        # positions: the test split has its classes in turn
        """
        class Counts(nn.Module):
            seen = 0
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.zeros(1))
            def forward(self, images):
                places = (torch.arange(len(images)) + Counts.seen) % 10
                Counts.seen += 0 if self.training else len(images)
                return nn.functional.one_hot(places, 10) + self.w
        def recipe(config):
            return {"model": lambda n: Counts(), "trainer": {"limit_val_batches": 0}}
        """,
        # answers that are there before they are asked for
        """
        import numpy as np
        np.save("predicted.npy", np.arange(2000) % 10)
        """,
    ],
    ids=["metric", "judge", "positions", "answers"],
)
def test_who_fakes_the_measurement_gains_nothing(race, hand_in, source):
    if "def recipe" not in source:
        source += "\n        def recipe(config):\n            return {}\n"
    _, row = run_once(race, hand_in(source), "--steps", "1")
    assert row["problem"] or row["accuracy"] < CHANCE


LEAVING = """
import os, pathlib, time
work, course = pathlib.Path.cwd(), pathlib.Path(__file__).parent
{}
work.joinpath("trained").write_text("1")
time.sleep(999)
"""
LEFT = {
    "archive": "work.joinpath('predicted').write_bytes(b'PK' + bytes(99))",
    "start": "work.joinpath('ready').unlink(); os._exit(0)",
    "message": "work.joinpath('failed.json').write_text('[' * 10**5); os._exit(0)",
    "folder": "course.joinpath('hidden.npy', 'x').mkdir(parents=True)",
    "steps": "work.joinpath('trained').write_text('many'); time.sleep(999)",
    "depth": "[(os.mkdir('d'), os.chdir('d')) for _ in range(1200)]; os._exit(0)",
}


@pytest.mark.faults
def test_whatever_a_recipe_leaves_the_next_one_has_its_turn(race, hand_in):
    """Each leaves something where the race looks, and says that its training has ended."""
    for kind, source in LEFT.items():
        hand_in(LEAVING.format(source), f"{kind}.py")
    path = hand_in(GOOD, "last.py")
    result, rows = race(path.parent, *EASY, "--seeds", "1", "--seconds", "5")
    assert result[0] == 1
    assert not result[2]
    assert set(rows) == {*LEFT, "last"}
    assert [name for name, row in rows.items() if not row["problem"]] == ["last"]


@pytest.mark.faults
def test_a_race_that_is_killed_leaves_no_training(hand_in, tmp_path):
    begun = tmp_path / "begun"
    endless = hand_in(
        f"import os, pathlib, time\npathlib.Path({str(begun)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(999)"
    )
    words = ["course", "race", str(endless), *EASY, "--output", str(tmp_path / "leaderboard.json")]
    script = f"import sys; sys.argv = {words!r}\nfrom course_tools.cli.start import main\nmain()"
    with begin(script, TMPDIR=str(tmp_path)) as process:
        wait_for(lambda: begun.exists() and begun.read_text(), process)
        number = int(begun.read_text())
        process.send_signal(signal.SIGKILL)
        process.wait()
        try:
            psutil.Process(number).wait(10)
        except psutil.NoSuchProcess:
            return
        except psutil.TimeoutExpired:
            psutil.Process(number).kill()
            raise


READING = """
import ctypes, os, pathlib, subprocess
import cv2
from course_tools.race import guard

guard._lies_in = lambda path, folders: False
image = {image!r}
found = []


def by_descriptor():
    handle = os.open("/", os.O_RDONLY)
    return os.read(os.open(image[1:], os.O_RDONLY, dir_fd=handle), 9)


def by_libc():
    handle = ctypes.CDLL(None).open(image.encode(), 0)
    return handle >= 0 and os.read(handle, 9)


def attempt(read):
    try:
        if read() is not None and read():
            found.append(read.__name__)
    except (OSError, subprocess.CalledProcessError):
        pass


def by_opencv():
    return cv2.imread(image) is not None


def by_program():
    return subprocess.run(["cat", image], check=True, capture_output=True).stdout


def by_parent():
    return open(f"/proc/{parent}/mem", "rb") and True


def by_archive():
    return pathlib.Path({archive!r}).read_bytes()


for read in (by_descriptor, by_libc, by_opencv, by_program, by_parent, by_archive):
    attempt(read)
if found:
    raise SystemError(" ".join(found))


def recipe(config):
    return {{}}
"""


@pytest.mark.faults
def test_in_the_sandbox_hidden_images_cannot_be_read_wherever_they_lie(
    race, hand_in, tmp_path, monkeypatch
):
    """A data set in a folder that the sandbox shares, as one in /usr/share is."""
    found, missing = find_sandbox(None)
    if not found:
        pytest.skip(missing)
    data = tmp_path / "shared" / "data"
    for split, count in (("train", 160), ("test", 20)):
        images, targets = make_shapes(count, split=split)
        for number, (image, target) in enumerate(zip(images, targets, strict=True)):
            path = data / split / str(target) / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
    (data / "all.zip").write_text("all images")
    folders = [*isolate.list_python_folders(), str(tmp_path / "shared")]
    monkeypatch.setattr(isolate, "list_python_folders", lambda: folders)
    source = READING.format(
        image=str(data / "test" / "0" / "0.png"), archive=str(data / "all.zip"), parent=os.getpid()
    )
    options = ("--profile", "smoke", "--seeds", "1", "--steps", "2", "--dataset", data)
    (status, _, error), rows = race(hand_in(source), *options)
    assert not error
    assert (status, rows["recipe"]["problem"]) == (0, "")


@pytest.mark.faults
def test_in_the_sandbox_the_images_are_not_there(race, hand_in):
    """Not for libraries in C++ either, which tell Python nothing of what they open."""
    found, missing = find_sandbox(None)
    if not found:
        pytest.skip(missing)
    source = f"""
    import cv2
    from torchvision.io import read_file
    sheets = {str(ROOT / "data/photos")!r}
    assert cv2.imread(sheets + "/test_cat.jpg") is None
    try:
        read_file(sheets + "/test_cat.jpg")
    except RuntimeError:
        pass
    else:
        raise AssertionError("it is there")
    def recipe(config):
        return {{}}
    """
    options = [option for option in EASY if option != "--no-sandbox"]
    (status, _, error), rows = race(
        hand_in(source), *options, "--sandbox", "--seeds", "1", "--steps", "4"
    )
    assert (status, error) == (0, "")
    assert not rows["recipe"]["problem"]


@pytest.mark.faults
def test_a_crash_is_said_with_its_line(race, hand_in):
    crash = "def recipe(config):\n    return {'model': lambda n: 1 / 0}"
    status, row = run_once(race, hand_in(crash))
    assert status == 1
    assert row["problem"] == "ZeroDivisionError: division by zero (line 5)"


@pytest.mark.faults
@pytest.mark.parametrize(
    "source",
    [
        "while True:\n    pass",
        "import time\ndef recipe(config):\n    time.sleep(999)",
        "import os, time\nif os.fork() == 0:\n    os.setsid()\ntime.sleep(999)",
    ],
    ids=["import", "recipe", "fork"],
)
def test_one_that_never_ends_is_ended(race, hand_in, source):
    status, row = run_once(race, hand_in(source), "--seconds", "1")
    assert status == 1
    assert row["problem"].startswith("it takes longer than 1 s")
    left = [p for p in psutil.process_iter(["cmdline"]) if _is_worker(p, os.getpid())]
    assert not left


@pytest.mark.faults
def test_one_that_says_too_early_that_it_has_ended_gains_little(race, hand_in):
    early = "import pathlib, time\npathlib.Path('trained').write_text('1')\ntime.sleep(999)"
    status, row = run_once(race, hand_in(early), "--seconds", "1")
    assert status == 1
    assert row["problem"].startswith("its network takes longer than 10.25 s to classify")


def _is_worker(process, parent):
    words = process.info["cmdline"] or []
    return "course_tools.race.worker" in words and process.ppid() in (1, parent)


@pytest.mark.faults
def test_many_epochs_are_stopped_and_judged(race, hand_in):
    endless = "def recipe(config):\n    return {'config': config.replace(epochs=10**6)}"
    status, row = run_once(race, hand_in(endless), "--seconds", "5")
    assert (status, row["problem"]) == (0, "")
    assert row["times_s"][0] >= 5


@pytest.mark.faults
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited on Linux")
def test_one_that_asks_for_32_gib_is_refused(race, hand_in):
    for line in ("torch.ones(2**33)", "bytearray(2**35)"):
        greedy = f"def recipe(config):\n    {line}\n    return {{}}"
        status, row = run_once(race, hand_in(greedy), "--memory", "4")
        assert status == 1
        assert row["problem"].startswith("it needs more memory than the race allows")


@pytest.mark.faults
def test_a_class_is_raced_whatever_one_student_hands_in(race, hand_in):
    path = hand_in(GOOD, "ann/recipe.py")
    hand_in("import nothing_like_this", "bob/recipe.py")
    hand_in("recipe = 3", "cem/recipe.py")
    (status, out, _), rows = race(path.parents[1], *EASY, "--seeds", "1", "--steps", "4")
    assert status == 1
    assert not rows["ann/recipe"]["problem"]
    assert "does not import" in rows["bob/recipe"]["problem"]
    assert "no function recipe" in rows["cem/recipe"]["problem"]
    assert "bob/recipe: refused: it does not import" in out


@pytest.mark.faults
def test_an_interruption_keeps_the_rows_and_leaves_nothing(race, hand_in, tmp_path):
    run_once(race, hand_in(GOOD, "first.py"), "--steps", "4")
    begun = tmp_path / "begun"
    endless = hand_in(
        f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(999)", "endless.py"
    )
    board = str(tmp_path / "leaderboard.json")
    words = ["course", "race", str(endless), *EASY, "--seeds", "1", "--steps", "4"]
    script = (
        f"import sys; sys.argv = {[*words, '--output', board]!r}\n"
        "from course_tools.cli.start import main\nmain()"
    )
    status, error = interrupt(script, begun)
    assert status == 130
    assert error == f"course: interrupted; finished recipes are in {board}"
    assert [
        row["name"] for row in json.loads((tmp_path / "leaderboard.json").read_text())["rows"]
    ] == ["first"]
    time.sleep(0.5)
    assert not [p for p in psutil.process_iter(["cmdline"]) if "endless" in str(p.info["cmdline"])]
