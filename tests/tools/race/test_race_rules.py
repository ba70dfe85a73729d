"""What decides a race, without a process of its own: budgets, files, answers, places, rows."""

import errno
import functools
import hashlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from scipy import stats

from course_tools.grade.isolate import read_messages
from course_tools.grade.pristine import read_package
from course_tools.grade.strangers import disposable_folder, is_regular
from course_tools.race import entries, run
from course_tools.race.budget import Budget
from course_tools.race.entries import MOST_BYTES, find_entries
from course_tools.race.leaderboard import (
    Leaderboard,
    Row,
    put_rows,
    read_leaderboard,
    summarize_rows,
)
from course_tools.race.load import describe_failure, load_recipe
from course_tools.race.memory import measure_memory
from course_tools.race.split import (
    HiddenSplit,
    decode_data,
    describe_data,
    encode_classes,
    encode_data,
    list_forbidden,
)
from course_tools.race.train import classify, train_recipe
from course_utils.config import load_config
from course_utils.data import load_data
from course_utils.data.image_data import Images
from course_utils.data.photos import PHOTOS
from course_utils.errors import CourseError
from course_utils.files import ROOT
from course_utils.measure.places import find_places, mean_interval
from tests.tools.race.conftest import GOOD, MODULE

ENOUGH = Budget(seconds=600)


@pytest.fixture(scope="module")
def config():
    config = load_config("smoke", dataset="shapes", first_seed=0)
    return config.replace(num_train=64, num_val=40, batch_size=16, progress=False)


@pytest.fixture(scope="module")
def data(config):
    return load_data(config)


def train(path, config, data, budget=ENOUGH, seed=0):
    return train_recipe(path, config, data, seed, budget, time.monotonic())


# Budgets


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"seconds": 0}, "--seconds 0: give 1 to"),
        ({"seconds": float("nan")}, "--seconds nan"),
        ({"seconds": 1e9}, "--seconds 1e"),
        ({"steps": 0}, "--steps 0: give 1 or more"),
        ({"memory_gib": 0.5}, "--memory 0.5: give 2 to"),
    ],
)
def test_a_number_that_is_no_budget_is_refused(values, sentence):
    with pytest.raises(CourseError, match=sentence):
        Budget(**values)


def test_a_training_ends_with_its_steps(hand_in, config, data, monkeypatch):
    taken = []
    step = torch.optim.AdamW.step

    @functools.wraps(step)  # with PyTorch's own mark: no hook is called twice
    def note(*arguments, **options):
        taken.append(1)
        return step(*arguments, **options)

    monkeypatch.setattr(torch.optim.AdamW, "step", note)
    train(hand_in(GOOD), config, data)
    assert len(taken) == 8  # two epochs of four batches
    taken.clear()
    train(hand_in(GOOD), config, data, Budget(600, steps=3))
    assert len(taken) == 3
    taken.clear()
    fewer = GOOD.replace("epochs=2)", "epochs=2), 'trainer': {'max_steps': 2}")
    train(hand_in(fewer), config, data, Budget(600, steps=3))
    assert len(taken) == 2


def test_a_training_ends_with_its_seconds_and_is_judged(hand_in, config, data):
    """In the middle of an epoch, and long before the last one."""
    path = hand_in(GOOD.replace("epochs=2", "epochs=10**6"))
    model = train(path, config, data, Budget(1.5))
    assert classify(model, data, data.val.images).shape == (40,)
    with pytest.raises(CourseError, match="takes longer than 1 s before its training begins"):
        train_recipe(path, config, data, 0, Budget(1), time.monotonic() - 1)


def test_steps_of_a_loop_of_its_own_are_counted(hand_in, config, data):
    own = """
    def work(steps=9):
        w = nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([w], lr=0.1)
        for _ in range(steps):
            w.grad = torch.ones(1)
            optimizer.step()

    work()

    def recipe(config):
        return {}
    """
    with pytest.raises(CourseError, match="it took 12 steps, the budget is 3: leave the loop"):
        train(hand_in(own), config, data, Budget(600, steps=3))


# Recipes


def test_a_dictionary_and_a_lightning_module_are_trained(hand_in, config, data):
    for source in (GOOD, MODULE):
        model = train(hand_in(source), config, data)
        found = classify(model, data, data.val.images)
        assert found.dtype == np.int64
        assert set(found) <= set(range(data.num_classes))


