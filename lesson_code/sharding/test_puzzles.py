"""The puzzles can be solved, mistakes are named, and real ranks do what the simulator says."""

import itertools
import json
from functools import partial

import matplotlib.pyplot as plt
import pytest

from course_utils.ranks import ON_CPU, run_ranks
from lesson_code.sharding import messages, simulator
from lesson_code.sharding.puzzles import PUZZLES, judge, run_solved, try_puzzle
from lesson_code.sharding.schedules import (
    activation,
    activation_gradient,
    all_gather,
    all_reduce,
    backward,
    forward,
    free,
    gradient,
    recv,
    reduce_scatter,
    send,
    shard,
    state,
    store,
    update,
    weight,
)
from lesson_code.sharding.simulator import Task, simulate

DP, ZERO, FULL, PIPE = PUZZLES

# ---- Model solutions.


def data_parallel(rank, ranks, layers, batches):
    for layer in range(layers):
        yield store(weight(layer))
        yield store(state(layer))
    for layer in range(layers):
        yield forward(layer, rank)
    for layer in reversed(range(layers)):
        yield backward(layer, rank)
        yield all_reduce(gradient(layer))
        yield update(layer)


def sharded_state(rank, ranks, layers, batches):
    for layer in range(layers):
        yield store(weight(layer))
        yield store(shard(state(layer), rank))
    for layer in range(layers):
        yield forward(layer, rank)
    for layer in reversed(range(layers)):
        yield backward(layer, rank)
        yield reduce_scatter(gradient(layer))
        yield update(layer)
        yield all_gather(weight(layer))


def fully_sharded(rank, ranks, layers, batches):
    for layer in range(layers):
        yield store(shard(weight(layer), rank))
        yield store(shard(state(layer), rank))
    for layer in range(layers):
        yield all_gather(weight(layer))
        yield forward(layer, rank)
        yield free(weight(layer))
    for layer in reversed(range(layers)):
        yield all_gather(weight(layer))
        yield backward(layer, rank)
        yield free(weight(layer))
        yield reduce_scatter(gradient(layer))
        yield update(layer)


def pass_forward(rank, ranks, batch):
    if rank > 0:
        yield recv(activation(rank, batch), rank - 1)
    yield forward(rank, batch)
    if rank < ranks - 1:
        yield send(activation(rank + 1, batch), rank + 1)


def pass_backward(rank, ranks, batch):
    if rank < ranks - 1:
        yield recv(activation_gradient(rank + 1, batch), rank + 1)
    yield backward(rank, batch)
    if rank > 0:
        yield send(activation_gradient(rank, batch), rank - 1)


def pipeline(rank, ranks, layers, batches, ahead=None):
    """1F1B; with ``ahead=batches`` AFAB, and with 0 one batch after the other."""
    yield store(weight(rank))
    yield store(state(rank))
    ahead = ranks - rank - 1 if ahead is None else ahead
    for batch in range(min(ahead, batches)):
        yield from pass_forward(rank, ranks, batch)
    for batch in range(batches):
        if batch + ahead < batches:
            yield from pass_forward(rank, ranks, batch + ahead)
        yield from pass_backward(rank, ranks, batch)
    yield update(rank)


SOLUTIONS = {DP: data_parallel, ZERO: sharded_state, FULL: fully_sharded, PIPE: pipeline}


def play(name, schedule):
    puzzle = PUZZLES[name]
    return judge(puzzle, simulate(schedule, puzzle.task))


@pytest.mark.parametrize("name", PUZZLES)
def test_the_model_solution_keeps_all_limits(name, capsys):
    with plt.style.context("default"):
        found = try_puzzle(name, SOLUTIONS[name])
    assert judge(PUZZLES[name], found) is None
    assert capsys.readouterr().out.startswith(f"✓ {name}: time {found.time:g} of ")
    (title, _) = [axis.get_title() for axis in plt.gcf().axes]
    assert title == f"{name}: solved"
    plt.close("all")


