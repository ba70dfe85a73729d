"""The text of lesson 10 against the stored measurement, and what its modules compute."""

import re
import shutil
from functools import partial

import nbformat
import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from course_tools.study.lesson_code import read_definitions
from course_utils.measure.memory import count_saved_bytes
from course_utils.results import STUDIES, read_file
from lesson_code.gradient_checkpointing.counting import count_saved, measure_peak, time_rounds
from lesson_code.gradient_checkpointing.measurement import Measurement
from lesson_code.gradient_checkpointing.networks import (
    CONVOLUTIONS,
    PRODUCTS,
    DeepNetwork,
    DeepTransformer,
    compute_whole_loss,
    cut,
    keep,
    run_each,
    run_plain,
)
from tests.places import ROOT

TOKENS, CHANNELS, VOCABULARY = 128, 128, 4096  # of the language model
PLAIN, EACH, SEGMENTS = "nothing", "each block", "√n segments"
BUDGETS = (0.5, 0.2)


@pytest.fixture(scope="module")
def text():
    notebook = nbformat.read(ROOT / "notebooks" / "10_gradient_checkpointing.ipynb", as_version=4)
    return "\n".join(cell.source for cell in notebook.cells)


def percent(text):
    return re.sub(r"(?<=\d)%", " %", text)


# ---- The stored measurement.


@pytest.fixture(scope="module")
def stored():
    return Measurement(read_file(STUDIES / "gradient_checkpointing/study_memory.json"))


def test_every_way_has_bytes_everywhere_and_as_many_rounds_as_the_others(stored):
    places = {}
    for row in stored.content["rows"]:
        places.setdefault((row["network"], row["depth"], row["batch"]), []).append(row)
    assert len(places) == 2 * 3 * 4
    for (network, depth, batch), rows in places.items():
        assert {PLAIN, EACH, SEGMENTS, "√(n a/b) segments", "selective"} <= {r["way"] for r in rows}
        timed = depth == 24 or batch == stored.content["usual_batch"][network]
        rounds = stored.content["rounds"] if timed else 0
        assert {len(row["seconds"] or ()) for row in rows} == {rounds}


@pytest.mark.parametrize("depth", [6, 12, 24])
def test_the_saved_bytes_follow_from_shapes(stored, depth):
    for size in (2, 4, 8, 16):
        unit = 4 * size * TOKENS * CHANNELS
        rest = 2 + VOCABULARY / CHANNELS  # the last norm, the loss
        segments = stored.read("text", SEGMENTS, depth, size)["segments"]
        theory = {
            PLAIN: 16 * depth + rest,
            EACH: depth + rest,
            SEGMENTS: segments - 1 + 16 * depth / segments + rest,
        }
        for way, units in theory.items():
            saved = stored.read("text", way, depth, size)["saved_bytes"]
            assert saved == pytest.approx(units * unit, rel=0.04), (way, size)


def test_the_first_result_is_what_the_text_says(stored, text):
    megabytes = {way: stored.read("text", way)["saved_bytes"] / 1e6 for way in (PLAIN, EACH)}
    segments = stored.read("text", SEGMENTS)["segments"]
    share, by_root = stored.share("text", EACH), stored.share("text", SEGMENTS)
    assert (
        percent(
            f"leaves {share:.0%} of the saved bytes, {megabytes[EACH]:.0f} MB in place of "
            f"{megabytes[PLAIN]:.0f} MB for eight texts, and a step takes a little more "
            "than a third longer."
        )
        in text
    )
    assert stored.content["usual_batch"]["text"] == 8
    assert 1.3 < stored.time("text", EACH)[0] < 1.42
    assert segments == 4
    assert percent(f"leave {by_root:.0%}, which is more.") in text
    peaks = {way: stored.read("text", way)["peak_bytes"] for way in (PLAIN, EACH, SEGMENTS)}
    each, root = (100 * peaks[way] / peaks[PLAIN] for way in (EACH, SEGMENTS))
    said = "so at the peak {:.0f} % are left with each block recomputed, and {:.0f} % with four seg"
    assert said.format(each, root) in text
    loss = 4 * 8 * TOKENS * VOCABULARY / 1e6 / megabytes[EACH]
    assert loss > 0.5
    assert f"more than half of the {megabytes[EACH]:.0f} MB does not belong to the blocks" in text


