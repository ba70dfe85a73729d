"""The text of lesson 09 against the stored rounds, and what its modules compute in one process."""

import itertools
import re

import nbformat
import numpy as np
import pytest
import torch
from torch import nn

from course_tools.study.lesson_code import read_definitions
from course_utils.measure.paired import paired_difference
from course_utils.results import STUDIES, read_file
from lesson_code.ddp.contrast import PAIRS, contrast, make_views, read_gradient
from lesson_code.ddp.local_sgd import average_heads, train_local
from lesson_code.ddp.small import build
from tests.places import ROOT

FEWEST_ROUNDS = 12  # fewer are a trial, about which the text says nothing


@pytest.fixture(scope="module")
def text():
    notebook = nbformat.read(ROOT / "notebooks" / "09_ddp.ipynb", as_version=4)
    return "\n".join(cell.source for cell in notebook.cells)


# ---- The stored rounds.


@pytest.fixture(scope="module")
def stored():
    return read_file(STUDIES / "ddp/study_speed.json")


@pytest.fixture(scope="module")
def per_minute(stored):
    """Trainings per minute of each round, by way."""
    found = {}
    for row in sorted(stored["rows"], key=lambda row: row["round"]):
        found.setdefault(row["way"], []).append(60 * stored["trainings"] / row["seconds"])
    found = {way: np.array(values) for way, values in found.items()}
    if len(found["DDP"]) < FEWEST_ROUNDS:
        pytest.skip("the stored rounds are a trial")
    return found


def test_each_round_has_all_ways_and_seeds_of_its_own(stored):
    rows = stored["rows"]
    ways = {row["way"] for row in rows}
    assert ways == {"DDP", "one per device", "one after the other"}
    pairs = {(row["round"], row["way"]) for row in rows}
    assert len(pairs) == len(rows) == len(ways) * len({row["round"] for row in rows})
    seeds = [seed for row in rows if row["way"] == "DDP" for seed in row["seeds"]]
    assert len(set(seeds)) == len(seeds) == stored["trainings"] * len(rows) / len(ways)


def test_the_study_is_what_the_text_says(stored, text):
    assert f"on {stored['num_train']} photographs. Each round ran two trainings" in text
    assert stored["trainings"] == stored["processes"] == 2


def test_b_finishes_most_and_ddp_fewest_and_the_order_is_decided(per_minute, text):
    assert "B finishes the most trainings, then C, then A." in text
    assert "B finishes the most, C fewer and A the fewest." in text
    assert "because no interval over the rounds contains 1" in text
    order = ("one per device", "one after the other", "DDP")
    for way, other in itertools.combinations(order, 2):
        ratio = paired_difference(np.log(per_minute[other]), np.log(per_minute[way]))
        assert ratio.low > 0, (way, other)


def test_sending_does_not_explain_a_step_of_ddp(stored, per_minute, text):
    assert "here into a third part that neither of them explains" in text
    steps = stored["epochs"] * (stored["num_train"] // stored["batch_size"])
    step_s = 60 / per_minute["DDP"].mean() / steps
    alone = [
        x for row in stored["rows"] if row["way"] == "one per device" for x in row["examples_per_s"]
    ]
    compute_s = stored["batch_size"] / stored["processes"] / np.median(alone)
    send_s = 4 * stored["parameters"] / stored["gloo_bytes_per_s"]  # two ranks: the gradient once
    assert step_s - compute_s - send_s > 0.1 * step_s


# ---- A loss across ranks: one process plays all of them.


def find_gradient(compute_loss):
    model = build()
    loss = compute_loss(*model(torch.cat(make_views())).chunk(2))
    loss.backward()
    return loss.item(), read_gradient(model)


def play_ranks(compute_loss, size=2):
    """The mean loss of all ranks, as DDP takes its gradient; each knows its own rows."""
    parts = [slice(r * PAIRS // size, (r + 1) * PAIRS // size) for r in range(size)]
    return lambda a, b: sum(compute_loss(a, b, part) for part in parts) / size


def put_back(rows, own):
    fixed = rows.detach()
    return torch.cat([fixed[: own.start], rows[own], fixed[own.stop :]])


WAYS = {
    "as it is": lambda a, b, own: contrast(a[own], b.detach(), own.start),
    "put back": lambda a, b, own: contrast(a[own], put_back(b, own), own.start),
    "all rows": lambda a, b, own: contrast(put_back(a, own), put_back(b, own)),
    "with gradient": lambda a, b, own: contrast(a[own], b, own.start),
}


def test_how_far_off_a_gradient_without_the_other_ranks_is(text):
    loss, right = find_gradient(contrast)
    found = {}
    for name, compute_loss in WAYS.items():
        value, gradient = find_gradient(play_ranks(compute_loss))
        assert value == pytest.approx(loss)
        found[name] = 100 * ((gradient - right).norm() / right.norm()).item()
    assert "Three ways have the right loss and a wrong gradient." in text
    assert f"Without a gradient through the gather it is off by {found['as it is']:.0f} %" in text
    assert f"with the rank's own rows put back by {found['put back']:.0f} %" in text
    assert found["with gradient"] < 1e-6


def test_a_loss_of_all_rows_on_every_rank_needs_the_world_size():
    _, right = find_gradient(contrast)
    for size in (2, 3):
        _, gradient = find_gradient(play_ranks(WAYS["all rows"], size))
        torch.testing.assert_close(size * gradient, right)


# ---- What the lesson defines.


@pytest.fixture(scope="module")
def lesson():
    return read_definitions("09_ddp")


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_ring_ends_with_all_sums_everywhere_and_no_part_is_added_twice(lesson, size):
    states = list(lesson["ring_states"](size))
    assert len(states) == 1 + 2 * (size - 1)
    assert (states[-1] == size).all()
    assert max(state.max() for state in states) == size


def test_each_rank_and_run_draws_numbers_of_its_own(lesson):
    seeds = {lesson["seed_of_rank"](seed, rank) for seed in range(10) for rank in range(10)}
    assert len(seeds) == 100


def test_heads_are_averaged_in_place():
    heads = [nn.Linear(3, 2) for _ in range(4)]
    mean = torch.stack([head.weight.data for head in heads]).mean(dim=0)
    average_heads(heads)
    for head in heads:
        torch.testing.assert_close(head.weight.data, mean)


def test_with_one_rank_the_period_makes_no_difference():
    generator = torch.Generator().manual_seed(0)
    shard = torch.randn(40, 5, generator=generator), torch.arange(40) % 3
    heads = [train_local([shard], 3, period, seed=1, seeds=[2]) for period in (1, 16)]
    torch.testing.assert_close(heads[0][0].weight, heads[1][0].weight)


def test_modules_that_the_text_names_are_there(text):
    named = set(re.findall(r"[Tt]he module `(\w+)`", text))
    assert named == {"contrast", "counts", "job", "shared", "sharing"}
    for name in named:
        assert (ROOT / "lesson_code" / "ddp" / f"{name}.py").is_file()