def test_each_puzzle_wants_its_own_solution():
    """Only sharded optimizer state keeps all limits of plain data parallelism, too."""
    pairs = itertools.product(PUZZLES, SOLUTIONS)
    solved = {(puzzle, name) for puzzle, name in pairs if play(puzzle, SOLUTIONS[name]) is None}
    assert solved == {(name, name) for name in PUZZLES} | {(DP, ZERO)}


# ---- Wrong answers. Each changes the instructions of a solution, or is written anew.


def without(name, schedule, which=lambda rank: True):
    """Leave out the instructions of this name on the chosen ranks."""

    def changed(rank, *sizes):
        lines = schedule(rank, *sizes)
        return [line for line in lines if line.name != name or not which(rank)]

    return changed


def replaced(old, new, schedule):
    """Put ``new(line, rank)``, a list, in place of each instruction of the name ``old``."""

    def changed(rank, *sizes):
        for line in schedule(rank, *sizes):
            yield from new(line, rank) if line.name == old else [line]

    return changed


def twice(name, schedule):
    return replaced(name, lambda line, rank: [line, line], schedule)


def all_on_every_rank(rank, ranks, layers, batches):
    for layer in range(layers):
        yield store(weight(layer))
        yield store(state(layer))
    for batch in range(batches):
        yield from (forward(layer, batch) for layer in range(layers))
        yield from (backward(layer, batch) for layer in reversed(range(layers)))
    yield from (update(layer) for layer in range(layers))


def one_after_the_other(rank, ranks, layers, batches):
    yield store(weight(rank))
    yield store(state(rank))
    for batch in range(batches):
        yield from pass_forward(rank, ranks, batch)
        yield from pass_backward(rank, ranks, batch)
    yield update(rank)


def gathered_gradients(rank, ranks, layers, batches):
    """ZeRO with an all-reduce: the same weights, and half as much again to send."""
    lines = replaced("reduce_scatter", lambda x, r: [all_reduce(x.thing)], sharded_state)
    return lines(rank, ranks, layers, batches)


def one_layer_each(rank, ranks, layers, batches):
    """Rank r has the state of layer r, whole, and an all-gather is to pass on what it updated."""
    for layer in range(layers):
        yield store(weight(layer))
    yield store(state(rank))
    for layer in range(layers):
        yield forward(layer, rank)
    for layer in reversed(range(layers)):
        yield backward(layer, rank)
        yield all_reduce(gradient(layer))
    yield update(rank)
    for layer in range(layers):
        yield all_gather(weight(layer))


def off_by_one(schedule, kind):
    def shift(line, rank):
        thing = line.thing
        if thing.kind == kind and thing.shard is not None:
            return [store(thing._replace(shard=(thing.shard + 1) % 4))]
        return [line]

    return replaced("store", shift, schedule)


def first(*lines):
    """A schedule of these lines alone, on every rank."""
    return lambda *sizes: [line() if callable(line) else line for line in lines]


def before(schedule, *lines):
    return lambda *sizes: [*lines, *schedule(*sizes)]


def after(schedule, *lines):
    return lambda *sizes: [*schedule(*sizes), *lines]


def endless(*sizes):
    while True:
        yield store(weight(0))