def test_a_seed_decides_the_training(hand_in, config, data):
    def weights(seed):
        model = train(hand_in(MODULE), config, data, seed=seed)
        return torch.cat([p.flatten() for p in model.parameters()])

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import nothing_like_this", r"not import: ModuleNotFoundError: .* \(line 4\)"),
        ("def recipe(config:", r"not import: SyntaxError: .* \(line 4\)"),
        ("exit()", "not import: SystemExit"),
        ("recipe = 3", r"no function recipe\(config\)"),
        ("def recipe(config):\n    return 3", "recipe returns a int: return a dictionary"),
        ("def recipe(config):\n    return lambda n: nn.Linear(3, n)", "function makes a Linear"),
        ("def recipe(config):\n    return {'data': 1}", "gives data, which the race decides"),
        ("def recipe(config):\n    return {'sed': 1}", "fit has no option 'sed'"),
        ("def recipe(config):\n    return {'seed': 1}", "fit has no option 'seed'"),
        ("def recipe(config):\n    return {'los': 1}", "did you mean 'loss'"),
        (
            "def recipe(config):\n    return {'trainer': {'max_time': '00:01:00:00'}}",
            "max_time, which the race decides",
        ),
        (
            "def recipe(config):\n    return {'make_loader': lambda d, s: d.open_test()}",
            "opens the test split, which judges the race",
        ),
    ],
)
def test_what_is_no_recipe_is_refused_in_one_line(
    hand_in, config, data, tmp_path, source, sentence
):
    path = tmp_path / "data.npz"
    path.write_bytes(encode_data(data))
    with pytest.raises(CourseError, match=sentence) as found:
        train(hand_in(source), config, decode_data(path, describe_data(data)))
    assert "\n" not in str(found.value)


def test_a_file_may_have_the_name_of_a_library(hand_in, config):
    assert load_recipe(hand_in(GOOD, "torch.py"))(config) == {"config": config.replace(epochs=2)}
    assert sys.modules["torch"] is torch


def test_a_failure_names_the_line_of_the_recipe(hand_in, config):
    path = hand_in("def recipe(config):\n    return torch.zeros(2) @ torch.zeros(3)")
    with pytest.raises(RuntimeError) as found:
        load_recipe(path)(config)
    assert describe_failure(found.value, path).endswith("(line 5)")
    long = describe_failure(ValueError("x" * 999 + "\n\x1b[31m"), path)
    assert len(long) < 300
    assert long.isprintable()
    with pytest.raises(FrozenInstanceError) as frozen:
        config.epochs = 3
    described = describe_failure(frozen.value, path)
    assert described.endswith('return {"config": config.replace(…)}')
    memory = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
    for error in (memory, MemoryError()):
        assert describe_failure(error, path).startswith("it needs more memory than")


# The hidden split


def make_hidden(count=50):
    rng = np.random.default_rng(0)
    images = np.arange(count * 12, dtype=np.uint8).reshape(count, 2, 2, 3)
    return HiddenSplit(images, np.arange(count) % 10, rng.permutation(count))


def test_answers_are_judged_in_the_hidden_order(tmp_path):
    hidden, path = make_hidden(), tmp_path / "predicted"
    path.write_bytes(encode_classes(hidden.targets[hidden.order]))
    assert hidden.judge(path) == 1.0
    path.write_bytes(encode_classes(hidden.targets))  # whoever counts positions knows nothing
    assert hidden.judge(path) < 0.5
    (tmp_path / "images.npy").write_bytes(hidden.encode_images())
    assert np.array_equal(np.load(tmp_path / "images.npy"), hidden.images[hidden.order])


