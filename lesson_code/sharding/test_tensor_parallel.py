"""A split block is the whole block, on real ranks, and sends what the formula says."""

import pytest
import torch

from course_utils.models.text_small import Block
from course_utils.ranks import ON_CPU, run_ranks
from lesson_code.sharding import tensor_parallel
from lesson_code.sharding.split_block import SplitBlock
from lesson_code.sharding.tensor_parallel import (
    HEADS,
    TEXTS,
    TOKENS,
    WIDTH,
    count_parameters_of_rank,
    predict_sent,
)


@pytest.fixture(scope="module", params=[2, 3])
def measured(request, tmp_path_factory):
    size = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("ranks"))
        found = run_ranks(tensor_parallel, processes=size, environment=ON_CPU)
    return size, found["tensor parallel"]


@pytest.mark.lesson_changed
def test_output_and_gradients_are_those_of_the_whole_block(measured):
    _, found = measured
    assert set(found) == {"by hand", "with sequence", "PyTorch's"}
    assert max(result["gap"] for result in found.values()) < 1e-12


@pytest.mark.lesson_changed
def test_each_rank_has_its_share_of_the_matrices(measured):
    size, found = measured
    for result in found.values():
        assert result["parameters"] == count_parameters_of_rank(WIDTH, size)


@pytest.mark.lesson_changed
def test_two_all_reduces_in_each_pass(measured):
    _, found = measured
    both = {"forward": {"all_reduce": 2}, "backward": {"all_reduce": 2}}
    assert found["by hand"]["calls"] == both
    swapped = {"all_gather": 2, "reduce_scatter": 2}
    assert found["with sequence"]["calls"] == {"forward": swapped, "backward": swapped}


@pytest.mark.lesson_changed
def test_the_bytes_are_those_of_the_formula_with_and_without_sequence(measured):
    size, found = measured
    expected = predict_sent(WIDTH, TEXTS * TOKENS, size)
    assert found["by hand"]["sent_bytes"] == found["with sequence"]["sent_bytes"] == expected
    assert found["with sequence"]["numbers"] * size == TEXTS * TOKENS * WIDTH


@pytest.mark.lesson_changed
def test_the_library_adds_up_the_gradients_of_q_k_and_v_one_by_one(measured):
    _, found = measured
    calls = found["PyTorch's"]["calls"]
    assert calls == {"forward": {"all_reduce": 2}, "backward": {"all_reduce": 4}}
    assert found["PyTorch's"]["sent_bytes"] == found["by hand"]["sent_bytes"] * 6 // 4


def test_the_formula_counts_a_real_block():
    whole = Block(WIDTH, HEADS)
    assert count_parameters_of_rank(WIDTH, 1) == sum(p.numel() for p in whole.parameters())
    part = SplitBlock(whole, 1, 2)
    assert count_parameters_of_rank(WIDTH, 2) == sum(p.numel() for p in part.parameters())


def test_the_parts_are_cut_where_the_ranks_expect_them():
    """Two parts in one process: what they compute before the sums adds up to the whole."""
    torch.manual_seed(0)
    block = Block(16, 4).double()
    x, mask = torch.randn(2, 5, 16, dtype=torch.float64), torch.ones(5, 5, dtype=torch.bool).tril()
    parts = [SplitBlock(block, r, 2, enter=torch.clone, leave=torch.clone) for r in range(2)]
    bias = block.o.bias
    attended = sum(part.attend(x, mask) - bias for part in parts) + bias
    y = x + attended
    widened = sum(part.widen(y) - block.down.bias for part in parts) + block.down.bias
    torch.testing.assert_close(y + widened, block(x, mask))


def test_heads_that_cannot_be_dealt_out_are_refused():
    with pytest.raises(ValueError, match="4 heads cannot be dealt out to 3 ranks"):
        SplitBlock(Block(12, 4), 0, 3)
