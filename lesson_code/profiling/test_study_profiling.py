"""The loops, the compiler, Lightning's overhead and the roofline of lesson 19: counts, no times."""

import io
import os
import shutil
from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from course_utils.models.create import create_model
from course_utils.results import STUDIES, read_file
from lesson_code.profiling import compiling, overhead, page_faults, roofline, study
from lesson_code.profiling.ladder import (
    BATCHES,
    DATASETS,
    FAST,
    FIXES,
    MARGIN,
    NUM_VAL,
    VALIDATE_EVERY,
    SpeedUps,
    TrainingLoop,
    list_comparisons,
    list_fixes,
    load_examples,
    make_network,
    name_loop,
    stack_one_by_one,
)

KINDS = tuple(DATASETS)
NEEDS_COMPILER = pytest.mark.skipif(
    bool(compiling.find_missing_compiler()), reason=compiling.find_missing_compiler()
)
SMALL = 8  # examples of a batch, so that a test takes a second


@pytest.fixture(scope="module", params=KINDS)
def examples(request):
    found = load_examples(request.param)
    return type(found)(**vars(found) | {"batches": [x[:SMALL] for x in found.batches]})


def make_loop(examples, *fixes, **options):
    return TrainingLoop(examples, fixes, io.StringIO(), **options)


def count_operators(call):
    """How many times each operator of PyTorch runs."""
    with profile(activities=[ProfilerActivity.CPU]) as record:
        call()
    return Counter(event.name for event in record.events())


# ---- The loops.


def test_both_ways_make_the_same_batch(examples):
    for index in examples.batches[:3]:
        for one, two in zip(examples.stack(index), stack_one_by_one(examples, index), strict=True):
            assert one.shape == two.shape
            assert one.dtype == two.dtype
            torch.testing.assert_close(one, two)


@pytest.mark.parametrize("fix", [fix for fix in FIXES if fix != "compile"])
def test_a_fix_does_not_change_what_is_trained(examples, fix):
    """bf16 rounds to eight bits, so its tolerance is another one."""
    if fix not in list_fixes(examples.kind):
        with pytest.raises(ValueError, match="take some of"):
            make_loop(examples, fix)
        return
    slow, fixed = make_loop(examples, lr=1e-3), make_loop(examples, fix, lr=1e-3)
    for loop in (slow, fixed):
        loop.run(4)
    tolerance = 0.1 if fix == "bf16" else 1e-3
    assert fixed.read_sums()[0] == pytest.approx(slow.read_sums()[0], rel=tolerance)
    assert slow.read_sums()[0] != 0
    if fix != "bf16":
        assert fixed.read_sums()[1] == pytest.approx(slow.read_sums()[1])


def test_all_fixes_together_train_the_same(examples):
    names = FAST & set(list_fixes(examples.kind)) - {"bf16"}
    slow, fast = make_loop(examples, lr=1e-3), make_loop(examples, *names, lr=1e-3)
    for loop in (slow, fast):
        loop.run(4)
    assert fast.read_sums()[0] == pytest.approx(slow.read_sums()[0], rel=1e-3)


@pytest.mark.parametrize("steps", [1, 3])
def test_item_reads_two_numbers_per_step(examples, steps):
    def count(*fixes):
        loop = make_loop(examples, "rare validation", *fixes)
        loop.run(1)
        return count_operators(lambda: loop.run(steps))["aten::_local_scalar_dense"]

    assert count() - count("no item") == 2 * steps


def test_copies_are_made_by_batch(examples):
    slow, fixed = make_loop(examples), make_loop(examples, "batched copies")
    stacked = [count_operators(loop.load_batch) for loop in (slow, fixed)]
    copies = [sum(count[name] for name in ("aten::copy_", "aten::lift_fresh")) for count in stacked]
    assert copies[0] >= copies[1] + SMALL
    if examples.kind == "photographs":
        divided = [count["aten::div"] + count["aten::div_"] for count in stacked]
        assert divided == [2 * SMALL, 2]


def test_optimizers_need_many_few_or_one_operator(examples):
    def count(*fixes):
        loop = make_loop(examples, *fixes)
        loop.run(1)
        return count_operators(loop.optimizer.step)

    parameters = len(list(make_loop(examples).model.parameters()))
    assert count()["aten::addcdiv_"] == parameters
    foreach = count("foreach optimizer")
    assert (foreach["aten::_foreach_addcdiv_"], foreach["aten::_fused_adamw_"]) == (1, 0)
    fused = count("fused optimizer")
    assert (fused["aten::_fused_adamw_"], fused["aten::addcdiv_"]) == (1, 0)


