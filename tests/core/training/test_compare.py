import dataclasses
import multiprocessing
import os
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import EarlyStopping

from course_utils.errors import CourseError
from course_utils.results import read_records
from course_utils.training.compare import Comparison, compare
from course_utils.training.run import Run


def make_run(arm, seed, accuracy):
    metrics = {"val_accuracy": accuracy, "val_loss": 2 - accuracy, "val_calibration_error": 0.1}
    return Run(arm, seed, metrics, [], 1.0, 100.0, 10, 10, 1000, None, {}, {})


def make_comparison(**arms):
    seeds = tuple(range(len(next(iter(arms.values())))))
    runs = [
        make_run(a, s, v) for a, values in arms.items() for s, v in zip(seeds, values, strict=True)
    ]
    return Comparison("test", tuple(arms), seeds, tuple(runs))


@pytest.mark.parametrize(
    ("shift", "accuracy", "loss"), [(0.1, "helps", "helps"), (-0.1, "hurts", "hurts")]
)
def test_verdict_knows_which_direction_is_better(shift, accuracy, loss):
    base = [0.5, 0.52, 0.54]
    comparison = make_comparison(baseline=base, other=[x + shift + x / 100 for x in base])
    assert comparison.verdict("other").endswith(f": {accuracy}.")
    assert comparison.verdict("other", "val_loss").endswith(f": {loss}.")


def test_an_inconclusive_verdict_names_the_seeds_that_would_decide():
    comparison = make_comparison(baseline=[0.5, 0.6, 0.7], other=[0.53, 0.59, 0.76])
    found = comparison.difference("other")
    needed, (low, high) = found.seeds_needed(), found.seeds_range()
    assert comparison.judge("other") == "inconclusive"
    expected = f"inconclusive, about {needed} seeds would decide (95 % range {low} to {high})."
    assert comparison.verdict("other").endswith(expected)


def test_a_comparison_may_state_its_own_margin():
    narrow = make_comparison(baseline=[0.5, 0.6, 0.7], other=[0.515, 0.616, 0.714])
    assert narrow.judge("other") == "helps"
    wide = dataclasses.replace(narrow, margin=0.03)
    assert wide.judge("other") == "equivalent"
    # the margin is one of accuracy: these 0.015 nats stay inside the 0.02 of the loss
    assert dataclasses.replace(narrow, margin=0.001).judge("other", "val_loss") == "equivalent"


def test_table_holds_numbers_and_show_holds_dashes():
    comparison = make_comparison(baseline=[0.5, 0.6, 0.7], other=[0.51, 0.62, 0.71])
    table = comparison.table()
    assert table.loc["baseline", "accuracy (mean)"] == 60.0
    assert np.isnan(table.loc["baseline", "difference (points)"])
    assert table["difference (points)"].dtype == float
    assert table.loc["other", "difference (points)"] == pytest.approx(1.33)
    assert table.loc["baseline", "std"] == 10.0  # of a sample: divided by n - 1
    assert list(table["verdict"]) == ["baseline", "inconclusive"]
    assert comparison.show().loc["baseline", "difference (points)"] == "–"
    assert comparison.noise_floor() == pytest.approx(0.1)


def test_another_baseline():
    comparison = make_comparison(a=[0.5, 0.6, 0.7], b=[0.6, 0.71, 0.79], c=[0.5, 0.6, 0.7])
    turned = comparison.against("b")
    assert turned.arms == ("b", "a", "c")
    assert turned.difference("a").mean == -comparison.difference("b").mean
    with pytest.raises(CourseError, match="no variant 'd' here: choose from a, b, c"):
        comparison.against("d")


@pytest.mark.parametrize(
    ("metric", "margin", "expected"),
    [
        ("val_accuracy", None, "equivalent (±1 point)"),
        ("val_accuracy", 0.02, "equivalent (±2 points)"),
        ("val_accuracy", 0.005, "equivalent (±0.5 points)"),
        ("val_loss", 0.005, "equivalent (±0.02 nats)"),
        ("val_calibration_error", None, "equivalent (±1 point)"),
    ],
)
def test_equivalent_names_its_margin_wherever_it_is_shown(metric, margin, expected):
    comparison = make_comparison(baseline=[0.5, 0.6, 0.7], other=[0.5, 0.6, 0.7])
    comparison = dataclasses.replace(comparison, margin=margin)
    assert comparison.verdict("other", metric).endswith(f": {expected}.")
    assert comparison.show(metric).loc["other", "verdict"] == expected
    assert any(text.endswith(f": {expected}") for text in comparison.summarize("other"))
    assert comparison.judge("other", metric) == "equivalent"


def test_verdict_of_one_seed_says_so():
    comparison = make_comparison(baseline=[0.5], other=[0.9])
    assert "(one seed: no interval) points: inconclusive" in comparison.summarize("other").iloc[0]
    assert "inf" not in comparison.show().to_string() + comparison.summarize("other").to_string()
    assert "(1 paired seed, no interval): inconclusive." in comparison.verdict("other")
    assert np.isnan(comparison.noise_floor())


