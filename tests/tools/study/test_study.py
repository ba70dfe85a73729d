"""``course study`` on a study of a second: resumed, undisturbed, alone, and by its declaration."""

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import filelock
import numpy as np
import pytest

from course_tools.study import command, declare, study_file
from course_tools.study.command import Workers, check_study, open_workers, run_study
from course_tools.study.declare import Regime, Study, find_studies, load_study
from course_tools.study.study_file import StudyFile
from course_tools.study.trainings import train
from course_utils.config import load_config
from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.measure.provenance import describe_hardware
from course_utils.study_results import read_study
from tests.places import ROOT
from tests.tools.conftest import assert_one_line
from tests.tools.study.toy_study import TOY, list_toy, make_row, write_toy

TRAININGS = 2 * 2 + 2 * 2  # variants: trials at one search seed, the best at two seeds


def read(folder):
    return json.loads((folder / "toy" / "study.json").read_text())


def read_measured(folder):
    """What has to be the same in every execution: not the seconds."""
    content = read(folder)
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in content["trainings"]]
    return rows, content["best"]


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


def test_a_training_that_two_variants_share_is_kept_for_both(tmp_path):
    text = TOY.replace('"smooth": tune(loss=partial(smooth, amount=0.1))', '"again": tune()')
    found = StudyFile("toy", write_toy(tmp_path / "lessons", text))
    first, other = (x for x in found.declared if (x.trial, x.seed) == ("lr 0.001", 100))
    found.add(make_row(first), describe_hardware())
    assert other not in found.list_missing()
    assert found.rows[other].variant == "again"
    assert set(StudyFile("toy", tmp_path / "lessons").rows) == {first, other}
    load_study.cache_clear()


def test_processes_give_the_same(undisturbed, toy):
    with open_workers(2) as workers:
        run_study("toy", workers, toy, say=lambda line: None)
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
    assert StudyFile("toy", toy).count_left() == {"tiny": left}


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
    assert read(toy)["best"] is None
    monkeypatch.setattr(command, "train", train)
    run_study("toy", folder=toy, say=lambda line: None)
    assert read_measured(toy) == read_measured(undisturbed)


def fill_disk(monkeypatch, num_writes):
    """From now on there is room for so many more writes of a study."""
    written = []

    def write(path, text):
        written.append(path)
        if len(written) > num_writes:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write_atomically(path, text)

    monkeypatch.setattr(study_file, "write_atomically", write)


FULL = (
    r"cannot write .*study\.json \(No space left on device\): make room there, and go on with "
    r"`course study toy`; the trainings in it are kept$"
)


def test_a_full_disk_keeps_what_was_trained_before(toy, monkeypatch, course):
    def train(training, folder):
        return make_row(training)

    monkeypatch.setattr(command, "train", train)
    monkeypatch.setattr(declare, "load_study", partial(load_study, folder=toy))
    monkeypatch.setattr(command, "run_study", partial(run_study, folder=toy))
    with monkeypatch.context() as patch:
        fill_disk(patch, num_writes=3)
        assert_one_line(course("study", "toy", "--jobs", "1"), FULL)
    assert len(read(toy)["trainings"]) == 3
    status, out, _ = course("study", "toy", "--jobs", "1")
    assert status == 0
    assert out.count(", seed ") == TRAININGS - 3
    assert read_study("toy", toy).is_complete()


def test_a_full_disk_starts_no_training_that_waits(toy, monkeypatch):
    ran = []

    def train(training, folder):
        ran.append(training)
        if len(ran) > 1:
            time.sleep(1)  # the pool takes it up before the failure is seen
        return make_row(training)

    monkeypatch.setattr(command, "train", train)
    fill_disk(monkeypatch, num_writes=0)
    with pytest.raises(CourseError, match=FULL), ThreadPoolExecutor(1) as pool:
        run_study("toy", Workers(pool, 1, describe_hardware()), toy)
    assert len(ran) <= 2


def test_a_process_that_ends_is_one_line(toy):
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=os._exit)
    with pool, pytest.raises(CourseError, match="perhaps for lack of memory: what is trained is"):
        run_study("toy", Workers(pool, 1, describe_hardware()), toy)


def test_a_training_that_diverges_is_kept_and_said(toy):
    write_toy(toy, TOY.replace("smoothing=amount)", "smoothing=amount) * float('nan')"))
    said = []
    run_study("toy", folder=toy, say=said.append)
    assert "NaN" not in (toy / "toy" / "study.json").read_text()
    assert len([line for line in said if ": diverged in " in line]) == TRAININGS / 2
    study = read_study("toy", toy)
    assert np.isnan(study.values("tiny", "smooth", "val_loss")).all()
    assert np.isfinite(study.values("tiny", "smooth")).all()  # it answers the first class
    assert study.table("tiny")["seeds"].tolist() == [2, "2, 2 diverged"]
    assert StudyFile("toy", toy).is_current()  # it can be read again
    assert run_study("toy", folder=toy, say=said.append).list_missing() == []


