"""How latencies are measured, and the sentences about them."""

import time

import pytest
import torch

from lesson_code.deployment.latency import WARM_UP, Latencies, list_latencies


def make_waiting(seconds, calls):
    def wait(x):
        calls.append((seconds, torch.get_num_threads(), torch.is_inference_mode_enabled()))
        time.sleep(seconds)
        return x

    return wait


def test_networks_take_turns_and_the_first_calls_do_not_count():
    calls, before = [], torch.get_num_threads()
    networks = {"slow": make_waiting(0.01, calls), "fast": make_waiting(0.0, calls)}
    found = list_latencies(networks, dict.fromkeys(networks, torch.ones(1)), 6, threads=2)
    assert {name: len(ms) for name, ms in found.items()} == {"slow": 6, "fast": 6}
    assert (found["slow"] >= 9.9).all()
    assert len(calls) == 2 * (6 + WARM_UP)
    assert all(threads == 2 and is_inference for _, threads, is_inference in calls)
    order = [seconds for seconds, _, _ in calls]
    turns = list(zip(order[::2], order[1::2], strict=True))
    assert all(set(turn) == {0.01, 0.0} for turn in turns)
    assert len(set(turns)) == 2, "the order changes"
    assert torch.get_num_threads() == before


def test_threads_are_given_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        list_latencies({"bad": lambda x: 1 / 0}, {"bad": torch.ones(1)}, 1, threads=before + 1)
    assert torch.get_num_threads() == before


def make_study(fp32, int8, batch=1):
    rows = [
        {
            "kind": "texts",
            "form": form,
            "threads": 1,
            "batch": batch,
            "ms": {"50": ms, "95": 2 * ms},
        }
        for form, ms in (("fp32", fp32), ("int8", int8))
    ]
    about = {"calls": 3000, "hardware": {"cpu": "a CPU"}, "made": "2026-11-29", "load": 1.5}
    return about | {"rows": rows, "busy": False}


def test_sentences_say_what_was_found():
    study = make_study(3.0, 1.0)
    found = Latencies(study)
    assert found.find_speed_up("texts") == 3
    said = "texts, 1 thread, p50: 3.00 ms in fp32, 1.00 in int8, 3.0 times as fast"
    assert found.describe("texts") == said
    assert "p95: 6.00 ms in fp32" in found.describe("texts", 95)
    slower = Latencies(make_study(1.0, 2.0)).describe("texts")
    assert slower.endswith("slower, 2.0 times as long")
    for near in (0.95, 1.05):
        assert Latencies(make_study(1.0, near)).describe("texts").endswith("about as fast")
    assert found.describe_provenance() == "3,000 calls of each network; a CPU; 2026-11-29"
    busy = Latencies(study | {"busy": True}).describe_provenance()
    assert busy.endswith("other programs used 1.5 cores beside it")


def test_batches_are_read_in_order():
    study = make_study(3.0, 1.0, batch=2)
    study["rows"] += make_study(2.0, 0.5)["rows"]
    assert Latencies(study).list_batches("texts", "fp32") == ([1, 2], [2.0, 3.0])
