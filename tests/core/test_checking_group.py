import pytest
import torch

from course_utils.checking.checking import CheckFailed
from course_utils.checking.group import run_group


def test_ranks_sum_copy_and_share_what_they_bring():
    def work(rank, group):
        mine = torch.full((4,), float(rank + 1))
        group.all_reduce(mine)  # 1 + 2
        part = torch.empty(2)
        group.reduce_scatter_single(part, torch.arange(4.0) + 10 * rank)
        whole = torch.empty(4)
        group.all_gather_single(whole, part + rank)
        first = torch.full((1,), float(rank))
        group.broadcast(first)
        return mine.tolist(), part.tolist(), whole.tolist(), first.item()

    found = run_group([lambda group, rank=rank: work(rank, group) for rank in range(2)])
    assert found[0] == ([3.0] * 4, [10.0, 12.0], [10.0, 12.0, 15.0, 17.0], 0.0)
    assert found[1] == ([3.0] * 4, [14.0, 16.0], [10.0, 12.0, 15.0, 17.0], 0.0)


def test_a_rank_that_makes_another_call_is_named():
    def all_but_first(rank, group):
        if rank:
            group.all_reduce(torch.ones(3))

    ranks = [lambda group, rank=rank: all_but_first(rank, group) for rank in range(2)]
    with pytest.raises(CheckFailed, match=r"Rank 0 has ended, rank 1 waits in all_reduce of shape"):
        run_group(ranks)


def test_parts_that_do_not_fit_are_said():
    ranks = [lambda group: group.all_gather_single(torch.empty(3), torch.ones(2))] * 2
    with pytest.raises(CheckFailed, match="the parts of all ranks together are not the whole"):
        run_group(ranks)


def test_an_error_of_one_rank_is_raised_and_none_waits():
    def fail_on_rank_1(rank, group):
        if rank:
            raise ValueError("no such part")
        group.all_reduce(torch.ones(1))

    ranks = [lambda group, rank=rank: fail_on_rank_1(rank, group) for rank in range(2)]
    with pytest.raises(ValueError, match="no such part"):
        run_group(ranks)