def test_gradients_are_filled_with_zeros_or_removed(examples):
    for fixes, zeros in [((), True), (("set to none",), False)]:
        loop = make_loop(examples, *fixes)
        loop.run(1)
        loop.optimizer.step = lambda: None
        before = [p.grad for p in loop.model.parameters()]
        loop.run(1)
        after = [p.grad for p in loop.model.parameters()]
        assert all((one is two) == zeros for one, two in zip(before, after, strict=True))


def test_layout_and_format_are_as_the_fixes_say():
    examples = load_examples("photographs")
    for fixes, is_last in [((), False), (("channels last", "batched copies"), True)]:
        loop = make_loop(examples, *fixes)
        inputs, _ = loop.load_batch()
        weight = loop.model.layer1[0].conv.weight
        for tensor in (inputs, weight):
            assert tensor.is_contiguous(memory_format=torch.channels_last) == is_last
    dtypes = []
    loop = make_loop(examples, "bf16")
    loop.model.fc.register_forward_hook(lambda *args: dtypes.append(args[2].dtype))
    loop.run(1)
    assert dtypes == [torch.bfloat16]


def test_a_bias_before_batchnorm_has_no_gradient():
    examples = load_examples("photographs")
    biased = make_network("photographs", examples.num_classes, ())
    plain = make_network("photographs", examples.num_classes, {"no bias"})
    assert len(list(biased.parameters())) == len(list(plain.parameters())) + 6
    images, targets = examples.stack(examples.batches[0])
    for layer in biased.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.bias)
    assert torch.equal(biased.stem.conv.weight, plain.stem.conv.weight)
    loss = F.cross_entropy(biased(images), targets)
    torch.testing.assert_close(loss, F.cross_entropy(plain(images), targets), rtol=1e-4, atol=0)
    loss.backward()
    stem = biased.stem.conv
    assert stem.bias.grad.abs().max() < 1e-4 * stem.weight.grad.abs().max()


def test_validation_and_log_come_as_often_as_they_should(examples):
    for fixes, validations, lines in [
        ((), 1, VALIDATE_EVERY),
        (("rare validation",), 0, VALIDATE_EVERY),
        (("rare logging",), 1, 1),
    ]:
        log, seen = io.StringIO(), []
        loop = TrainingLoop(examples, fixes, log)
        loop.validate = lambda seen=seen: seen.append(1)
        loop.run(VALIDATE_EVERY)
        assert (len(seen), len(log.getvalue().splitlines())) == (validations, lines)
    loop = make_loop(examples)
    assert loop.validate() > 0
    assert loop.model.training


def test_two_optimizers_are_refused(examples):
    with pytest.raises(ValueError, match="and one optimizer"):
        make_loop(examples, "fused optimizer", "foreach optimizer")


# ---- What is compared.


@pytest.mark.parametrize("kind", KINDS)
def test_each_comparison_differs_by_its_fix_alone(kind):
    comparisons = list_comparisons(kind)
    assert len(comparisons) == 2 * len(list_fixes(kind))
    for x in comparisons:
        assert x.with_fix - x.without == {x.fix}
        assert not x.without - x.with_fix
        if x.loop == "slow":
            assert not x.without
        else:
            assert len(x.with_fix) >= len(FAST & set(list_fixes(kind)))


def fake(kind="texts", rounds=16):
    """Every loop of the slow kind takes 10 ms, and each fix halves it."""
    rows = []
    noise = np.random.default_rng(0).normal(0, 0.01, rounds)
    for fixes in {x for c in list_comparisons(kind) for x in (c.without, c.with_fix)}:
        ms = 10 / 2 ** len(fixes) * np.exp(noise)
        rows.append({"kind": kind, "loop": name_loop(fixes), "ms": ms.tolist()})
    return {"ladder": {"rounds": rounds, "steps": 10, "rows": rows}}


def test_what_is_stored_is_read_as_ratios():
    found = SpeedUps(fake())
    for x in list_comparisons("texts"):
        np.testing.assert_allclose(found.speed_up("texts", x.loop, x.fix), 2)
        assert found.verdict("texts", x.loop, x.fix) == "helps"
    fast = len(FAST & set(list_fixes("texts")))
    np.testing.assert_allclose(found.total("texts"), 2**fast)
    assert found.table("texts").loc["bf16", "slow"]["times as fast"] == 2