WRONG = [
    (DP, without("all_reduce", data_parallel),
     "Rank 0, update(3): batches 1, 2 and 3 are not in the gradient"),
    (DP, twice("all_reduce", data_parallel), "batches 0, 1, 2 and 3 are more than once in the"),
    (DP, lambda rank, *sizes: data_parallel(0, *sizes), "batches 1, 2 and 3 are not in"),
    (DP, without("update", data_parallel), "At the end layer 0 is updated on no rank"),
    (DP, twice("update", data_parallel), "update(3): there is no gradient of this layer"),
    (DP, without("update", data_parallel, lambda rank: rank == 1),
     "At the end rank 1 has the weight of layer 0 as it was before the update"),
    (DP, without("all_reduce", data_parallel, lambda rank: rank > 0),
     "Rank 1, update(3): batches 0, 2 and 3 are not in the gradient"),
    (DP, without("backward", data_parallel), "run the backward pass first"),
    (DP, without("forward", data_parallel),
     "the activation of batch 0 before layer 3 is not there: run the forward pass here first"),
    (DP, replaced("store", lambda line, r: [line][: line.thing.kind == "weight"], data_parallel),
     "there is no optimizer state of this layer: store it"),
    (DP, without("store", data_parallel), "the weight of layer 0 is not there: store or gather"),
    (DP, all_on_every_rank, "Rank 0 needs 22,528 bytes in backward(3, 1), and 19,456"),
    (DP, after(data_parallel, forward(0, 0)), "these are updated already"),
    (DP, after(data_parallel, store(weight(0))), "store comes first"),
    (DP, after(data_parallel, free(weight(0)), free(weight(0))), "is not there: nothing to free"),
    (DP, after(data_parallel, all_reduce(weight(0))), "only gradients are added up"),
    (DP, after(data_parallel, reduce_scatter(weight(0))), "only gradients are added up"),
    (DP, after(data_parallel, all_gather(state(0))), "only weights and gradients are gathered"),
    (DP, after(data_parallel, all_gather(shard(weight(0), 1))), "name the whole"),
    (DP, after(data_parallel, send(weight(0), 1)), "only activations and their gradients"),
    (DP, before(data_parallel, store(gradient(0))), "only weights and optimizer state are there"),
    (DP, before(data_parallel, store(weight(4))), "there is no layer 4"),
    (DP, before(data_parallel, store(shard(weight(0), 4))), "there is no shard 4"),
    (DP, before(data_parallel, forward(0, 4)), "there is no batch 4"),
    (DP, first(store(weight(0)), forward(4, 0)), "there is no such layer"),
    (DP, first(store(weight(0)), backward(4, 0)), "there is no such layer"),
    (DP, lambda rank, *sizes: [send(activation(1, 0), rank)], "rank 0 is no other rank"),
    (DP, lambda rank, *sizes: [send(activation(1, 0), 4)], "rank 4 is no other rank"),
    (DP, lambda rank, *sizes: [recv(activation(1, 0), (rank + 1) % 4)],
     "Rank 0 waits in recv of the activation of batch 0 before layer 1 from rank 1 and rank 1"),
    (DP, lambda rank, *sizes: [all_reduce(gradient(rank))], "waits in all_reduce of the gradient of"
     " layer 0 and rank 1 waits in all_reduce of the gradient of layer 1: no rank can go on"),
    (DP, lambda *sizes: None, "the schedule yields no instructions"),
    (DP, lambda *sizes: [forward], "Rank 0, a function: this is no instruction"),
    (DP, lambda *sizes: [[forward(0, 0)]], "Rank 0, a list: this is no instruction: yield one"),
    (DP, lambda *sizes: [data_parallel(*sizes)], "this is a generator: write yield from"),
    (DP, first(free(0)), "0 is no thing, as weight(0) is"),
    (DP, first(store(weight)), "call it: weight(layer)"),
    (DP, first(update(weight(0))), "a layer is a number, and not the weight of layer 0"),
    (DP, lambda rank, *sizes: [store(shard(0, rank))], "shard(0, …): 0 is no thing"),
    (DP, endless, "the schedule does not end"),
    (ZERO, data_parallel, "Rank 0 needs 19,456 bytes in backward(3, 0), and 13,312 are allowed"),
    (ZERO, without("all_gather", sharded_state), "At the end rank 0 has the weight of layer 0 as"),
    (ZERO, off_by_one(sharded_state, "state"),
     "the optimizer state is shard 1, and the gradient is shard 0"),
    (ZERO, without("reduce_scatter", sharded_state), "batches 1, 2 and 3 are not in the gradient"),
    (ZERO, without("update", sharded_state, lambda rank: rank == 2),
     "At the end shard 2 of layer 0 is updated on no rank"),
    (ZERO, one_layer_each, "rank 1 gives its part as it was before the update, which another rank"),
    (ZERO, gathered_gradients, "Rank 0 sends 9,216 bytes, and 6,144 are allowed"),
    (ZERO, fully_sharded, "Rank 0 sends 9,216 bytes, and 6,144 are allowed"),
    (FULL, sharded_state, "Rank 0 needs 13,312 bytes in backward(3, 0), and 11,264 are allowed"),
    (FULL, without("free", fully_sharded), "At the end rank 0 has the weight of layer 0 as it was"),
    (FULL, without("all_gather", fully_sharded), "the weight of layer 0 is not there: store or"),
    (FULL, off_by_one(fully_sharded, "weight"), "shard 0 of the weight of layer 0 is not there"),
    (FULL, off_by_one(fully_sharded, "state"), "the optimizer state is shard 1, and the"),
    (FULL, without("reduce_scatter", fully_sharded), "batches 1, 2 and 3 are not in"),
    (FULL, without("all_gather", fully_sharded, lambda rank: rank == 3),
     "Rank 3, forward(0, 3): the weight of layer 0 is not there"),
    (PIPE, partial(pipeline, ahead=8), "Rank 3 needs 21,504 bytes in backward(3, 0), and 9,216"
     " are allowed. It holds weight 1,024, state 2,048, activation 8,192, activation"),
    (PIPE, one_after_the_other, "The step takes 108.5 units of time, and 38 are allowed"),
    (PIPE, without("send", pipeline), "Rank 1, recv of the activation of batch 0 before layer 1"
     " from rank 0: rank 0 has it, and never sends it"),
    (PIPE, without("recv", pipeline),
     "Rank 1, forward(1, 0): the activation of batch 0 before layer 1 is not there: run the layer "
     "before it first, or receive it"),
    (PIPE, without("send", pipeline, lambda rank: rank == 0), "no rank can go on"),
    (PIPE, twice("send", pipeline), "is not there: nothing to send"),
    (PIPE, replaced("recv", lambda x, r: [x._replace(thing=x.thing._replace(batch=7))][:1],
                    pipeline), "what arrives next from rank 0 is the activation of batch 0 before"),
    (PIPE, replaced("backward", lambda x, r: [x, x], pipeline), "run the forward pass here first"),
    (PIPE, replaced("backward", lambda x, r: [x, update(r)], pipeline),
     "batches 1, 2, 3, 4, 5, 6 and 7 are not in the gradient: run every backward pass before"),
    (PIPE, replaced("recv", lambda x, r: [x][: x.thing.kind == "activation"], pipeline),
     "the activation gradient of batch 0 before layer 1 is not there: run the backward pass of"),
    (PIPE, lambda rank, *sizes: pipeline(rank, *sizes) if rank else [
        line for line in pipeline(0, *sizes) if "gradient" not in line.thing.kind],
     "Rank 0, backward(0, 0): the activation gradient of batch 0 before layer 1 is not there"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "schedule", "sentence"), WRONG)