def make_header(text):
    """A file of NumPy with this header, and eight bytes for each of 50 images."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(400)


RIGHT = encode_classes(make_hidden().targets[make_hidden().order])
ANSWERS = {
    "nothing": b"",
    "an archive that is none": b"PK\x03\x04" + bytes(999),
    "728 TiB": make_header(
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (100000000000000,), }"
    ),
    "a header nested without end": make_header(b"(" * 30_000),
    "one image too few": RIGHT[:-8],
    "one byte too many": RIGHT + b"0",
    "a gigabyte": b"",
    "a folder": "mkdir",
    "a pipe": "mkfifo",
    "a link to the right answers": "symlink",
    "a link to itself": "loop",
}


def put_answers(path, name):
    """What a recipe may leave where its answers are expected."""
    content = ANSWERS[name]
    if isinstance(content, bytes):
        path.write_bytes(content)
    if name == "a gigabyte":
        os.truncate(path, 2**30)  # holes, which take no room
    elif content == "mkdir":
        path.mkdir()
    elif content == "mkfifo":
        os.mkfifo(path)
    elif content == "symlink":
        path.with_name("elsewhere").write_bytes(RIGHT)
        path.symlink_to(path.with_name("elsewhere"))
    elif content == "loop":
        path.symlink_to(path)


@pytest.mark.parametrize("answers", ANSWERS)
def test_an_answer_that_is_none_is_refused(tmp_path, answers):
    put_answers(tmp_path / "predicted.npy", answers)
    with pytest.raises(CourseError, match="not one class for each image"):
        make_hidden().judge(tmp_path / "predicted.npy")


def test_an_unreadable_answer_is_refused(tmp_path, monkeypatch):
    """Rights taken away are no obstacle to an administrator, who may run this test."""

    def refuse(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    (tmp_path / "predicted").write_bytes(RIGHT)
    for name in ("open", "lstat", "stat"):
        monkeypatch.setattr(os, name, refuse)
    assert not is_regular(tmp_path / "predicted")
    with pytest.raises(CourseError, match="not one class for each image"):
        make_hidden().judge(tmp_path / "predicted")


def test_a_message_of_a_recipe_is_one_short_line_or_none(tmp_path):
    path = tmp_path / "failed.json"
    for text in ("[" * 10**5, '{"problem": 3}', '["problem"]', "9" * 10**4, "\ud800"):
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        assert not read_messages(path).get("problem")
    path.unlink()
    os.mkfifo(path)
    assert read_messages(path) == {}
    path.unlink()
    path.write_text(json.dumps({"problem": "x\n\x1b[31m" * 10**4}))
    with pytest.raises(CourseError) as found:
        run._raise_problem(tmp_path)
    assert len(str(found.value)) < 500
    assert str(found.value).isprintable()


def test_a_folder_goes_however_deep_a_recipe_has_nested_it():
    with disposable_folder() as folder:
        handle = os.open(folder, os.O_RDONLY)
        for _ in range(1200):
            os.mkdir("d", dir_fd=handle)
            inner = os.open("d", os.O_RDONLY, dir_fd=handle)
            os.close(handle)
            handle = inner
        os.close(handle)
    assert not folder.exists()


def test_the_order_is_another_one_each_time(data):
    one, other = HiddenSplit.open(data), HiddenSplit.open(data)
    assert not np.array_equal(one.order, other.order)
    assert one.digest() == other.digest()
    assert sorted(one.order) == list(range(len(one.targets)))


def test_a_recipe_gets_all_data_but_the_test_split(data, tmp_path):
    path = tmp_path / "data.npz"
    path.write_bytes(encode_data(data))
    copy = decode_data(path, json.loads(json.dumps(describe_data(data))))
    assert copy.describe() == data.describe()
    pairs = zip(data.train_loader(3), copy.train_loader(3), strict=True)
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in pairs)
    with pytest.raises(CourseError, match="opens the test split"):
        copy.open_test()
    assert not {"test_images", "test_targets"} & set(np.load(path))


def test_the_copy_of_the_package_holds_no_photographs():
    from course_tools.race.run import PACKAGE

    names = read_package(ROOT, PACKAGE)
    assert "course_utils/training/fit.py" in names
    assert not [name for name in names if "photos/" in name or name.endswith(".jpg")]


def test_bf16_networks_are_judged_too(data):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 8)).to(torch.bfloat16)
    assert classify(model, data, data.val.images).shape == (40,)


# The guard


def run_guarded(source, folder):
    """The output and exit status of Python code under the guard; it trains nothing."""
    code = f"""
from course_tools.race.guard import forbid
forbid([{str(folder)!r}], lambda sentence: print(sentence, flush=True))
try:
    {source}
