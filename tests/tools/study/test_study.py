"""``course study`` on a study of a second: resumed, undisturbed, alone, and by its declaration."""

import json
import os
import signal
import subprocess
import sys

import filelock
import pytest

from course_tools.study import command
from course_tools.study.command import check_study, open_executor, run_study
from course_tools.study.declare import Regime, Study, load_study
from course_tools.study.study_file import StudyFile
from course_utils.config import load_config
from course_utils.errors import CourseError
from tests.places import ROOT

TOY = """
from functools import partial

import torch

from course_tools.study.declare import Regime, Study
from course_utils.config import load_config

CONFIG = load_config("smoke", dataset="shapes").replace(
    num_train=32, num_val=20, batch_size=16, progress=False
)


def smooth(logits, targets, amount):
    return torch.nn.functional.cross_entropy(logits, targets, label_smoothing=amount)


def tune(**options):
    return {
        f"lr {lr:g}": {"make_optimizer": partial(torch.optim.AdamW, lr=lr)} | options
        for lr in (0.001, 0.01)
    }


STUDY = Study(
    "Does smoothing help on a toy?",
    {
        "tiny": Regime(
            "Thirty-two drawings, because they take no time.",
            CONFIG,
            {"plain": tune(), "smooth": tune(loss=partial(smooth, amount=0.1))},
        )
    },
    seeds=(0, 1),
    search_seeds=(100,),
)
"""
TRAININGS = 2 * 2 + 2 * 2  # variants: trials at one search seed, the best at two seeds


def write_toy(folder, text=TOY):
    (folder / "toy").mkdir(parents=True, exist_ok=True)
    (folder / "toy" / "study.py").write_text(text)
    load_study.cache_clear()
    return folder


def read(folder):
    return json.loads((folder / "toy" / "study.json").read_text())


def read_measured(folder):
    """What has to be the same in every execution: not the seconds."""
    content = read(folder)
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in content["trainings"]]
    return rows, content.get("best")


@pytest.fixture
def toy(tmp_path):
    yield write_toy(tmp_path / "lessons")
    load_study.cache_clear()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = write_toy(tmp_path_factory.mktemp("undisturbed"))
    run_study("toy", folder=folder, say=lambda line: None)
    return folder


def test_every_variant_is_searched_and_its_best_trial_reported(undisturbed):
    rows, best = read_measured(undisturbed)
    assert len(rows) == TRAININGS
    for variant, trial in best["tiny"].items():
        of_variant = [row for row in rows if row["variant"] == variant]
        searched = {
            r["trial"]: r["metrics"]["val_accuracy"] for r in of_variant if r["seed"] == 100
        }
        assert set(searched) == {"lr 0.001", "lr 0.01"}
        assert searched[trial] == max(searched.values())
        assert [row["seed"] for row in of_variant if row["trial"] == trial] == [100, 0, 1]
    content = read(undisturbed)
    assert content["threads"] == 1
    assert set(content) >= {"question", "margin", "hardware", "versions", "commit", "command"}


def test_processes_give_the_same(undisturbed, toy):
    with open_executor(2) as executor:
        run_study("toy", executor, toy, say=lambda line: None)
    assert read_measured(toy) == read_measured(undisturbed)


def test_what_is_there_is_not_trained_again(undisturbed, toy, monkeypatch):
    path = toy / "toy" / "study.json"
    content = read(undisturbed)
    content["trainings"] = content["trainings"][:-1]
    path.write_text(json.dumps(content))
    said = []
    found = run_study("toy", folder=toy, say=said.append)
    assert len(said) == 1
    assert said[0].startswith("0 left: tiny, smooth, ")
    assert read_measured(toy) == read_measured(undisturbed)
    monkeypatch.setattr(command, "train", None)
    assert run_study("toy", folder=toy).rows == found.rows


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("0.1)", "0.2)", 4),  # an argument: the variant with smoothing is trained anew
        ("label_smoothing=amount", "label_smoothing=amount / 2", 4),  # code of a lesson
        ("num_val=20", "num_val=30", 8),
        ("seeds=(0, 1)", "seeds=(0, 1, 2)", 2),
        ("a toy?", "this toy?", 0),
        ("import torch\n", "import torch  # of PyTorch\n", 0),
    ],
)
def test_trainings_of_another_declaration_are_not_mixed_in(undisturbed, toy, old, new, left):
    (toy / "toy" / "study.json").write_text(json.dumps(read(undisturbed)))
    assert TOY.count(old) == 1
    write_toy(toy, TOY.replace(old, new))
    assert StudyFile("toy", toy).count_left() == left


