"""Loops that agree, faults that do not, engines that lose nothing, and the text's numbers."""

import re
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch

from course_utils.errors import CourseError
from course_utils.results import STUDIES, read_file
from lesson_code.loops_and_engines import engines, extras, loops, overhead, who
from lesson_code.loops_and_engines.fastai_parts import train_parts, use_pytorch_parts
from lesson_code.loops_and_engines.faults import FAULTS, OTHER_RULES, SCALED, change_loop
from lesson_code.loops_and_engines.job import (
    FULL,
    INCOMPLETE,
    Job,
    find_gap,
    make_images,
    make_network,
    measure_loss,
)
from lesson_code.loops_and_engines.loops import LOOPS, PLAIN
from lesson_code.loops_and_engines.overhead import TOLERANCE
from lesson_code.loops_and_engines.plain import train_plain
from tests.places import ROOT

HALVED, CARRIED = OTHER_RULES
# The rule of each loop for a last group that is incomplete; None: divided by its own size.
RULES = {"Accelerate": HALVED, "Lightning": HALVED, "fastai": CARRIED}


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def stored():
    return overhead.Loops(read_file(STUDIES / "loops_and_engines/study.json"))


@pytest.fixture(scope="module")
def facts():
    return read_file(STUDIES / "loops_and_engines/study_extras.json")


@pytest.fixture(scope="module")
def text():
    notebook = nbformat.read(ROOT / "notebooks/23_loops_and_engines.ipynb", as_version=4)
    return "\n".join(cell.source for cell in notebook.cells)


def make_job(count=64, **changes):
    """Clipping changes some of its steps, so that a fault in it shows."""
    job = Job(make_network, *make_images(count), max_norm=0.55, lr=0.1)
    return replace(job, **changes)


# ---- Loops.

INSTALLED = LOOPS | {name: extras.EXTRAS[name] for name in extras.find_versions()}


@pytest.mark.parametrize("name", INSTALLED)
def test_a_loop_ends_with_the_plain_loops_weights(name):
    job = make_job()
    assert find_gap(INSTALLED[name](job), train_plain(job)) <= TOLERANCE


@pytest.mark.parametrize("name", INSTALLED)
def test_a_loop_follows_its_rule_for_the_last_group(name):
    job = make_job(56, max_norm=1e6)
    assert job.count_batches() % job.accumulate == 1
    changes = OTHER_RULES.get(RULES.get(name, ""), ())
    assert find_gap(INSTALLED[name](job), change_loop(*changes)(job)) <= TOLERANCE


def test_the_rules_differ():
    job = make_job(56, max_norm=1e6)
    models = [train_plain(job), *(change_loop(*x)(job) for x in OTHER_RULES.values())]
    gaps = [find_gap(one, other) for one in models for other in models if one is not other]
    assert min(gaps) > 1e-3


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_by_comparing_weights(name):
    """With a limit that clips some steps, or with one that clips all."""
    jobs = [make_job(), make_job(max_norm=0.3)]
    changed = change_loop(*FAULTS[name])
    assert max(find_gap(changed(job), train_plain(job)) for job in jobs) > 1e-3


def test_a_loss_scale_changes_nothing_if_the_gradient_is_unscaled_first():
    job = make_job()
    assert find_gap(change_loop(*SCALED)(job), train_plain(job)) == 0


def test_some_gradients_are_clipped_and_others_are_not(monkeypatch):
    norms, clip = [], torch.nn.utils.clip_grad_norm_

    def note(parameters, max_norm):
        norms.append(clip(parameters, max_norm).item())

    monkeypatch.setattr("lesson_code.loops_and_engines.plain.clip_grad_norm_", note)
    job = make_job()
    train_plain(job)
    assert min(norms) < job.max_norm < max(norms)


def test_a_patch_has_to_fit():
    with pytest.raises(ValueError, match="occurs 0 times"):
        change_loop("no such line", "")


def test_running_statistics_count_and_counters_do_not():
    one, other = make_network(), make_network()
    other[1].num_batches_tracked += 5
    assert find_gap(one, other) == 0
    other[1].running_mean += 0.25
    assert find_gap(one, other) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="two different networks"):
        find_gap(one, torch.nn.Linear(1, 1))


def test_the_loss_is_measured_without_a_trace():
    job, model = make_job(), make_network().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    measure_loss(model, job)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


# ---- Who does what.


def test_who_does_what():
    state = torch.get_rng_state()
    table = who.trace_all(LOOPS, make_job())
    assert torch.equal(torch.get_rng_state(), state)
    for name in (PLAIN, "Fabric", "Accelerate"):
        assert set(table[name].drop("seed the generator")) == {who.YOU}
    assert (table["transformers"] == who.LIBRARY).all()
    assert table["Lightning"]["train mode"] == who.NOBODY
    assert (table["Lightning"].iloc[2:] == who.LIBRARY).all()
    assert (table["Lightning, manual"].iloc[2:] == who.YOU).all()


def test_the_text_says_what_the_table_says(text):
    assert "The first row also shows who sets the [seed]" in text
    assert "And no line switches the network to train mode in Lightning" in text


# ---- Overhead.


def test_too_few_batches_are_refused():
    with pytest.raises(ValueError, match="take 22 or more"):
        overhead.time_loop(train_plain, 21)


def test_the_time_of_a_batch_is_measured():
    found = overhead.measure_overhead({PLAIN: train_plain}, rounds=2, batches=30)
    assert len(found[PLAIN]) == 2
    assert min(found[PLAIN]) > 1


def test_lines_are_counted():
    assert loops.count_code(make_job) == 4
    assert all(loops.count_lines(name) >= 18 for name in LOOPS)