def test_compare_trains_every_variant_at_every_seed(tiny_config, tiny_data):
    config = tiny_config.replace(num_seeds=2, first_seed=3)
    short = dataclasses.replace(config, epochs=2)
    arms = {
        "baseline": {},
        "null": {"batch_transform": lambda x, t: (x, t)},
        "long": {"config": short},
    }
    comparison = compare(config, tiny_data, arms, name="null case")
    assert comparison.seeds == (3, 4)
    assert [(run.arm, run.seed) for run in comparison.runs] == [
        (arm, seed) for seed in (3, 4) for arm in arms
    ]
    assert np.array_equal(comparison.values("baseline"), comparison.values("null"))
    assert comparison.judge("null") == "equivalent"
    assert len(comparison.runs[2].history) == 2
    assert all(run.comparison == "null case" and run.model is None for run in comparison.runs)


@pytest.mark.parametrize(
    ("arms", "seeds"), [({}, [0]), ({"baseline": {}}, []), ({"b": {}}, [1, 1])]
)
def test_compare_refuses_nothing_and_twice(tiny_config, tiny_data, arms, seeds):
    with pytest.raises(CourseError, match="needs variants and different seeds"):
        compare(tiny_config, tiny_data, arms, seeds=seeds)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_transfrom": None}, "'third': fit has no option 'batch_transfrom': did you mean"),
        ({"seed": 3}, "'third': fit has no option 'seed'"),
        ({"trainer": {"max_epoch": 3}}, "no argument 'max_epoch': did you mean 'max_epochs'"),
        ({"trainer": {"max_epochs": 0}}, "'third': max_epochs=0 trains nothing"),
    ],
)
def test_a_wrong_option_of_the_last_variant_is_found_before_any_training(
    tiny_config, tiny_data, options, message
):
    with pytest.raises(CourseError, match=message):
        compare(tiny_config, tiny_data, {"first": {}, "second": {}, "third": options})
    assert read_records(Path(os.environ["COURSE_RUNS_DIR"]), "run") == []


@pytest.fixture(scope="module")
def spread(tiny_config, tiny_data):
    """A comparison, and what it gives one after the other with one thread."""
    config = tiny_config.replace(num_seeds=2, epochs=2)
    arms = {
        "baseline": {},
        "smoothing": {"loss": partial(F.cross_entropy, label_smoothing=0.1)},
        "stopping": {"trainer": {"callbacks": EarlyStopping("val_loss", mode="max")}},
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two threads add numbers up in another order
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # for the processes that the tests start
        yield (config, tiny_data, arms), compare(config, tiny_data, arms)
    torch.set_num_threads(threads)


def check_same(found, expected):
    assert [(run.arm, run.seed) for run in found.runs] == [
        (run.arm, run.seed) for run in expected.runs
    ]
    assert [run.history for run in found.runs] == [run.history for run in expected.runs]
    rows = read_records(Path(os.environ["COURSE_RUNS_DIR"]), "run")
    assert len(rows) == len(expected.runs)
    stopped = found.of_arm("stopping")[0].callback(EarlyStopping)
    assert stopped.wait_count == expected.of_arm("stopping")[0].callback(EarlyStopping).wait_count


def test_a_pool_of_processes_gives_the_same_runs_bit_for_bit(spread):
    arguments, expected = spread
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        check_same(compare(*arguments, executor=pool), expected)


@pytest.mark.nightly
def test_a_dask_cluster_gives_the_same_runs_bit_for_bit(spread, tmp_path):
    distributed = pytest.importorskip("distributed")
    arguments, expected = spread
    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=None,
        local_directory=str(tmp_path / "dask"),
    )
    with cluster, distributed.Client(cluster) as client:
        check_same(compare(*arguments, executor=client.get_executor()), expected)


class RunsAtOnce(Executor):
    """The simplest executor: `submit` does the work."""

    def submit(self, function, /, *arguments, **named):
        future = Future()
        try:
            future.set_result(function(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future


def test_a_training_that_fails_in_an_executor_is_reported(tiny_config, tiny_data):
    arms = {"baseline": {}, "nothing": {"make_loader": lambda data, seed: []}}
    with pytest.raises(CourseError, match="make_loader returned no batch"):
        compare(tiny_config, tiny_data, arms, executor=RunsAtOnce())


class FirstFails(Executor):
    """Fails the first training; the others wait, as in a pool with one process."""

    def __init__(self):
        self.futures = []

    def submit(self, function, /, *args, **options):
        self.futures.append(Future())
        if len(self.futures) == 1:
            self.futures[0].set_exception(CourseError("out of memory"))
        return self.futures[-1]


def test_after_a_failure_no_training_is_started_that_waits(tiny_config, tiny_data):
    executor = FirstFails()
    with pytest.raises(CourseError, match="out of memory"):
        compare(tiny_config, tiny_data, {"baseline": {}}, seeds=range(3), executor=executor)
    assert [future.cancelled() for future in executor.futures] == [False, True, True]


def test_summary_gives_every_metric_with_interval_and_verdict():
    found = make_comparison(off=[0.50, 0.60, 0.70], on=[0.60, 0.71, 0.79])
    summary = found.summarize("on")
    assert list(summary.index) == ["accuracy", "validation loss", "calibration error"]
    assert summary["accuracy"] == "+10.00 (+7.52 to +12.48) points: helps"
    assert summary["validation loss"].endswith("nats: helps")  # it falls by as much
    assert summary["calibration error"] == "+0.00 (+0.00 to +0.00) points: equivalent (±1 point)"