except BaseException as error:
    print("caught", type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip(), done.returncode


def test_who_opens_the_hidden_images_is_ended(tmp_path):
    folder = (tmp_path / "hidden").resolve()
    folder.mkdir()
    (folder / "x.jpg").write_text("x")
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "hidden_not").mkdir()
    for source in (
        f"open({str(folder / 'x.jpg')!r})",
        f"open({str(tmp_path / 'link' / 'x.jpg')!r}, 'rb')",
        f"import os; os.listdir({str(folder)!r})",
        f"import os; os.open(os.fsencode({str(folder / 'x.jpg')!r}), 0)",
        f"import os; os.link({str(folder / 'x.jpg')!r}, {str(tmp_path / 'copy')!r})",
        f"import os; os.chdir({str(folder)!r}); open('x.jpg')",
    ):
        said, status = run_guarded(source, folder)
        assert said.startswith("it reads the race's own images"), source
        assert status == 3
    allowed = f"open({str(tmp_path / 'hidden_not' / 'mine.txt')!r}, 'w')"
    assert run_guarded(allowed, folder) == ("", 0)


def test_who_connects_to_a_network_is_ended(tmp_path):
    for source in (
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import socket; socket.socket().connect(('127.0.0.1', 9))",
        "import urllib.request as u; u.urlopen('http://127.0.0.1:9')",
    ):
        said, status = run_guarded(source, tmp_path)
        assert said.startswith("it uses the network"), source
        assert status == 3
    local = "import socket; socket.socket(socket.AF_UNIX).connect('/nothing/here')"
    assert run_guarded(local, tmp_path) == ("caught FileNotFoundError", 0)


