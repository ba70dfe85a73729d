"""Numbers in the text of lesson 20 about pipelines and degrees, against what is computed."""

import re

import nbformat
import pytest

from lesson_code.sharding import degrees, pipeline
from lesson_code.sharding.puzzles import PUZZLES
from lesson_code.sharding.simulator import simulate
from lesson_code.sharding.test_puzzles import pipeline as one_f_one_b
from tests.places import ROOT

LARGE = degrees.Transformer(layers=80, width=8192)


@pytest.fixture(scope="module")
def text():
    notebook = nbformat.read(ROOT / "notebooks" / "20_sharding.ipynb", as_version=4)
    return "\n".join(cell.source for cell in notebook.cells)


def predict(tensor):
    """Seconds of a step with ZeRO 3 over the other ranks, all texts of a replica at once."""
    split = degrees.Split(64 // tensor, tensor, zero=3, checkpointed=True)
    found = degrees.estimate(
        LARGE, degrees.Cluster(64), split, sequences=512, micro_batch=8 * tensor
    )
    assert found.bytes < 80e9
    return found.step_s


def test_the_fastest_degree_is_two_and_sixteen_is_several_times_slower(text):
    assert "Up to eight ranks, which is a node, the steps are nearly equally long" in text
    assert "two is the fastest degree" in text
    assert "With sixteen the all-reduces of every block leave the node" in text
    steps = {t: predict(t) for t in (1, 2, 4, 8, 16)}
    assert min(steps, key=steps.get) == 2
    assert max(steps[t] for t in (1, 2, 4, 8)) < 1.15 * steps[2]
    assert steps[16] > 3 * steps[2]


def test_zero_3_alone_is_nearly_as_fast_over_fast_links_and_slow_over_slow_ones(text):
    for words, link in {"Over fast links": 50e9, "Over 10 Gbit/s": 1.25e9}.items():
        cluster = degrees.Cluster(64, far_link=link)
        best = degrees.find_fastest(LARGE, cluster, sequences=512)
        zero_3 = [degrees.Split(64, zero=3, checkpointed=again) for again in (False, True)]
        alone = degrees.find_fastest(LARGE, cluster, sequences=512, splits=zero_3)
        assert alone.split.checkpointed, "without it the activations do not fit"
        found = re.search(rf"{words} (?:ZeRO 3 alone|it) needs (\d+) s in place of (\d+) s", text)
        assert found is not None
        assert [int(number) for number in found.groups()] == [
            round(x.step_s) for x in (alone, best)
        ]
    assert str(best.split) == "DP 2 · TP 8 · PP 4 · ZeRO-1"


def test_the_replicas_grow_as_the_text_says(text):
    assert "From 64 to 512 GPUs the number of replicas grows from 4 to 64." in text
    assert "From 512 to 4,096 it stays, and each replica gets 64 GPUs in place of 8." in text
    replicas = [
        degrees.find_fastest(LARGE, degrees.Cluster(n), sequences=4096).split.data
        for n in (64, 512, 4096)
    ]
    assert replicas == [4, 64, 64]


def test_the_bubbles_are_those_of_the_text(text):
    assert "for four stages, 75 % with one micro-batch and 27 % with eight" in text
    assert pipeline.predict_bubble(4, 1) == 0.75
    assert round(100 * pipeline.predict_bubble(4, 8)) == 27


def test_the_puzzle_has_the_limits_and_times_of_the_text(text):
    puzzle = PUZZLES["pipeline"]
    assert f"within {puzzle.most_time:g} units of time and {puzzle.most_bytes:,} bytes" in text
    ours = simulate(one_f_one_b, puzzle.task)
    all_first = simulate(lambda *sizes: one_f_one_b(*sizes, ahead=8), puzzle.task)
    one = simulate(lambda *sizes: one_f_one_b(*sizes, ahead=0), puzzle.task)
    pattern = (
        r"All forward passes first take (\S+) units here, even less than 1F1B with its (\S+), "
        r"because.*needs the least memory and (\S+) units"
    )
    said = re.search(pattern, text)
    assert [float(x) for x in said.groups()] == [all_first.time, ours.time, one.time]
    assert max(one.peak_bytes) < max(ours.peak_bytes) < max(all_first.peak_bytes)
    for name, words in {
        "data parallel": "in {:g} units of time and {:,} bytes, sending at most {:,} bytes",
        "sharded optimizer state": "in {:g} units and {:,} bytes, sending at most {:,}.",
        "fully sharded": "in {:g} units and {:,} bytes, sending at most {:,}.",
    }.items():
        limits = PUZZLES[name]
        said = words.format(limits.most_time, limits.most_bytes, limits.most_sent_bytes)
        assert said in text, name
    task = PUZZLES["data parallel"].task
    whole = 2 * 4 * task.width**2 * (task.ranks - 1) / task.ranks / task.bytes_per_time
    said = f"An all-reduce of a layer takes {whole:g} units of time, an all-gather or a reduce-sca"
    assert said in text
    assert f"an update of a shard {task.update_time / task.ranks:g}" in text