def test_two_at_once_are_refused(toy):
    with (
        filelock.FileLock(toy / "toy" / ".study.lock"),
        pytest.raises(CourseError, match="another process trains the study toy: wait for it"),
    ):
        run_study("toy", folder=toy)


def test_a_training_that_fails_leaves_the_others(undisturbed, toy, monkeypatch):
    trained, train = [], command.train

    def fail_third(training, folder):
        trained.append(training)
        if len(trained) == 3:
            raise CourseError("no memory")
        return train(training, folder)

    monkeypatch.setattr(command, "train", fail_third)
    with pytest.raises(CourseError, match="no memory"):
        run_study("toy", folder=toy, say=lambda line: None)
    assert len(read(toy)["trainings"]) == 2
    assert "best" not in read(toy)
    monkeypatch.setattr(command, "train", train)
    run_study("toy", folder=toy, say=lambda line: None)
    assert read_measured(toy) == read_measured(undisturbed)


def test_one_training_is_checked_against_today(undisturbed, toy):
    (toy / "toy" / "study.json").write_text(json.dumps(read(undisturbed)))
    assert check_study("toy", toy).count("%") == 2
    content = read(undisturbed)
    for row in content["trainings"]:
        row["metrics"]["val_accuracy"] += 0.5
    (toy / "toy" / "study.json").write_text(json.dumps(content))
    with pytest.raises(CourseError, match=r"stored, .* today: find what has changed"):
        check_study("toy", toy)


def test_nothing_to_check_is_said(toy):
    with pytest.raises(CourseError, match="study toy: nothing of it is trained"):
        check_study("toy", toy)


def test_an_unknown_study_is_named(toy):
    with pytest.raises(CourseError, match=r"no study 'tay': did you mean toy\?"):
        load_study("tay", toy)


@pytest.mark.parametrize(
    ("variants", "options", "message"),
    [
        ({"one": {"a": {}}}, {}, "a study compares two variants or more"),
        (
            {"one": {"a": {}}, "two": {"a": {}, "b": {}}},
            {},
            "give each variant equally many trials",
        ),
        ({"one": {}, "two": {}}, {}, "give each variant equally many trials"),
        ({"one": {"a": {}}, "two": {"a": {}}}, {"seeds": (0, 100)}, r"seeds \[100\] are searched"),
    ],
)
def test_an_unfair_declaration_is_refused(variants, options, message):
    regime = Regime("Nothing.", load_config("smoke"), variants)
    with pytest.raises(CourseError, match=message):
        Study("Is it fair?", {"a regime": regime}, **options)


def test_no_cluster_is_said_in_one_line():
    said = pytest.raises(CourseError, match=r"--dask tcp://127\.0\.0\.1:9: no scheduler answers")
    with said, open_executor(2, "tcp://127.0.0.1:9"):
        pass


SCRIPT = """
import sys
from pathlib import Path
from course_tools.study.command import open_executor, run_study
if __name__ == "__main__":
    with open_executor(2) as executor:
        run_study("toy", executor, Path(sys.argv[1]), say=lambda line: print(line, flush=True))
"""


@pytest.mark.faults
def test_kills_change_nothing(undisturbed, toy, tmp_path, request):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command_line = [sys.executable, str(script), str(toy)]
    variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for _ in range(10 if request.config.option.nightly else 2):
        process = subprocess.Popen(command_line, env=variables, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()  # a training has ended, or all of them had
        process.send_signal(signal.SIGKILL)
        process.wait()
        if not line:
            break
    subprocess.run(command_line, env=variables, check=True, stdout=subprocess.DEVNULL)
    assert read_measured(toy) == read_measured(undisturbed)


@pytest.mark.faults
def test_workers_end_with_the_process_that_started_them(toy, tmp_path):
    import psutil

    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command_line = [sys.executable, str(script), str(toy)]
    process = subprocess.Popen(command_line, env=variables, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2
    process.kill()
    process.wait()
    gone, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []
    assert len(gone) == len(workers)