def test_the_question_gives_what_its_answer_needs(text):
    assert f"24 equal blocks of width {CHANNELS} and a vocabulary of {VOCABULARY:,} words." in text
    assert DeepTransformer(depth=1).tokens.weight.shape == (VOCABULARY, CHANNELS)


def test_the_time_of_a_step_is_decided(stored):
    _, low, high = stored.time("text", EACH)
    assert 1.15 < low < high < 1.45


def test_what_recomputing_costs_with_and_without_a_compiler(stored, text):
    def share(network, way):
        return stored.share(network, way, depth=6)

    def time(network, way):
        return stored.time(network, way, depth=6)

    networks = ("text", "images")
    more = [share(network, "selective") / share(network, EACH) for network in networks]
    said = "keeps {:.1f} times (text) and {:.1f} times (images) as many bytes as recomputing each"
    assert said.format(*more) in text
    longer = [time(network, "selective")[0] / time(network, EACH)[0] for network in networks]
    assert longer[0] == pytest.approx(1, abs=0.02)
    assert f"It takes as long for text, and {100 - 100 * longer[1]:.0f} % less time for im" in text
    assert time("images", "selective")[2] < time("images", EACH)[1]
    for network in networks:
        for way in (PLAIN, EACH, "selective"):  # the figure's title
            assert time(network, f"{way}, compiled")[2] < time(network, way)[1]
    plain, each, selective = (f"{way}, compiled" for way in (PLAIN, EACH, "selective"))
    shares = {way: share("text", way) for way in (plain, each, selective, "budget 0.5, compiled")}
    said = "at no cost in time, {:.0%} in place of the {:.0%} of the compiled plain step."
    assert percent(said.format(shares[selective], shares[plain])) in text
    assert time("text", selective)[0] <= time("text", plain)[0]
    assert "For images it saves none and takes longer." in text
    assert share("images", selective) == pytest.approx(share("images", plain), abs=0.005)
    assert time("images", selective)[1] > time("images", plain)[2]
    said = "beat the budget 0.5, because they leave {:.0%} in place of {:.0%} in about the same"
    assert percent(said.format(shares[each], shares["budget 0.5, compiled"])) in text
    times = [time("text", way)[0] for way in (each, "budget 0.5, compiled")]
    assert times[0] == pytest.approx(times[1], abs=0.02)
    said = "For images the budget 0.5 leaves as few bytes as they do and takes less time, and the "
    assert said in text
    bytes_left = [share("images", way) for way in ("budget 0.5, compiled", each)]
    assert bytes_left[0] == pytest.approx(bytes_left[1], abs=0.005)
    assert time("images", "budget 0.5, compiled")[2] < time("images", each)[1]
    shares = [share("images", way) for way in ("budget 0.2, compiled", each)]
    said = "budget 0.2 leaves {:.0%} in place of {:.0%} in about the same time."
    assert percent(said.format(*shares)) in text
    said = "With 0.2 they took about as long and kept {:.0%} of the bytes in place of {:.0%}, but"
    assert percent(said.format(*shares)) in text
    times = [time("images", way)[0] for way in ("budget 0.2, compiled", each)]
    assert times[0] == pytest.approx(times[1], abs=0.02)
    assert all(
        stored.read("images", f"budget {x}, compiled", 6)["peak_bytes"] is None for x in BUDGETS
    )
    assert "In a transformer checkpoint each block, then compile." in text
    assert "activation_memory_budget = 0.5` than with each block recomputed." in text


def test_what_more_segments_and_smaller_batches_cost(stored, text):
    def time(way, size):
        return stored.time("images", way, batch=size)

    best = "√(n a/b) segments"
    segments = stored.read("images", best, batch=16)["segments"]
    by_line = 1 + (1 - 1 / segments) / 3
    said = (
        "With 16 images, {} segments take {:.2f} times as long as the plain step, and {:.2f} times"
    )
    assert said.format(segments, time(best, 16)[0], by_line) in text
    assert time(best, 16)[1] > by_line
    said = (
        "Recomputing each block takes {:.2f} times as long with 8 images and {:.2f} times with 64"
    )
    assert said.format(time(EACH, 8)[0], time(EACH, 64)[0]) in text
    assert time(EACH, 64)[2] < time(EACH, 8)[1]


