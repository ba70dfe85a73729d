"""The simulator against closed forms and against real ranks: orders and counts, never times."""

import itertools

import matplotlib.pyplot as plt
import pytest

from course_utils.ranks import ON_CPU, run_ranks
from lesson_code.sharding import pipeline
from lesson_code.sharding.pipeline import (
    Work,
    count_stored,
    draw_pipelines,
    find_bubble,
    make_orders,
    predict_bubble,
    simulate_pipeline,
)

SHAPES = [(1, 1), (2, 1), (2, 5), (3, 3), (4, 2), (4, 8), (8, 32)]
NAMES = ("AFAB", "1F1B")


def simulate(name, stages, batches, forward=1.0, backward=2.0):
    orders = make_orders(name, stages, batches)
    return simulate_pipeline(orders, [forward] * stages, [backward] * stages)


@pytest.mark.parametrize(("stages", "batches"), SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_equal_stages_have_the_bubble_of_the_formula(name, stages, batches):
    works = simulate(name, stages, batches)
    assert find_bubble(works) == pytest.approx(predict_bubble(stages, batches))
    assert max(work.end for work in works) == pytest.approx(3 * (batches + stages - 1))


@pytest.mark.parametrize(("stages", "batches"), SHAPES)
def test_1f1b_stores_at_most_as_many_as_there_are_stages_behind(stages, batches):
    assert count_stored(simulate("AFAB", stages, batches)) == [batches] * stages
    expected = [min(stages - stage, batches) for stage in range(stages)]
    assert count_stored(simulate("1F1B", stages, batches)) == expected


@pytest.mark.parametrize("name", NAMES)
def test_every_computation_has_its_input_and_no_stage_does_two_things(name):
    works = simulate_pipeline(make_orders(name, 3, 4), [1, 3, 2], [2, 1, 4])
    ends = {work[:3]: work.end for work in works}
    assert len(ends) == len(works) == 2 * 3 * 4
    for stage, kind, batch, start, _ in works:
        if kind == "F" and stage > 0:
            assert ends[stage - 1, "F", batch] <= start
        if kind == "B":
            assert ends[(stage + 1, "B", batch) if stage < 2 else (2, "F", batch)] <= start
    for stage in range(3):
        own = sorted((work for work in works if work.stage == stage), key=lambda work: work.start)
        assert all(one.end <= other.start for one, other in itertools.pairwise(own))


def test_the_slowest_stage_decides():
    """With many micro-batches, the step takes as long as the slowest stage computes."""
    works = simulate_pipeline(make_orders("1F1B", 3, 200), [1, 2, 1], [1, 2, 1])
    assert max(work.end for work in works) == pytest.approx(200 * 4, rel=0.02)
    assert find_bubble(works) == pytest.approx(1 / 3, abs=0.02)


def test_stages_that_wait_for_each_other_are_found():
    with pytest.raises(ValueError, match="for ever"):
        simulate_pipeline([[("B", 0), ("F", 0)], [("F", 0), ("B", 0)]], [1, 1], [1, 1])


def test_the_figure_says_bubble_and_stored_batches():
    with plt.style.context("default"):
        figure = draw_pipelines({name: simulate(name, 2, 8) for name in NAMES}, "Two orders")
    assert [axis.get_title() for axis in figure.axes] == [
        "AFAB: bubble 11%, stored micro-batches: at most 8",
        "1F1B: bubble 11%, stored micro-batches: at most 2",
    ]
    assert [len(axis.patches) for axis in figure.axes] == [32, 32]
    plt.close(figure)


@pytest.fixture(scope="module", params=[2, 3])
def measured(request, tmp_path_factory):
    size = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("ranks"))
        arguments = {"batches": 4, "seconds": (0.005, 0.01)}
        found = run_ranks(pipeline, arguments=arguments, processes=size, environment=ON_CPU)
    return size, found["pipelines"]


@pytest.mark.lesson_changed
def test_real_ranks_have_the_gradients_of_one_process(measured):
    _, found = measured
    ways = {f"{name}, {way}" for name in NAMES for way in ("by hand", "PyTorch's")}
    assert set(found) == {"whole batch", *ways}
    assert max(result["gap"] for result in found.values()) < 1e-12


@pytest.mark.lesson_changed
def test_real_ranks_compute_in_the_simulated_order_and_store_as_much(measured):
    size, found = measured
    for name, result in found.items():
        works = [Work(*work) for work in result["works"]]
        word, _, _ = name.replace("whole batch", "AFAB").partition(",")
        batches = 1 if name == "whole batch" else 4
        for stage, order in enumerate(make_orders(word, size, batches)):
            own = [work for work in works if work.stage == stage]
            assert [(work.kind, work.batch) for work in own] == order
        assert count_stored(works) == count_stored(simulate(word, size, batches))


@pytest.mark.lesson_changed
def test_no_real_stage_begins_before_its_input_is_there(measured):
    size, found = measured
    for result in found.values():
        works = [Work(*work) for work in result["works"]]
        ends = {work[:3]: work.end for work in works}
        for stage, kind, batch, start, _ in works:
            if kind == "F" and stage > 0:
                assert ends[stage - 1, "F", batch] <= start
            if kind == "B" and stage < size - 1:
                assert ends[stage + 1, "B", batch] <= start
