"""A search that was interrupted goes on where it stopped."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from course_tools.study.jobs import run_missing

JOBS = [{"lr": lr, "seed": seed} for lr in (0.1, 0.2) for seed in (0, 1)]


def measure(job):
    return job | {"accuracy": job["lr"] + job["seed"]}


def refuse(job):
    raise AssertionError(f"{job} was run again")


def test_every_job_runs_once_and_has_a_row(tmp_path):
    path = tmp_path / "build" / "done.jsonl"
    rows = run_missing(iter(JOBS), measure, path)
    assert rows == [measure(job) for job in JOBS]
    assert run_missing(JOBS, refuse, path) == rows


def test_an_interruption_loses_the_running_job_alone(tmp_path):
    path, ran = tmp_path / "done.jsonl", []

    def interrupt(job):
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(job)
        return measure(job)

    with pytest.raises(KeyboardInterrupt):
        run_missing(JOBS, interrupt, path)
    again = []
    rows = run_missing(JOBS, lambda job: again.append(job) or measure(job), path)
    assert again == JOBS[2:]
    assert rows == [measure(job) for job in JOBS]


def test_rows_of_other_jobs_stay_in_the_file_and_are_not_returned(tmp_path):
    path = tmp_path / "done.jsonl"
    run_missing(JOBS, measure, path)
    new = [{"lr": 0.4, "seed": 0}]
    assert run_missing(new, measure, path) == [measure(new[0])]
    assert len(path.read_text().splitlines()) == 5
    with pytest.raises(AssertionError, match="was run again"):  # an entry more is another job
        run_missing([JOBS[0] | {"part": "report"}], refuse, path)


def test_no_jobs_is_no_error(tmp_path):
    assert run_missing([], refuse, tmp_path / "done.jsonl") == []


def test_several_jobs_at_once_give_the_same_rows(tmp_path):
    path = tmp_path / "done.jsonl"
    with ThreadPoolExecutor(3) as pool:
        rows = run_missing(JOBS, measure, path, pool)
        assert sorted(rows, key=str) == sorted(map(measure, JOBS), key=str)
        assert run_missing(JOBS, refuse, path, pool) == rows


def test_a_failure_starts_no_waiting_job(tmp_path):
    ran, has_raised = [], threading.Event()

    def fail_at_first(job):
        ran.append(job)
        if len(ran) == 1:
            raise OSError("no space left")
        has_raised.wait(timeout=60)  # what the pool takes up before the failure is seen

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(OSError, match="no space left"):
            run_missing(JOBS * 50, fail_at_first, tmp_path / "done.jsonl", pool)
        has_raised.set()
    assert len(ran) <= 2


def test_a_file_that_cannot_be_written_starts_no_waiting_job(tmp_path):
    ran, path = [], tmp_path / "done.jsonl"

    def block_the_file(job):
        ran.append(job)
        path.mkdir(exist_ok=True)
        if len(ran) > 1:
            time.sleep(1)  # the pool takes it up before the failure is seen
        return measure(job)

    with pytest.raises(IsADirectoryError), ThreadPoolExecutor(1) as pool:
        run_missing(JOBS, block_the_file, path, pool)
    assert len(ran) <= 2