def test_a_wrong_schedule_is_told_what_is_wrong(name, schedule, sentence):
    said = play(name, schedule)
    assert said is not None
    assert sentence in said
    assert said.endswith(".")
    assert "\n" not in said


@pytest.mark.parametrize("name", PUZZLES)
def test_the_curve_of_memory_reaches_the_peak(name):
    found = simulate(SOLUTIONS[name], PUZZLES[name].task)
    assert [max(held for _, held in curve) for curve in found.curves] == found.peak_bytes
    assert [curve[-1][1] for curve in found.curves] == [held[-1] for held in found.held_bytes]


def test_a_puzzle_that_is_not_there_is_one_sentence():
    with pytest.raises(ValueError, match="there is no puzzle 'Fully sharded': take one of data"):
        try_puzzle("Fully sharded", fully_sharded)


def test_a_message_that_nobody_receives_is_found():
    def careless(rank, ranks, layers, batches):
        yield from pipeline(rank, ranks, layers, batches)
        if rank == 0:
            yield store(weight(0))

    task = Task(layers=2, ranks=2, batches=2)

    def extra(rank, *sizes):
        lines = list(pipeline(rank, *sizes))
        return lines[:-3] + lines[-1:] if rank == 0 else lines  # neither recv nor backward

    assert "Rank 0, update(0): batch 1 is not in the gradient" in simulate(extra, task).problem
    assert "store comes first" in simulate(careless, task).problem

    def unheard(rank, *sizes):
        lines = list(data_parallel(rank, *sizes))
        if rank == 0:
            lines.insert(5, send(activation(1, 0), 1))
            lines.insert(6, forward(0, 0))
        return lines

    assert simulate(unheard, task).problem == (
        "Rank 1 never receives the activation of batch 0 before layer 1 from rank 0."
    )