def test_what_the_recipe_says_of_the_cost(stored, text):
    usual = stored.content["usual_batch"]
    assert "with {text} texts or {images} images.".format(**usual) in text
    places = [
        (row["network"], row["depth"], row["batch"])
        for row in stored.content["rows"]
        if row["way"] == EACH and row["seconds"]
    ]
    more = {
        (network, depth, size): 100 * stored.time(network, EACH, depth=depth, batch=size)[0] - 100
        for network, depth, size in places
    }
    said = f"took {min(more.values()):.0f} to {max(more.values()):.0f} % more time on a CPU, most"
    assert said in text
    for network in ("text", "images"):  # most with the smallest batch
        costs = {place: cost for place, cost in more.items() if place[0] == network}
        assert max(costs, key=costs.get) == (network, 24, stored.list_batches(network)[0])
    compiled = [
        100 * stored.time(network, f"{EACH}, compiled", depth=6)[0] / plain - 100
        for network in ("text", "images")
        for plain in [stored.time(network, f"{PLAIN}, compiled", depth=6)[0]]
    ]
    assert (
        "In compiled steps it took {:.0f} % (text) and {:.0f} % (images).".format(*compiled) in text
    )


def test_how_much_the_loss_weighs_with_six_blocks(stored, text):
    loss, unit = VOCABULARY / CHANNELS, 4 * 8 * TOKENS * CHANNELS
    units = stored.read("text", EACH, depth=6)["saved_bytes"] / unit
    assert f"it is {loss:.0f} of the {units:.0f} units that recomputing each block leaves." in text
    assert stored.share("text", EACH, depth=6) > stored.share("text", EACH)


def test_what_another_order_of_checkpointing_and_compiling_does(stored, text):
    outside, inside = "selective around compiled blocks", "selective, compiled"
    shares = [stored.share("text", way, depth=6) for way in (outside, inside)]
    said = "the step saves {:.0%} of the bytes in place of {:.0%}, as if nearly everything"
    assert percent(said.format(*shares)) in text
    assert stored.share("text", EACH, depth=6) == pytest.approx(shares[0], abs=0.06)
    said = "For images the step saves as many bytes and takes about as long as without a compiler."
    assert said in text
    images = [stored.share("images", way, depth=6) for way in (outside, "selective")]
    assert images[0] == pytest.approx(images[1], abs=0.01)
    times = [stored.time("images", way, depth=6)[0] for way in (outside, "selective")]
    assert times[0] == pytest.approx(times[1], rel=0.1)
    for network in ("text", "images"):
        low = stored.time(network, outside, depth=6)[1]
        for way in stored.list_ways():
            if way.endswith("compiled"):
                assert stored.time(network, way, depth=6)[2] < low


# ---- Ways to run blocks: the same gradients, fewer bytes.