def test_a_fix_that_costs_time_hurts():
    content = fake()
    for row in content["ladder"]["rows"]:
        if row["loop"] == "bf16":
            row["ms"] = [11 + 0.01 * i for i in range(16)]
        if row["loop"] == "no item":
            row["ms"] = [10 * 1.001] * 16
        if row["loop"] == "none":
            row["ms"] = [10.0] * 16
    found = SpeedUps(content)
    assert found.verdict("texts", "slow", "bf16") == "hurts"
    assert found.verdict("texts", "slow", "no item") == "equivalent"


def test_an_interrupted_block_does_not_move_the_result():
    content = fake()
    for row in content["ladder"]["rows"]:
        if row["loop"] == "bf16":
            row["ms"] = [10.0 + 0.01 * i for i in range(15)] + [1000.0]
        if row["loop"] == "none":
            row["ms"] = [10.0] * 16
    assert SpeedUps(content).verdict("texts", "slow", "bf16") == "equivalent"


def test_without_a_compiler_the_other_fixes_are_there():
    content = fake()
    rows = content["ladder"]["rows"]
    content["ladder"]["rows"] = [row for row in rows if "compile" not in row["loop"]]
    found = SpeedUps(content)
    assert {x.fix for x in found.list_comparisons("texts")} == set(list_fixes("texts")) - {
        "compile"
    }
    assert "compile" not in found.table("texts").index


@pytest.mark.lesson_changed
def test_the_study_runs_all_loops_on_shared_networks(monkeypatch, examples, capsys):
    monkeypatch.setattr(study, "find_missing_compiler", lambda: "none")
    monkeypatch.setattr(study, "load_examples", lambda kind: examples)
    rows = study.measure_loops(examples.kind, rounds=2, steps=1)
    assert {row["kind"] for row in rows} == {examples.kind}
    loops = {row["loop"] for row in rows}
    names = set(list_fixes(examples.kind)) - {"compile"}
    assert loops == {"none"} | names | {
        name_loop(x)
        for c in list_comparisons(examples.kind)
        if c.loop == "fast" and c.fix != "compile"
        for x in (c.without, c.with_fix)
    }
    assert all(len(row["ms"]) == 2 for row in rows)
    assert "round 2 of 2" in capsys.readouterr().out
    loops = study.make_loops(examples.kind, io.StringIO())
    networks = {id(loop.model) for loop in loops.values()}
    assert len(networks) == (4 if examples.kind == "photographs" else 1)


# ---- Lightning's overhead.


@pytest.mark.parametrize("name", overhead.FLAGS)
def test_each_trainer_takes_all_steps(name, capfd):
    steps = overhead.WARM_STEPS + 4
    timing = overhead.run_trainer(name, steps)
    assert timing.step_us > 0
    out, err = capfd.readouterr()
    assert out == err == ""


def test_a_timing_is_the_mean_after_the_warm_up():
    warm = overhead.WARM_STEPS
    stamps = [10.0] * warm + [20.0, 21.0, 23.0, 24.5]
    timing = overhead.read_timing(stamps, 100.0)
    assert timing.step_us == pytest.approx(1.5e6)
    assert timing.rest_ms == pytest.approx(1e5 - 1500 * len(stamps))
    with pytest.raises(ValueError, match="take 22 or more"):
        overhead.read_timing(stamps[: warm + 1], 1.0)


def test_flags_differ_from_the_defaults_by_one():
    alone = [flags for flags in overhead.FLAGS.values() if len(flags) == 1]
    assert len(alone) == 8  # five flags, two ways to log, barebones
    assert overhead.FLAGS["all five off"] == {
        name: value for flags in alone[:5] for name, value in flags.items()
    }


def test_how_long_a_step_has_to_be():
    assert overhead.length_for_share(500, 0.01) == pytest.approx(50)
    assert overhead.length_for_share(500, 0.05) == pytest.approx(10)
    with pytest.raises(ValueError, match="share 0: it must be in"):
        overhead.length_for_share(500, 0)