def test_a_wrong_schedule_is_drawn_as_far_as_it_came(capsys):
    with plt.style.context("default"):
        found = try_puzzle(DP, without("all_reduce", data_parallel))
    assert capsys.readouterr().out.startswith("✗ Rank 0, update(3): ")
    assert plt.gcf().axes[0].get_title() == "data parallel: not solved yet"
    assert found.bars
    plt.close("all")
    assert try_puzzle(DP, lambda *sizes: None).bars == []
    assert plt.get_fignums() == []


# ---- The simulator's numbers, by hand.


def test_bytes_and_times_of_the_simulator_are_those_of_the_formulas():
    task = Task()
    found = {name: simulate(schedule, task) for name, schedule in SOLUTIONS.items()}
    whole = 4 * 1024  # bytes of the weights of all layers
    sent = {name: set(result.sent_bytes) for name, result in found.items()}
    assert sent[DP] == sent[ZERO] == {2 * whole * 3 // 4}
    assert sent[FULL] == {3 * whole * 3 // 4}
    assert found[DP].time == 4 * (1 + 2) + 2 * whole * 3 / 4 / 4096 + 4 * 0.5
    assert found[DP].held_bytes[0][-1] == whole + 2 * whole  # weights and state
    assert found[ZERO].held_bytes[0][-1] == whole + 2 * whole // 4
    assert found[FULL].held_bytes[0][-1] == (whole + 2 * whole) // 4


def test_a_pipeline_without_costs_of_sending_has_the_bubble_of_the_formula():
    task = Task(batches=8, bytes_per_time=1e12, update_time=0)
    assert simulate(pipeline, task).time == pytest.approx((8 + 4 - 1) * 3)


def test_weights_that_make_no_equal_shards_are_refused():
    with pytest.raises(ValueError, match="16² weights make no 3 equal shards"):
        Task(ranks=3)


# ---- Real ranks.


def make_tasks(ranks):
    """As many batches as ranks; a pipeline has a layer for each rank."""
    width = 12  # 2, 3 and 4 ranks divide 12²
    common = {"ranks": ranks, "width": width, "rows": 5}
    tasks = {name: Task(layers=3, batches=ranks, **common) for name in (DP, ZERO, FULL)}
    return tasks | {PIPE: Task(layers=ranks, batches=5, **common)}


def simulate_all(ranks, schedules=SOLUTIONS):
    tasks = make_tasks(ranks)
    return {name: simulate(schedule, tasks[name]) for name, schedule in schedules.items()}


@pytest.fixture(scope="module", params=[2, 3])
def real(request, tmp_path_factory):
    simulated = simulate_all(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("ranks"))
        messages.write_programs(simulated)
        found = run_ranks(messages, processes=request.param, environment=ON_CPU)
    return simulated, found


@pytest.mark.parametrize("name", PUZZLES)
@pytest.mark.lesson_changed
def test_real_ranks_end_with_the_weights_of_one_process(real, name):
    _, found = real
    assert max(result["gap"] for result in found[name]) < 1e-6


@pytest.mark.parametrize("name", PUZZLES)
@pytest.mark.lesson_changed
def test_real_ranks_send_and_hold_the_bytes_of_the_simulator(real, name):
    simulated, found = real
    assert [result["sent_bytes"] for result in found[name]] == simulated[name].sent_bytes
    assert [result["held_bytes"] for result in found[name]] == simulated[name].held_bytes


def test_a_schedule_that_is_wrong_is_not_run(tmp_path):
    wrong = simulate_all(2, {DP: without("all_reduce", data_parallel)})
    with pytest.raises(ValueError, match="data parallel: Rank 0, update"):
        messages.write_programs(wrong, tmp_path)
    assert list(tmp_path.iterdir()) == []


COMPARE = """
import torch
import torch.distributed as dist
from lesson_code.sharding.messages import Messages


def measure(rank, size):
    torch.manual_seed(rank)
    flat = torch.randn(6 * size, dtype=torch.float64)
    ours, total = Messages(), flat.clone()
    dist.all_reduce(total)
    gathered = torch.cat([flat] * size)
    dist.all_gather(list(gathered.chunk(size)), flat)
    gaps = [
        ours.all_reduce(flat) - total,
        ours.reduce_scatter(flat) - total.chunk(size)[rank],
        ours.all_gather(flat) - gathered,
    ]
    worst = torch.tensor(max(gap.abs().max().item() for gap in gaps))
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return {"worst": worst.item()}
"""


@pytest.mark.lesson_changed
def test_rings_and_faults_on_real_ranks(tmp_path, monkeypatch):
    """Our collectives are PyTorch's; and real weights differ where the simulator sees a fault."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "compare.py").write_text(COMPARE)
    faults = {
        DP: without("all_reduce", data_parallel),
        ZERO: without("all_gather", sharded_state),
        FULL: lambda *sizes: [
            line for line in fully_sharded(*sizes) if line.name != "reduce_scatter"
        ],
    }
    simulated = simulate_all(2, faults)
    for name, found in simulated.items():
        assert found.problem, name
        found.problem = None  # run it all the same
    messages.write_programs(simulated)
    found = run_ranks("compare", messages, processes=2, environment=ON_CPU)
    assert found["worst"] < 1e-12
    for name in faults:
        assert max(result["gap"] for result in found[name]) > 1e-3, name


@pytest.mark.lesson_changed
def test_solved_puzzles_run_on_real_ranks_and_others_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def stub(rank, ranks, layers, batches):
        raise NotImplementedError

    found = run_solved(SOLUTIONS | {ZERO: data_parallel, FULL: stub}, 2)
    assert set(found) == {DP, PIPE}
    assert all(gap < 1e-6 and is_equal for gap, is_equal in found.values())
    said = capsys.readouterr().out
    assert f"{ZERO}: not solved yet, and not run" in said
    assert f"{FULL}: not solved yet, and not run" in said
    assert "pipeline: weights differ by " in said


def test_a_pipeline_for_four_ranks_alone_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lesson_code.sharding.puzzles.run_ranks", lambda *_, **__: {})
    assert run_solved({PIPE: lambda rank, _, *sizes: pipeline(rank, 4, *sizes)}, 2) == {}
    assert "pipeline: solves its puzzle, but not 2 ranks: Rank 1, " in capsys.readouterr().out


def test_programs_are_plain_json(tmp_path):
    messages.write_programs(simulate_all(2), tmp_path)
    content = json.loads((tmp_path / messages.PROGRAMS).read_text())
    assert set(content) == set(SOLUTIONS)
    line = content[DP]["programs"][0][0]
    assert messages._read(line) == store(weight(0))
    assert simulator.Task(**content[DP]["task"]) == make_tasks(2)[DP]
