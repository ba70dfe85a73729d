"""The text of lesson 20 against the stored bytes, its calculator and counter, and its cards."""

import json
import os
import re

import nbformat
import numpy as np
import pytest
import torch
from torch import nn

from course_utils.measure.paired import paired_difference
from course_utils.ranks import ON_CPU, run_ranks
from course_utils.results import STUDIES, read_file
from course_utils.training.torchrun import torchrun
from lesson_code.sharding import degrees, memory, zero
from lesson_code.sharding.sent import ring_bytes
from lesson_code.sharding.study_memory import write_scripts
from tests.places import ROOT

NOTEBOOK = ROOT / "notebooks" / "20_sharding.ipynb"


@pytest.fixture(scope="module")
def cells():
    return {cell.id: cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells}


@pytest.fixture(scope="module")
def text(cells):
    return "\n".join(cell.source for cell in cells.values() if cell.cell_type == "markdown")


# ---- The calculator, and the counter.


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("formats", [memory.FP32, memory.BF16_MIXED])
def test_stages_divide_one_part_more_each(ranks, formats):
    units = [ranks * 10, ranks * 7]
    numbers = sum(units)
    for stage in range(4):
        found = memory.held_bytes(units, stage, ranks, formats)
        for place, part in enumerate(memory.PARTS):
            is_cut = stage >= 3 - place
            assert found[part] == formats[place] * numbers // (ranks if is_cut else 1)


def test_a_unit_that_cannot_be_cut_is_padded():
    assert memory.held_bytes([5, 3], stage=3, ranks=4)["weights"] == 4 * (2 + 1)
    assert memory.held_bytes([5, 3], stage=1, ranks=4)["weights"] == 4 * (8 + 4)
    assert memory.held_bytes([5, 3], stage=0, ranks=4)["weights"] == 4 * 8


def test_frozen_parameters_have_weights_alone():
    alone = memory.held_bytes([100], stage=3, ranks=4)
    beside = memory.held_bytes([100], stage=3, ranks=4, frozen=50)
    assert {part: beside[part] - alone[part] for part in alone} == {
        "weights": 4 * 13,
        "gradients": 0,
        "optimizer state": 0,
    }


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_bytes_sent_are_two_or_three_halves(ranks):
    units = [8 * ranks, 16 * ranks]
    half = ring_bytes("all_gather", 4 * sum(units), ranks)
    assert [memory.sent_bytes(units, s, ranks) for s in range(4)] == [
        times * half for times in (2, 2, 2, 3)
    ]
    assert ring_bytes("all_reduce", 4 * sum(units), ranks) == 2 * half
    assert ring_bytes("reduce_scatter", 4 * sum(units), ranks) == half
    assert ring_bytes("send", 10, ranks) == 10


def test_the_last_unit_and_one_block_are_whole_for_a_moment():
    assert memory.count_moment([30, 50, 20], stage=1, ranks=2) == 0
    assert memory.count_moment([30, 50, 20], stage=2, ranks=2) == 4 * (50 + 20)
    assert memory.count_moment([30, 50, 20], stage=3, ranks=2) == 8 * (50 + 20)
    assert memory.count_moment([20], stage=3, ranks=2) == 8 * 20


def test_shapes_have_the_sizes_that_their_names_say():
    for name, shape in memory.OPT.items():
        number, unit = name.split()
        assert shape.parameters == pytest.approx(
            float(number) * {"M": 1e6, "B": 1e9}[unit], rel=0.08
        )


# ---- Real ranks.


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scripts")
    write_scripts(folder)
    return folder


@pytest.mark.lesson_changed
def test_three_ranks_hold_and_send_the_bytes_of_the_calculator(scripts, monkeypatch):
    """Three divide no unit of this network, so that padding counts."""
    monkeypatch.chdir(scripts)
    arguments = {"texts": 3, "depth": 2}
    found = run_ranks(zero, arguments=arguments, processes=3, environment=ON_CPU)
    units = zero.list_unit_sizes(zero.make_model(2))
    assert any(unit % 3 for unit in units)
    for stage, way in enumerate(memory.WAYS):
        for rank in found["ways"][way]:
            assert rank["held"] == memory.held_bytes(units, stage, 3)
            assert rank["sent"] == memory.sent_bytes(units, stage, 3)
            assert rank["for a moment"] == memory.count_moment(units, stage, 3)
    assert max(found["gaps"].values()) < 1e-9