def test_a_trial_that_diverged_is_worse_than_any_that_did_not(toy):
    found = StudyFile("toy", toy)
    first, second = list_toy(toy, variant="plain", seed=100)
    found.add(make_row(first, accuracy=0.9, loss=None), describe_hardware())
    found.add(make_row(second, accuracy=0.1), describe_hardware())
    assert found.choose_best()["tiny"] == {"plain": "lr 0.01", "smooth": "lr 0.001"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"plain": tune()', '"bare": tune()'),
        ("a toy?", "this toy?"),
        ("    seeds=(0, 1)", "    margin=0.05,\n    seeds=(0, 1)"),
        (
            '"plain": tune(), "smooth": tune(loss=partial(smooth, amount=0.1))',
            '"smooth": tune(loss=partial(smooth, amount=0.1)), "plain": tune()',
        ),
    ],
    ids=["name", "question", "margin", "order"],
)
def test_a_declaration_that_needs_no_training_is_written(undisturbed, toy, old, new, monkeypatch):
    path = toy / "toy" / "study.json"
    path.write_text((undisturbed / "toy" / "study.json").read_text())
    assert StudyFile("toy", toy).is_current()
    assert TOY.count(old) == 1
    write_toy(toy, TOY.replace(old, new))
    assert not StudyFile("toy", toy).is_current()
    monkeypatch.setattr(command, "train", None)
    assert run_study("toy", folder=toy).is_current()
    written, before = read_study("toy", toy), read_study("toy", undisturbed)
    declared = load_study("toy", toy)
    variants = list(declared.regimes["tiny"].variants)
    assert (written.question, written.margin) == (declared.question, declared.margin)
    assert written.table("tiny").index.tolist() == variants
    assert (
        written.values("tiny", variants[0]).tolist()
        == before.values("tiny", variants[0].replace("bare", "plain")).tolist()
    )
    assert (written.made, written.commit) == (before.made, before.commit)


def test_what_is_stored_is_what_is_declared():
    for name in find_studies():
        found = StudyFile(name)
        assert sum(found.count_left().values()) == 0, f"run `course study {name}`"
        assert found.is_current(), f"run `course study {name}`"


def test_a_worker_with_another_declaration_is_refused(toy):
    training = replace(list_toy(toy)[0], key="of another one")
    with pytest.raises(CourseError, match="or is another one on the machine of a worker: run"):
        train(training, toy)


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


def declare_finder(untuned, **trials):
    variants = {"search": {"a": {}, "b": {}}, "finder": {"a": {}} | trials}
    regime = Regime("Nothing.", load_config("smoke"), variants, untuned=frozenset(untuned))
    return Study("Is a search needed?", {"a regime": regime})


def test_a_variant_without_a_choice_says_so():
    assert declare_finder(["finder"]).regimes["a regime"].untuned == {"finder"}
    for untuned, trials in ((["finder"], {"b": {}}), (["search"], {}), (["found"], {})):
        with pytest.raises(CourseError, match="give each untuned variant one trial"):
            declare_finder(untuned, **trials)


def test_no_cluster_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr(command, "SCHEDULER_LIMIT_S", 1)
    said = pytest.raises(CourseError, match=r"--dask tcp://127\.0\.0\.1:9: no scheduler answers")
    with said, open_workers(2, "tcp://127.0.0.1:9"):
        pass


@pytest.fixture
def start_cluster(tmp_path):
    """Starts a cluster of Dask on this machine, of processes with one thread each."""
    distributed = pytest.importorskip("distributed")
    return partial(
        distributed.LocalCluster,
        threads_per_worker=1,
        dashboard_address=None,
        local_directory=str(tmp_path / "dask"),
    )


@pytest.mark.nightly  # two workers import for half a minute; that of `compare` is in make test
def test_a_dask_cluster_gives_the_same_study(undisturbed, toy, start_cluster):
    said = []
    with (
        start_cluster(n_workers=2) as cluster,
        open_workers(1, cluster.scheduler_address) as workers,
    ):
        assert workers.jobs == 2
        run_study("toy", workers, toy, say=said.append)
    assert len(said) == TRAININGS
    assert read_measured(toy) == read_measured(undisturbed)
    assert read(toy)["hardware"] == describe_hardware()


def test_a_dask_cluster_without_workers_is_said(start_cluster):
    with start_cluster(n_workers=0) as cluster:
        said = pytest.raises(CourseError, match="it has no worker: wait for the first one")
        with said, open_workers(1, cluster.scheduler_address):
            pass


SCRIPT = """
import sys
from pathlib import Path
from course_tools.study.command import open_workers, run_study
if __name__ == "__main__":
    with open_workers(2) as workers:
        run_study("toy", workers, Path(sys.argv[1]), say=lambda line: print(line, flush=True))
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