def test_rounds_of_all_loops_are_kept():
    rows = overhead.measure_overhead(rounds=2, steps=overhead.WARM_STEPS + 2)
    assert [row["loop"] for row in rows] == [overhead.PLAIN, *overhead.FLAGS]
    assert all(len(row["step_us"]) == len(row["rest_ms"]) == 2 for row in rows)
    found = overhead.Overhead({"overhead": {"rows": rows}})
    means = [found.step_us(loop).mean() for loop in (overhead.PLAIN, overhead.DEFAULTS)]
    assert found.over(overhead.DEFAULTS)[0] == pytest.approx(means[1] - means[0])
    assert list(found.table().index) == found.loops


# ---- Compiling.


class Breaking(nn.Module):
    """A network with two graph breaks."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, x):
        x = self.net(x)
        x = x * 2 if x.sum().item() > 0 else x * 3
        torch._dynamo.graph_break()
        return x.sin()


def test_breaks_are_found_with_their_lines():
    breaks = compiling.explain_breaks(Breaking(), torch.ones(2, 4))
    assert [x.code for x in breaks] == [
        "x = x * 2 if x.sum().item() > 0 else x * 3",
        "torch._dynamo.graph_break()",
    ]
    assert "item()" in breaks[0].reason
    assert all(x.file == __file__ for x in breaks)
    assert compiling.explain_breaks(nn.Linear(4, 4), torch.ones(2, 4)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_courses_networks_are_one_graph(kind):
    examples = load_examples(kind)
    model = create_model("convnet_small" if kind == "photographs" else "text_small", 10)
    assert compiling.explain_breaks(model, examples.stack(examples.batches[0])[0]) == []


def test_shapes_decide_how_many_graphs_there_are():
    batches = [torch.ones(n, 4) for n in (2, 3, 4, 5, 5)]
    model = nn.Linear(4, 4)
    assert compiling.count_graphs(model, batches) == [1, 2, 2, 2, 2]
    assert compiling.count_graphs(model, batches, dynamic=True) == [1, 1, 1, 1, 1]
    assert compiling.count_graphs(model, batches, dynamic=False) == [1, 2, 3, 4, 4]


@pytest.fixture
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh")
def test_compiled_code_that_runs_is_seen():
    x = torch.ones(2, 4)
    compiled = torch.compile(nn.Linear(4, 4), backend="eager")
    first, second = (compiling.inspect_call(lambda: compiled(x)) for _ in range(2))
    assert first == second == compiling.CompiledCall(1, 0, False)
    assert not first.fell_back
    assert first.describe() == "Compiled code was called once."
    parts = compiling.inspect_call(lambda: torch.compile(Breaking(), backend="eager")(x))
    assert parts.regions == 3
    assert not parts.fell_back


def fail(*_):
    raise RuntimeError("a backend that cannot compile")


@pytest.mark.usefixtures("fresh")
def test_a_failure_that_is_suppressed_is_found():
    x, model = torch.ones(2, 4), nn.Linear(4, 4)
    with torch._dynamo.config.patch(suppress_errors=True):
        compiled = torch.compile(model, backend=fail)
        found = compiling.inspect_call(lambda: compiled(x))
        again = compiling.inspect_call(lambda: compiled(x))
    torch.testing.assert_close(compiled(x), model(x))  # equal, so no other test notices it
    assert found.fell_back
    assert "without an error" in found.describe()
    assert again.fell_back
    assert again.describe() == "It ran eagerly: no compiled code was called."


@pytest.mark.usefixtures("fresh")
def test_too_many_shapes_are_found():
    compiled = torch.compile(nn.Linear(4, 4), backend="eager", dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=8):  # timm.optim sets it to a million
        found = [
            compiling.inspect_call(lambda n=n: compiled(torch.ones(n, 4))) for n in range(2, 11)
        ]
    assert not any(call.fell_back for call in found[:-1])
    assert found[-1].fell_back
    assert "more shapes" in found[-1].describe()


@pytest.mark.usefixtures("fresh")
def test_a_compiler_that_is_turned_off_is_found():
    compiled = torch.compile(nn.Linear(4, 4), backend="eager")
    with torch.compiler.set_stance("force_eager"):
        assert compiling.inspect_call(lambda: compiled(torch.ones(2, 4))).fell_back


def test_when_compiling_is_had_back():
    assert compiling.break_even_steps(20, 0.05, 0.04) == 2000
    assert compiling.break_even_steps(20, 0.04, 0.04) == np.inf
    assert compiling.break_even_steps(20, 0.04, 0.05) == np.inf


def test_what_is_missing_is_one_sentence(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "install g++" in compiling.find_missing_compiler()
    monkeypatch.undo()
    monkeypatch.setattr(compiling.sysconfig, "get_paths", lambda: {"include": "/nowhere"})
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/g++")
    assert "headers" in compiling.find_missing_compiler()


def make_tiny():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.mark.usefixtures("fresh")
def test_steps_that_differ_are_told_apart():
    model, other = make_tiny(), make_tiny()
    batch = torch.randn(4, 8), torch.tensor([0, 1, 2, 0])
    same = compiling.compare_steps(model, torch.compile(other, backend="eager"), batch)
    assert max(same.values()) < 1e-6
    with torch.no_grad():
        other[2].weight[0, 0] += 1
    different = compiling.compare_steps(model, other, batch)
    assert min(different.values()) > 1e-3


@NEEDS_COMPILER
@pytest.mark.usefixtures("fresh")
@pytest.mark.lesson_changed
def test_a_compiled_network_trains_the_same():
    batches = [(torch.randn(n, 8), torch.zeros(n, dtype=torch.int64)) for n in (4, 6)]
    found = compiling.measure_compiling(make_tiny(), batches, rounds=2)
    assert max(found["differences"].values()) < 1e-5
    assert found["call"] == "Compiled code was called once."
    assert found["graphs"] == 2  # the second one takes any number of rows
    assert len(found["eager_ms"]) == len(found["compiled_ms"]) == 2
    again = compiling.measure_compiling(make_tiny(), batches, rounds=2, dtype=torch.bfloat16)
    assert (again["graphs"], again["call"]) == (2, found["call"])
    assert max(again["differences"].values()) < 0.1


@NEEDS_COMPILER
@pytest.mark.usefixtures("fresh")
@pytest.mark.lesson_changed
def test_the_kernel_of_a_function_is_one_loop():
    kernel = compiling.read_kernel(lambda x: torch.relu(x + 1) * 2, torch.randn(8, 16))
    assert kernel.count("for(") == 1
    assert "clamp_min" in kernel.partition("for(")[2]


# ---- The roofline.


@pytest.mark.parametrize("kind", KINDS)
def test_operations_are_those_that_pytorch_counts(kind):
    examples = load_examples(kind)
    model = make_network(kind, 10, {"no bias"} & set(list_fixes(kind)))
    inputs = examples.stack(examples.batches[0][:SMALL])[0]
    layers = roofline.place_layers(model, inputs, repeats=1)
    products = {x.name: x.flops for x in layers if x.kind in ("Conv2d", "Linear")}
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(inputs)
    by_layer = counter.get_flop_counts()
    prefix = type(model).__name__
    for name, flops in products.items():
        assert sum(by_layer[f"{prefix}.{name}"].values()) == flops, name
    assert sum(products.values()) == counter.get_total_flops()
    assert all(x.bytes > 0 and x.seconds > 0 for x in layers)


def test_pytorch_counts_attention_only_where_it_is_products():
    """The kernel for CPUs has no formula in `FlopCounterMode` of this version."""
    q = torch.randn(2, 4, 16, 8)
    counts = {}
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend), FlopCounterMode(display=False) as counter:
            F.scaled_dot_product_attention(q, q, q)
        counts[backend] = counter.get_total_flops()
    assert counts[SDPBackend.MATH] == 2 * 2 * (2 * 4 * 16 * 16 * 8)
    assert counts[SDPBackend.FLASH_ATTENTION] == 0


def test_bytes_are_inputs_weights_and_output():
    layer, x = nn.Linear(8, 4), torch.ones(2, 8)
    assert roofline.count_bytes(layer, [x], layer(x)) == 4 * (16 + 36 + 8)
    table, tokens = nn.Embedding(1000, 4), torch.zeros(2, 3, dtype=torch.int64)
    assert roofline.count_bytes(table, [tokens], table(tokens)) == 8 * 6 + 2 * 4 * 24


def test_a_layer_without_a_rule_is_refused():
    with pytest.raises(ValueError, match="no rule for Tanh: add it"):
        roofline.place_layers(nn.Sequential(nn.Tanh()), torch.ones(1))


def test_the_roof_is_flat_beyond_its_ridge():
    machine = roofline.Roofline(bytes_per_s=10.0, flops_per_s=200.0)
    assert machine.ridge == 20
    assert [machine.limit(x) for x in (1, 20, 100)] == [10, 200, 200]
    slow = roofline.Placed("a", "ReLU", 10, 10, 1.0)
    quick = roofline.Placed("b", "Linear", 1000, 10, 1.0)
    assert slow.is_bound_by_memory(machine)
    assert not quick.is_bound_by_memory(machine)


def test_both_limits_are_measured():
    found = roofline.measure_roofline(copy_bytes=2**20, side=64)
    assert found.bytes_per_s > 0
    assert found.flops_per_s > 0
    assert np.isfinite(found.ridge)


def test_ten_batches_have_different_examples(examples):
    index = np.concatenate(examples.batches)
    assert len(examples.batches) == BATCHES
    assert len(set(index.tolist())) == len(index)


# ---- Page faults.


@pytest.mark.skipif(
    bool(page_faults.describe_missing_glibc()), reason=page_faults.describe_missing_glibc()
)
@pytest.mark.lesson_changed
def test_a_process_that_keeps_its_memory_has_few_page_faults():
    rows = page_faults.measure_page_faults(rounds=3, batch_sizes=(256,), steps=1, threads=1)
    faults = {row["way"]: row["faults"] for row in rows}
    assert set(faults) == set(page_faults.WAYS)
    most = max(faults["as usual"])  # what glibc gives back depends on what else has been freed
    assert most > 1000
    assert min(faults["memory is kept"]) < most / 10
    assert "GLIBC_TUNABLES" not in os.environ


# ---- What is stored.


@pytest.fixture(scope="module")
def stored():
    return read_file(STUDIES / "profiling/study.json")


@pytest.mark.parametrize("kind", KINDS)
def test_each_loop_has_all_rounds(stored, kind):
    ladder, found = stored["ladder"], SpeedUps(stored)
    assert found.list_comparisons(kind) == list_comparisons(kind)
    assert (ladder["rounds"], ladder["steps"]) >= (15, VALIDATE_EVERY)
    assert ladder["steps"] % VALIDATE_EVERY == 0
    assert (ladder["margin"], ladder["num_val"]) == (MARGIN, NUM_VAL)
    for x in list_comparisons(kind):
        for fixes in (x.without, x.with_fix):
            assert len(found.read_ms(kind, fixes)) == ladder["rounds"]
    assert found.total(kind)[1] > 1  # else no fix of this machine is worth a lesson


def test_stored_flags_are_those_of_today(stored):
    found = overhead.Overhead(stored)
    assert found.loops == [overhead.PLAIN, *overhead.FLAGS]
    assert found.over(overhead.DEFAULTS)[1] > 0
    lengths = [found.length_for_share(share) for share in (0.01, 0.05)]
    assert lengths[0] == pytest.approx(5 * lengths[1])


def test_stored_graphs_and_layers_are_counted_again(stored):
    model, batches = study.make_plain("texts")
    inputs = [tokens for tokens, _ in batches]
    assert stored["compiling"]["lengths"] == [tokens.shape[1] for tokens in inputs]
    for dynamic in study.DYNAMIC:
        counted = compiling.count_graphs(model, inputs, dynamic)
        assert stored["compiling"]["graphs"][str(dynamic)] == counted
    for kind in KINDS:
        model, batches = study.make_plain(kind)
        today = roofline.place_layers(model, batches[0][0], repeats=1)
        kept = [roofline.Placed(**row) for row in stored["roofline"]["layers"][kind]]
        assert [x[:4] for x in kept] == [x[:4] for x in today]


def test_stored_prices_are_of_networks_that_train_the_same(stored):
    prices = [compiling.Price.read(row) for row in stored["compiling"]["rows"]]
    assert [(x.kind, x.format) for x in prices] == [
        (kind, name) for kind in KINDS for name in study.FORMATS
    ]
    for row, price in zip(stored["compiling"]["rows"], prices, strict=True):
        assert row["call"].startswith("Compiled code was called")
        assert max(row["differences"].values()) < (1e-3 if price.format == "fp32" else 0.1)
        assert (price.break_even < np.inf) == (price.compiled_ms < price.eager_ms)
    kernel = stored["compiling"]["kernel"]
    assert kernel.count(".store(") == 1  # three operations, and one pass over memory


def test_stored_page_faults_are_those_of_the_setting(stored):
    rows = {(row["batch_size"], row["way"]): row for row in stored["page_faults"]["rows"]}
    for batch_size in (64, 1024):
        usual, kept = (np.median(rows[batch_size, way]["faults"]) for way in page_faults.WAYS)
        assert kept < usual / 10