def test_folders_of_hidden_images_are_known(tmp_path, monkeypatch, config):
    monkeypatch.setenv("COURSE_DATA_DIR", str(tmp_path / "cifar"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "mine").mkdir()
    found = list_forbidden(config.replace(dataset=str(tmp_path / "mine")))
    assert str(PHOTOS.resolve()) in found
    hidden = ("cifar/cifar-10-batches-py", "mine/train", "mine/test", "cache/course_utils/reduced")
    assert {str(tmp_path.resolve() / name) for name in hidden} <= set(found)
    assert str(tmp_path.resolve() / "mine") not in found, "it may hold more than images"


def test_folders_that_links_lead_to_are_hidden_too(tmp_path, config):
    image = tmp_path / "elsewhere" / "images" / "x.jpg"
    image.parent.mkdir(parents=True)
    image.touch()
    (tmp_path / "mine" / "test" / "cat").mkdir(parents=True)
    (tmp_path / "mine" / "test" / "cat" / "x.jpg").symlink_to(image)
    (tmp_path / "mine" / "test" / "dog").symlink_to(tmp_path / "elsewhere")
    found = list_forbidden(config.replace(dataset=str(tmp_path / "mine")))
    assert {str(image.parent.resolve()), str(tmp_path.resolve() / "elsewhere")} <= set(found)


# Places


def test_a_place_only_where_intervals_do_not_overlap():
    intervals = {"a": (0.6, 0.7), "b": (0.65, 0.75), "c": (0.1, 0.2)}
    assert find_places(intervals) == {"a": (1, 2), "b": (1, 2), "c": (3, 3)}
    assert find_places({}) == {}
    assert find_places({"a": (0.6, 0.7)}) == {"a": (1, 1)}
    touching = {"a": (0.6, 0.7), "b": (0.7, 0.8)}
    assert find_places(touching) == {"a": (1, 2), "b": (1, 2)}
    chain = {"a": (0.0, 0.4), "b": (0.3, 0.7), "c": (0.6, 1.0)}  # b overlaps with both
    assert find_places(chain) == {"a": (2, 3), "b": (1, 3), "c": (1, 2)}


def test_the_interval_is_that_of_students_t():
    low, high = mean_interval([0.5, 0.6, 0.7])
    half = 4.302652729696142 * 0.1 / 3**0.5
    assert (low, high) == pytest.approx((0.6 - half, 0.6 + half))
    assert mean_interval([0.5]) == (-np.inf, np.inf)
    assert mean_interval([0.5, 0.5]) == (0.5, 0.5)


# Rows


ROWS = (
    Row("slow", "1", (0.5, 0.51, 0.5), (9.0, 9.0, 9.0), (30, 30, 30)),
    Row("cheat", "2", problem="it reads"),
    Row("fast", "3", (0.7, 0.71, 0.7), (3.0, 3.0, 3.0), (10, 10, 10)),
)
SETTINGS = {"seeds": [0, 1, 2], "data": {"name": "x"}}


def test_rows_are_in_order_and_refused_ones_have_no_place():
    fast, slow, cheat = summarize_rows(ROWS)
    assert (fast["name"], fast["place"]) == ("fast", 1)
    assert (slow["name"], slow["place"]) == ("slow", 2)
    assert (cheat["name"], cheat["problem"]) == ("cheat", "it reads")
    assert "place" not in cheat
    both = (1.0, 1.0), (1, 1)
    near = (Row("one", "1", (0.5, 0.6), *both), Row("two", "2", (0.55, 0.6), *both))
    assert {row["place"] for row in summarize_rows(near)} == {None}
    (single,) = summarize_rows([Row("one", "1", (0.5,), (1.0,), (1,))])
    assert single["low"] is None
    assert single["high"] is None


def test_a_leaderboard_is_read_again_and_a_row_replaced(tmp_path):
    path = tmp_path / "new" / "leaderboard.json"
    board = read_leaderboard(path, SETTINGS)
    for row in ROWS:
        board = board.put(row)
    board.write(path)
    again = read_leaderboard(path, SETTINGS)
    assert sorted(again.rows, key=lambda row: row.name) == sorted(ROWS, key=lambda row: row.name)
    better = Row("slow", "4", (0.9, 0.9, 0.9), (9.0, 9.0, 9.0), (30, 30, 30))
    again.put(better).write(path)
    found = json.loads(path.read_text())
    assert [row["name"] for row in found["rows"]] == ["slow", "fast", "cheat"]
    assert found["hardware"]
    assert found["versions"]["torch"]


def test_rows_of_another_race_are_not_mixed(tmp_path):
    path = tmp_path / "leaderboard.json"
    Leaderboard(SETTINGS, ROWS).write(path)
    with pytest.raises(CourseError, match=r"another race \(seeds is \[0, 1, 2\], not \[0\]\)"):
        read_leaderboard(path, SETTINGS | {"seeds": [0]})
    damaged = ("", "[]", "{}", '{"settings": {}, "rows": [1]}', '{"settings": 1, "rows": []}')
    for text in (*damaged, "[" * 10**5, '{"settings": {}, "rows": 1}', "\ud800"):
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        with pytest.raises(CourseError, match=r"no leaderboard|another race"):
            read_leaderboard(path, SETTINGS)
    os.truncate(path, 2**40)  # holes, which take no room
    with pytest.raises(CourseError, match="no leaderboard"):
        read_leaderboard(path, SETTINGS)


@pytest.mark.parametrize(
    "changes",
    [
        {"accuracies": [0.5, float("nan"), 0.5]},
        {"accuracies": [0.5, 99.0, 0.5]},
        {"accuracies": [0.5, -0.1, 0.5]},
        {"accuracies": [10**400, 0.5, 0.5]},
        {"accuracies": ["0.5", "0.5", "0.5"]},
        {"accuracies": [True, True, True]},
        {"accuracies": [0.5] * 99, "times_s": [1.0] * 99},
        {"times_s": [9.0, float("inf"), 9.0]},
        {"times_s": [9.0, -1.0, 9.0]},
        {"times_s": [9.0]},
        {"steps": [30, 30]},
        {"steps": [30, -1, 30]},
        {"name": 3},
        {"problem": None},
    ],
    ids=str,
)
def test_a_row_that_no_race_has_measured_is_refused(tmp_path, changes):
    path = tmp_path / "leaderboard.json"
    Leaderboard(SETTINGS, ROWS).write(path)
    board = json.loads(path.read_text())
    board["rows"][1].update(changes)
    path.write_text(json.dumps(board))
    name = changes.get("name", "slow")
    with pytest.raises(CourseError, match=f"the row '{name}' is none that a race has measured"):
        read_leaderboard(path, SETTINGS)
    board["rows"][1] = board["rows"][0]
    path.write_text(json.dumps(board))
    with pytest.raises(CourseError, match="two rows of one name"):
        read_leaderboard(path, SETTINGS)


def _put_many(path, first, ready):
    ready.wait()
    for number in range(10):
        put_rows(path, SETTINGS, [Row(f"{first}{number}", "1", (0.5,) * 3, (1.0,) * 3, (1,) * 3)])


def test_two_races_add_their_rows_to_one_leaderboard(tmp_path):
    path = tmp_path / "leaderboard.json"
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(2)
    races = [context.Process(target=_put_many, args=(path, x, ready)) for x in "ab"]
    for process in races:
        process.start()
    for process in races:
        process.join()
    assert len(read_leaderboard(path, SETTINGS).rows) == 20


def test_a_leaderboard_without_rows_binds_no_later_race(tmp_path):
    path = tmp_path / "new" / "leaderboard.json"
    put_rows(path, SETTINGS)
    assert json.loads(path.read_text())["rows"] == []
    other = SETTINGS | {"seeds": [0]}
    assert read_leaderboard(path, other) == Leaderboard(other)


def test_a_table_says_whether_there_was_a_sandbox():
    for sandbox, word in ((True, "yes"), (False, "no")):
        table = Leaderboard(SETTINGS | {"sandbox": sandbox}, ROWS).make_table()
        assert table.columns[-1].header == "sandbox"
        assert list(table.columns[-1].cells) == [word] * 3


# Records


def put(board, name, accuracies, steps=30):
    """A leaderboard with one more row of three seeds."""
    row = Row(name, name, accuracies, (1.0,) * 3, (steps,) * 3)
    return board.put(row, f"# {name}")


def test_a_record_needs_a_lead_that_luck_rarely_gives():
    board = put(Leaderboard(SETTINGS), "first", (0.50, 0.60, 0.55))
    assert [(x.name, x.source, x.p) for x in board.records] == [("first", "# first", None)]
    assert put(board, "lucky", (0.52, 0.66, 0.54)).records == board.records
    assert put(board, "equal", (0.50, 0.60, 0.55)).records == board.records
    assert put(board, "worse", (0.40, 0.50, 0.45)).records == board.records
    refused = board.put(Row("cheat", "2", problem="it reads"))
    assert refused.records == board.records
    better = put(board, "better", (0.520, 0.622, 0.571))
    leads = [0.020, 0.022, 0.021]
    p = stats.ttest_1samp(leads, 0, alternative="greater").pvalue
    assert p < 0.01
    assert [x.name for x in better.records] == ["first", "better"]
    assert better.records[-1].p == pytest.approx(p)
    assert "p = 0.0" in better.records[-1].describe()


def test_a_lead_of_one_seed_is_no_record():
    board = Leaderboard(SETTINGS | {"seeds": [0]}).put(Row("a", "1", (0.1,), (1.0,), (3,)))
    assert board.put(Row("b", "2", (0.9,), (1.0,), (3,))).records == board.records


def test_a_record_of_steps_reaches_the_accuracy_in_fewer():
    board = Leaderboard(SETTINGS | {"reach": 0.8})
    assert put(board, "near", (0.80, 0.82, 0.79), 10).records == ()
    board = put(board, "first", (0.81, 0.811, 0.812), 300)
    assert board.records[-1].p < 0.01
    assert put(board, "better, slower", (0.90, 0.91, 0.905), 301).records == board.records
    assert put(board, "fast, worse", (0.79, 0.791, 0.792), 20).records == board.records
    found = put(board, "faster", (0.805, 0.806, 0.8055), 200).records
    assert [x.name for x in found] == ["first", "faster"]


def test_records_are_read_again_and_checked(tmp_path):
    path = tmp_path / "leaderboard.json"
    board = put(Leaderboard(SETTINGS), "first", (0.50, 0.60, 0.55))
    board.write(path)
    assert read_leaderboard(path, SETTINGS).records == board.records
    content = json.loads(path.read_text())
    for change in ({"accuracies": [0.5, 0.5]}, {"accuracies": [0.5, 7.0, 0.5]}, {"p": "small"}):
        damaged = content | {"records": [content["records"][0] | change]}
        path.write_text(json.dumps(damaged))
        with pytest.raises(CourseError, match="a record that no race has measured"):
            read_leaderboard(path, SETTINGS)


# Memory


def test_memory_is_that_of_all_processes_and_what_they_share_counts_once(tmp_path, monkeypatch):
    """One that maps 64 MiB with its child, and the child 64 MiB of its own."""
    source = f"""
import mmap, os, pathlib, time
shared = mmap.mmap(-1, 2**26)
shared.write(bytes(2**26))
if os.fork() == 0:
    shared.seek(0)
    shared.read()
    own = bytearray(os.urandom(2**26))
    pathlib.Path({str(tmp_path / "ready")!r}).touch()
time.sleep(600)
"""
    monkeypatch.setattr(run, "MEMORY_POLL_S", 0)
    with subprocess.Popen([sys.executable, "-c", source], start_new_session=True) as process:
        try:
            run._await(process, tmp_path, "ready", 9, 60, "late")
            held = measure_memory(process.pid)
            assert 2**27 < held < 3 * 2**26
            with pytest.raises(CourseError, match=r"than the race allows: 0\.1 GiB"):
                run._await(process, tmp_path, "trained", 0.1, 60, "late")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert measure_memory(process.pid) == 0


# Who takes part


def test_files_folders_and_ours_take_part(hand_in):
    alone = hand_in(GOOD, "mine.py")
    folder = alone.parent
    for name in ("ann/recipe.py", "bob/recipe.py", "_old.py", ".hidden.py", "bob/notes.txt"):
        hand_in(GOOD, name)
    names = [entry.name for entry in find_entries([str(folder), "lesson_12"])]
    ours = [f"lesson_12/{name}" for name in ("baseline", "from_backbone", "from_scratch")]
    assert names == ["ann/recipe", "bob/recipe", "mine", *ours]
    assert [entry.name for entry in find_entries([str(alone)])] == ["mine"]


def test_our_recipes_are_recipes(config):
    for entry in find_entries(["lesson_12"]):
        assert isinstance(load_recipe(entry.path)(config), dict)
        assert len(entry.sha256) == 64


def test_files_that_are_not_opened(hand_in):
    table = hand_in(f"ANSWERS = {'0' * MOST_BYTES}")
    link = table.with_name("link.py")
    link.symlink_to(table)
    os.mkfifo(table.with_name("pipe.py"))
    hand_in(GOOD, "folder.py/recipe.py")
    hand_in(GOOD, "ann/recipe.py")
    found = {entry.name: entry.problem for entry in find_entries([str(table.parent)])}
    assert "code only" in found["recipe"]
    assert "link" in found["link"]
    assert found["pipe"] == found["folder"] == "it is no file"
    assert found["ann/recipe"] == ""


def test_a_students_folder_that_cannot_be_read_is_said(hand_in, monkeypatch):
    """Rights taken away are no obstacle to an administrator, who may run this test."""
    path = hand_in(GOOD, "ann/recipe.py")
    hand_in(GOOD, "bob/recipe.py")
    list_visible = entries._list_visible

    def refuse(folder):
        if folder.name == "ann":
            raise PermissionError(errno.EACCES, "Permission denied")
        return list_visible(folder)

    monkeypatch.setattr(entries, "_list_visible", refuse)
    ann, bob = find_entries([str(path.parents[1])])
    assert (ann.name, ann.problem) == ("ann", "the folder cannot be read (Permission denied)")
    assert (bob.name, bob.problem) == ("bob/recipe", "")


def test_what_is_trained_is_what_was_read(hand_in):
    path = hand_in(GOOD)
    (entry,) = find_entries([str(path)])
    source = path.read_bytes()
    path.write_text("changed by another recipe")
    assert entry.source == source
    assert entry.sha256 == hashlib.sha256(source).hexdigest()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nothing.py"], "no recipe 'nothing.py': give a file that ends in .py, a folder"),
        (["lesson_99"], "or lesson_12"),
        (["{}/empty"], "has no recipes: expected"),
        (["{0}/class/recipe.py", "{0}/class"], "two recipes are called recipe: rename"),
    ],
)
def test_words_that_name_no_recipe(hand_in, tmp_path, words, sentence):
    hand_in(GOOD)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CourseError, match=sentence):
        find_entries([word.format(tmp_path) for word in words])


def test_hidden_images_without_targets_can_be_classified(data):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 8))
    images = Images(data.val.images[:5], data.val.targets[:5])
    assert len(classify(model, data, images.images)) == 5