# ---- Engines.


class Job1:
    def __init__(self, call, dies):
        self.call, self.dies = call, dies

    def result(self):
        if self.dies:
            raise InterruptedError
        return self.call()


def test_an_executor_starts_a_lost_job_again():
    fate = iter([True, False, False])
    with engines.JobExecutor(lambda call: Job1(call, next(fate)), 1, InterruptedError) as executor:
        assert [executor.submit(pow, 2, n).result() for n in (3, 4)] == [8, 16]


class Breaking(Executor):
    """Ends two calls, and breaks."""

    def __init__(self):
        self.count = 0

    def submit(self, function, /, *arguments, **options):
        self.count += 1
        future = Future()
        if self.count > 2:
            future.set_exception(BrokenExecutor())
        else:
            future.set_result(function(*arguments, **options))
        return future


def test_what_has_ended_is_not_trained_again():
    begun = []
    kept, opened = engines.train_all(range(5), lambda seed: begun.append(seed) or seed, Breaking)
    assert kept == {seed: seed for seed in range(5)}
    assert opened == 3
    assert len(begun) <= 6


def test_a_training_that_always_breaks_its_engine_ends_with_an_error():
    def open_broken():
        engine = Breaking()
        engine.count = 2
        return engine

    with pytest.raises(RuntimeError, match=r"3 engines broke, and seeds \[0, 1\] have no result"):
        engines.train_all(range(2), abs, open_broken)


def test_an_engine_that_is_not_installed_says_so(monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(CourseError, match="pip install submitit"):
        engines.open_engine("submitit")
    assert engines.describe_missing_engine("processes") == ""


def survive(name, folder, seeds):
    log, dies = Path(folder, "log"), engines.DieOnce(Path(folder, "died"))
    train = partial(engines.train_seed, log=log, dies=dies)
    kept, opened = engines.train_all(seeds, train, partial(engines.open_engine, name))
    assert dies.marker.exists()
    assert kept == {seed: engines.train_seed(seed, log) for seed in seeds}
    return opened


def test_processes_survive_a_kill(tmp_path):
    assert survive("processes", tmp_path, range(3)) == 2


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["processes", "submitit", "Ray"])
def test_forty_trainings_survive_a_kill(name, tmp_path):
    if missing := engines.describe_missing_engine(name):
        pytest.skip(missing)
    assert survive(name, tmp_path, range(40)) == (2 if name == "processes" else 1)


@pytest.mark.nightly
def test_a_dask_cluster_survives_a_kill_in_forty_trainings(tmp_path):
    pytest.importorskip("distributed")
    assert survive("Dask", tmp_path, range(40)) == 1


# ---- What is stored, and what the text says of it.


def test_all_loops_of_the_study_have_the_same_weights(stored):
    assert set(stored.names) == set(LOOPS) | set(extras.EXTRAS)
    assert stored.list_same(FULL) == stored.names
    differ = [name for name in stored.names if name not in stored.list_same(INCOMPLETE)]
    assert differ == list(RULES)


def test_the_first_result_says_what_was_measured(stored, text):
    added = {name: stored.added(name) for name in stored.names if name != PLAIN}
    assert "On this CPU each loop adds less than a millisecond to a batch" in text
    assert max(found.high for found in added.values()) < 1000
    assert "at most a few percent of a batch of eight photographs" in text
    assert max(found.mean for found in added.values()) / stored.real_batch_ms < 50  # 5 %
    assert "| fastai | you want its recipes for images and tables | most overhead;" in text
    assert max(added, key=lambda name: added[name].mean) == "fastai"


def test_the_prediction_has_the_plain_loops_time(stored, text):
    told = int(re.search(r"the plain loop itself takes about (\d+) µs", text)[1])
    assert told == pytest.approx(np.median(stored.batch_us(PLAIN)), rel=0.1)


def test_rounds_are_paired(stored):
    assert {len(stored.batch_us(name)) for name in stored.names} == {20}
    middle, low, high = stored.ratio("Lightning")
    assert 1 < low < middle < high
    assert np.isfinite(stored.table().isna().sum().sum())


def test_every_engine_gave_the_same(facts):
    assert set(facts["engines"]) == {"this process", *engines.ENGINES}
    for name, row in facts["engines"].items():
        if name != "this process":
            assert row["equal"]
        if "killed" in row:
            assert row["killed"]["equal"]
            assert row["killed"]["opened"] == (2 if name == "processes" else 1)
            assert row["killed"]["begun"] > 4


def test_fastai_and_wandb_did_what_the_text_says(facts):
    assert facts["fastai"]["gap"] <= 1e-5
    assert facts["wandb"] == {"files": [".wandb"], "steps": 4, "logged": True}


@pytest.mark.skipif(not find_spec("fastai"), reason="fastai is not installed")
def test_fastais_parts_are_those_of_pytorch():
    from lesson_code.loops_and_engines.fastai_parts import compare_fastai

    assert compare_fastai()["gap"] <= 1e-5


def test_pytorchs_parts_warm_up_and_train():
    loss, factor = use_pytorch_parts()
    assert [round(factor(step), 2) for step in (0, 5, 20)] == [0.04, 1.0, 0.0]
    images, targets = make_images(64)
    models = make_network().train(), train_parts(loss, factor)
    before, after = (loss(model(images), targets).item() for model in models)
    assert after < before


def test_no_default_is_told_wrongly(text):
    import transformers

    arguments = transformers.TrainingArguments("unused", use_cpu=True)
    assert arguments.max_grad_norm == 1.0
    assert arguments.train_sampling_strategy == "random"
    assert arguments.seed == 42
    assert "with 42 if you say nothing" in re.sub(r"\s+", " ", text)