# Planted: what a rank may do wrong with its part, and still run.
FAULTS = {
    "divided twice": ("zero1", "unit.own.grad /= dist", "unit.own.grad /= 2 * dist"),
    "shard off by one": ("zero1", "grad, unit.gradients)", "grad, unit.gradients.roll(-1))"),
    "stale weights": ("zero1", "(unit.weights, unit", "(unit.weights.clone(), unit"),
    "state of the wrong shard": (
        "zero1",
        "        self.optimizer.step()",
        "        state, units = self.optimizer.state, self.units\n"
        "        if state:\n"
        "            state[units[0].own], state[units[1].own] = "
        "state[units[1].own], state[units[0].own]\n"
        "        self.optimizer.step()",
    ),
    "gathered once": (
        "zero3",
        "dist.all_gather_single(unit.allocate(), unit.own.detach())",
        "unit.first = getattr(unit, 'first', unit.own.detach().clone())\n"
        "        dist.all_gather_single(unit.allocate(), unit.first)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.lesson_changed
def test_a_planted_fault_moves_the_weights(fault, scripts, tmp_path, monkeypatch):
    name, old, new = FAULTS[fault]
    for script in scripts.glob("zero*.py"):
        source = script.read_text()
        if script.stem == name:
            assert source.count(old) == 1
            source = source.replace(old, new)
        (tmp_path / script.name).write_text(source)
    monkeypatch.chdir(tmp_path)
    way = {"zero1": "ZeRO 1", "zero3": "ZeRO 3"}[name]
    arguments = {"texts": 2, "depth": 2, "names": [way]}
    found = run_ranks(zero, arguments=arguments, environment=ON_CPU)
    assert not found["gaps"][way] < 1e-6


# ---- The stored study.


@pytest.fixture(scope="module")
def stored():
    return read_file(STUDIES / "sharding/study_memory.json")


def test_every_rank_of_every_way_is_stored(stored):
    found = {(row["ranks"], row["way"], row["rank"]) for row in stored["rows"]}
    expected = {(1, "DDP", 0)}
    expected |= {(n, way, rank) for n in (2, 4) for way in zero.NAMES for rank in range(n)}
    assert found == expected
    assert stored["units"] == zero.list_unit_sizes(zero.make_model(8))
    assert {len(values) for values in stored["seconds"].values()} == {stored["rounds"]}


def test_the_study_is_what_the_text_says(stored, text):
    assert "a transformer of eight blocks on one, two and four ranks" in text
    assert stored["timed_ranks"] == 2
    assert "More ranks do not make these smaller." in text
    moments = [
        next(
            row["whole units, for a moment"]
            for row in stored["rows"]
            if (row["ranks"], row["way"]) == (ranks, "ZeRO 3")
        )
        for ranks in (2, 4)
    ]
    assert moments[1] == pytest.approx(moments[0], rel=1e-4)


def test_shares_on_four_ranks(stored, text):
    found = [sum(memory.held_bytes(stored["units"], stage, 4).values()) for stage in range(4)]
    shares = [100 * size / found[0] for size in found]
    assert shares == pytest.approx([100, 62.5, 43.75, 25], abs=0.01)
    assert "With four ranks ZeRO 1 leaves 62.5 %, ZeRO 2 43.75 % and ZeRO 3 a quarter" in text


def test_what_the_text_says_of_pytorchs_own_ways(stored, text):
    rows = {(r["ranks"], r["way"]): r for r in stored["rows"] if r["rank"] == 0}
    parts = [*memory.PARTS, "sent"]
    assert "`fully_shard` on two ranks holds and sends what our `Zero3` does, to the byte." in text
    ours, theirs = rows[2, "ZeRO 3"], rows[2, "fully_shard"]
    assert [ours[part] for part in parts] == [theirs[part] for part in parts]
    assert "`ZeroRedundancyOptimizer` sends more than our stage 1" in text
    sent = rows[2, "ZeroRedundancyOptimizer"]["sent"] / rows[2, "ZeRO 1"]["sent"]
    assert sent == pytest.approx(1.5)


def test_times_are_what_the_text_says(stored, text):
    assert stored["rounds"] >= 20
    said = "Here every stage is slower than DDP: ZeRO 1 takes 1.4 times as long, ZeRO 2 1.5, ZeRO 3"
    assert f"{said} 1.8 and `fully_shard` 2.6 times." in text
    expected = {"ZeRO 1": 1.4, "ZeRO 2": 1.5, "ZeRO 3": 1.8, "fully_shard": 2.6}
    seconds = stored["seconds"]
    for way, times in expected.items():
        found = paired_difference(np.log(seconds["DDP"]), np.log(seconds[way]))
        assert found.low > 0, way
        assert round(float(np.exp(found.mean)), 1) == times


# ---- Numbers of the text that the calculator gives.


def count_gb(name, stage, ranks):
    shape = memory.OPT[name]
    held = memory.held_bytes(shape.units, stage, ranks, memory.BF16_MIXED)
    moment = memory.count_moment(shape.units, stage, ranks, memory.BF16_MIXED)
    return (sum(held.values()) + moment + memory.estimate_activations(shape, 2048, True)) / 1e9


def test_what_fits_is_what_the_text_says(text):
    assert count_gb("1.3 B", 0, 1) < 80 < count_gb("6.7 B", 0, 1)
    assert f"one of 6.7 billion needs {count_gb('6.7 B', 0, 1):.0f} GB." in text
    assert "With eight GPUs ZeRO 1 is enough up to 13 billion parameters" in text
    assert count_gb("13 B", 1, 8) < 80 < count_gb("30 B", 1, 8)
    assert "ZeRO 3 on eight reaches 30 billion, and 66 billion need more GPUs." in text
    assert count_gb("30 B", 3, 8) < 80 < count_gb("66 B", 3, 8)
    assert count_gb("66 B", 3, 64) < 80


def test_which_split_on_which_link_is_what_the_text_says(text):
    model = degrees.Transformer(layers=32, width=4096)
    splits = {"DDP": {"data": 8}, "ZeRO 3": {"data": 8, "zero": 3}}
    splits |= {"tensor": {"tensor": 8}, "pipeline": {"pipeline": 8}}
    steps = {
        (way, link): degrees.estimate(
            model,
            degrees.Cluster(gpus=8, node_link=speed, flops=memory.CARD.flop_per_s),
            degrees.Split(**split),
            sequences=32,
            length=1024,
            micro_batch=1 if "pipeline" in split else 32 // split.get("data", 1),
        ).step_s
        for way, split in splits.items()
        for link, speed in memory.LINKS.items()
    }
    assert "With NVLink all four are close to each other" in text
    fast = [steps[way, "NVLink 4"] for way in splits]
    assert max(fast) < 1.25 * min(fast)
    assert "Over PCIe and slower links the pipeline is fastest" in text
    assert "Tensor parallel is slowest" in text
    for link in [link for link in memory.LINKS if link != "NVLink 4"]:
        order = sorted(splits, key=lambda way, link=link: steps[way, link])
        assert (order[0], order[-1]) == ("pipeline", "tensor")


def test_the_largest_matrix_is_as_large_as_the_text_says(text):
    assert f"49,152 × 12,288 numbers, which are {2 * 49152 * 12288 / 1e9:.1f} GB" in text


# ---- The cards, in two real ranks.

REPORT = """

import json
report = {"parts": [p.to_local().numel() for p in net.parameters()]}
report["whole"] = [p.full_tensor().flatten().tolist() for p in net.parameters()]
print(json.dumps(report), flush=True)
dist.barrier()
os._exit(0)  # gloo aborts now and then in its own end
"""


@pytest.mark.parametrize("kind", ["pytorch", "lightning"])
@pytest.mark.lesson_changed
def test_a_card_shards_on_two_ranks(kind, cells, tmp_path, monkeypatch):
    """And ends with the weights of one process that gets the whole batches."""
    monkeypatch.chdir(tmp_path)
    source = cells[f"card-{kind}"].source.replace("dist.destroy_process_group()\n", "")
    source = source.removesuffix("dist.destroy_process_group()")
    (tmp_path / "card.py").write_text(f"{source}\nimport torch.distributed as dist{REPORT}")
    lines = [
        output.strip().splitlines()[-1]
        for output in torchrun("card.py", environment=ON_CPU).outputs
    ]
    ranks = [json.loads(line) for line in lines]
    sizes = [48 * 32, 32, 32 * 3, 3]
    together = [sum(parts) for parts in zip(*(rank["parts"] for rank in ranks), strict=True)]
    assert together == sizes
    assert all(part < size for part, size in zip(ranks[0]["parts"], sizes, strict=True))
    assert ranks[0]["whole"] == ranks[1]["whole"]
    assert all(np.isfinite(values).all() for values in ranks[0]["whole"])


@pytest.mark.lesson_changed
def test_the_plain_card_in_two_ranks_is_the_card_in_one(cells, tmp_path, monkeypatch):
    source = cells["card-pytorch"].source.removesuffix("dist.destroy_process_group()")
    report = REPORT.replace("print(json", "print(dist.get_rank(), json", 1)
    (tmp_path / "card.py").write_text(source + report)
    whole = []
    for ranks in (1, 2):
        (tmp_path / str(ranks)).mkdir()
        monkeypatch.chdir(tmp_path / str(ranks))
        output = torchrun("../card.py", processes=ranks, environment=ON_CPU).outputs[0]
        whole.append(json.loads(output.strip().splitlines()[-1].partition(" ")[2])["whole"])
        assert os.path.isdir("checkpoint_000003")
        assert not os.path.exists("checkpoint_000003.part")
    for one, two in zip(*whole, strict=True):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(two), atol=1e-5, rtol=1e-4)


# ---- What the lesson defines.


def test_modules_and_files_that_the_text_names_are_there(text):
    for path in re.findall(r"`(lesson_code/sharding/\w+\.py)`", text):
        assert (ROOT / path).is_file()


def test_a_unit_is_a_view_of_all_its_parameters(tmp_path):
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        layer = nn.Linear(3, 2)
        before = [parameter.detach().clone() for parameter in layer.parameters()]
        unit = zero.Unit(layer, layer.parameters(), zero.Moment())
        assert unit.weights.tolist() == torch.cat([x.flatten() for x in before]).tolist()
        unit.weights += 1
        for parameter, old in zip(layer.parameters(), before, strict=True):
            assert torch.equal(parameter, old + 1)
        unit.shard()
        assert layer.weight.untyped_storage().nbytes() == 0
        unit.allocate().copy_(unit.own.detach())
        assert torch.equal(layer.bias, before[1] + 1)
    finally:
        dist.destroy_process_group()