TEXTS = torch.randint(1, 4096, (2, 17), generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
CASES = {
    "text": (DeepTransformer, (TEXTS[:, :-1], TEXTS[:, 1:]), PRODUCTS),
    "images": (DeepNetwork, (IMAGES, torch.tensor([0, 1])), CONVOLUTIONS),
}


def run_once(network, batch):
    network.compute_loss(*batch).backward()
    return [p.grad for p in network.parameters() if p.grad is not None]


@pytest.mark.parametrize("name", CASES)
def test_all_ways_have_the_plain_gradients_and_fewer_bytes(name):
    make, batch, kept = CASES[name]
    plain = make(run_plain, depth=4)
    expected = run_once(plain, batch)
    most = count_saved(partial(plain.compute_loss, *batch), plain)
    saved = {}
    for way, run in {"each": run_each, "two": cut(2), "selective": keep(kept)}.items():
        network = make(run, depth=4)
        assert all(map(torch.equal, run_once(network, batch), expected)), way
        saved[way] = count_saved(partial(network.compute_loss, *batch), network)
    assert saved["each"] < saved["two"] < most
    assert saved["each"] < saved["selective"] < most


@pytest.mark.parametrize("name", CASES)
def test_saved_bytes_are_those_of_the_courses_counter_and_of_fake_tensors(name):
    make, batch, _ = CASES[name]
    network = make(run_each, depth=2)
    with count_saved_bytes(network) as saved:
        network.compute_loss(*batch)
    assert count_saved(partial(network.compute_loss, *batch), network) == saved.total
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        network = make(run_each, depth=2)
        inputs = [fake.from_tensor(x) for x in batch]
        assert count_saved(partial(network.compute_loss, *inputs), network) == saved.total


def test_a_frozen_network_saves_nothing():
    network = DeepNetwork(depth=1).requires_grad_(False)
    assert count_saved(lambda: network(IMAGES), network) == 0


def test_the_peak_holds_what_is_saved():
    network = DeepNetwork(run_plain, depth=4)
    step = lambda: run_once(network, CASES["images"][1])  # noqa: E731
    saved = count_saved(partial(network.compute_loss, *CASES["images"][1]), network)
    assert measure_peak(step) > saved - IMAGES.nbytes - 100


def test_every_step_is_timed_in_every_round_and_begins_one_of_them():
    calls = []
    steps = {name: partial(calls.append, name) for name in "abc"}
    found = time_rounds(steps, 3, torch.device("cpu"))
    assert {name: len(seconds) for name, seconds in found.items()} == dict.fromkeys("abc", 3)
    assert len(calls) == 4 * 3
    assert {calls[place] for place in (3, 6, 9)} == set("abc")


# ---- What the notebook defines.


@pytest.fixture(scope="module")
def lesson():
    return read_definitions("10_gradient_checkpointing", DEPTH=24)


@pytest.mark.parametrize("loss", ["compute_chunked_loss", "compute_library_loss"])
@pytest.mark.parametrize("tokens", [16, 13])
def test_a_loss_in_chunks_is_the_loss_of_all_logits(lesson, loss, tokens):
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(tokens, 8, generator=generator, requires_grad=True)
    weight = torch.randn(40, 8, generator=generator, requires_grad=True)
    targets = torch.randint(40, (tokens,), generator=generator)
    found = {}
    for compute in (compute_whole_loss, lesson[loss]):
        value = compute(vectors, weight, targets)
        found[compute] = value, *torch.autograd.grad(value, (vectors, weight))
    for one, other in zip(*found.values(), strict=True):
        torch.testing.assert_close(one, other)


def test_how_much_of_the_peak_a_loss_in_chunks_leaves(lesson, text):
    tokens = torch.randint(1, 4096, (8, 129), generator=torch.Generator().manual_seed(0))
    batch, peaks = (tokens[:, :-1], tokens[:, 1:]), {}
    for run in (run_plain, run_each):
        for loss in (compute_whole_loss, lesson["compute_chunked_loss"]):
            network = DeepTransformer(run, 24, loss)
            peaks[run, loss] = measure_peak(lambda network=network: run_once(network, batch))
    plain, chunked, of_each, both = peaks.values()
    assert f"it leaves {100 * chunked / plain:.0f} % of it" in text
    assert both / of_each == pytest.approx(0.5, abs=0.02)
    assert "With checkpointed blocks the loss in chunks halves the peak" in text


def test_recompute_passes_gradients_on_and_leaves_the_random_state(lesson):
    block = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    x = torch.ones(2, 3, requires_grad=True)
    torch.manual_seed(0)
    block(x).sum().backward()
    expected, drawn = x.grad, torch.rand(1)
    x.grad = None
    torch.manual_seed(0)
    lesson["recompute"](block, x).sum().backward()
    assert torch.equal(x.grad, expected)
    assert torch.equal(torch.rand(1), drawn)


# ---- The card.


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_the_card_runs_compiled_to_machine_code():
    """The other tests compile without a C++ compiler."""
    notebook = nbformat.read(ROOT / "notebooks" / "10_gradient_checkpointing.ipynb", as_version=4)
    (card,) = [c.source for c in notebook.cells if "card-pytorch" in c.metadata.get("tags", [])]
    names = {}
    exec(
        re.sub(r"^deep = (.+?\.to\(kind\)).*$", r"deep = \1; deep.compile()", card, flags=re.M),
        names,
    )
    assert names["deep"]._compiled_call_impl is not None
    assert names["layers"][0][1].num_batches_tracked == 1
    torch._dynamo.reset()


def test_modules_that_the_text_names_are_there(text):
    assert "lesson_code/gradient_checkpointing" in text
    for name in ("networks", "counting"):
        assert (ROOT / "lesson_code" / "gradient_checkpointing" / f"{name}.py").is_file()
