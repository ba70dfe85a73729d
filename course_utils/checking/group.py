"""A group of ranks for a check: threads in place of processes, so that an answer runs at once."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError
from typing import Any

import torch
from torch import Tensor

from course_utils.checking.checking import require

__all__ = ["Group", "run_group"]

LIMIT_S = 60  # a guard against a hang, not a measurement
ENDED = "has ended"


class Group:
    """One rank's access to the others: its methods have the arguments of `torch.distributed`'s.

    Every call ends when all ranks have made it, and all must make the same calls. A barrier makes
    them wait for each other, also at their end, so that a rank that makes another call than the
    others is found, and none waits for one that has ended.
    """

    def __init__(self, meeting: "_Meeting", rank: int) -> None:
        self._meeting, self._rank = meeting, rank

    def all_reduce(self, tensor: Tensor) -> None:
        """The sum over the ranks, in place."""
        self._meeting.call(self._rank, "all_reduce", (tensor.detach(),))

    def broadcast(self, tensor: Tensor) -> None:
        """Rank 0's tensor in all ranks, in place."""
        self._meeting.call(self._rank, "broadcast", (tensor.detach(),))

    def reduce_scatter_single(self, output: Tensor, input: Tensor) -> None:
        """``input`` ``(P,)`` summed over the ranks; this rank's part ``(P / n,)`` in ``output``."""
        self._meeting.call(self._rank, "reduce_scatter_single", (output.detach(), input.detach()))

    def all_gather_single(self, output: Tensor, input: Tensor) -> None:
        """The ``input`` ``(P / n,)`` of all ranks, one after the other, in ``output`` ``(P,)``."""
        self._meeting.call(self._rank, "all_gather_single", (output.detach(), input.detach()))


class _Meeting:
    """Where the ranks meet: what each of them does now, and the tensors that it has brought."""

    def __init__(self, ranks: int) -> None:
        self.doing = [ENDED] * ranks
        self.tensors: list[tuple[Tensor, ...]] = [()] * ranks
        self.barrier = Barrier(ranks, self._carry_out, timeout=LIMIT_S)

    def call(self, rank: int, name: str, tensors: tuple[Tensor, ...]) -> None:
        shapes = " and ".join(str(tuple(tensor.shape)) for tensor in tensors)
        self.doing[rank] = f"waits in {name} of shape {shapes}"
        self.tensors[rank] = tensors
        self.barrier.wait()

    def end(self, rank: int) -> None:
        self.doing[rank], self.tensors[rank] = ENDED, ()
        self.barrier.wait()

    def _carry_out(self) -> None:
        """The call that all ranks wait in; the rank that comes last does it for all."""
        said = ", ".join(f"rank {rank} {doing}" for rank, doing in enumerate(self.doing))
        alike = len(set(self.doing)) == 1
        rule = "all ranks must make the same calls, with tensors of the same shapes"
        require(alike, f"{said.capitalize()}: {rule}.")
        if self.doing[0] == ENDED:
            return
        name = self.doing[0].split()[2]
        if name == "reduce_scatter_single":
            total = torch.stack([whole for _, whole in self.tensors]).sum(dim=0)
            fits = len(total) == sum(len(part) for part, _ in self.tensors)
            require(
                fits, f"{said.capitalize()}: the parts of all ranks together are not the whole."
            )
            for (part, _), own in zip(self.tensors, total.chunk(len(self.tensors)), strict=True):
                part.copy_(own)
        elif name == "all_gather_single":
            joined = torch.cat([part for _, part in self.tensors])
            fits = joined.shape == self.tensors[0][0].shape
            require(
                fits, f"{said.capitalize()}: the parts of all ranks together are not the whole."
            )
            for whole, _ in self.tensors:
                whole.copy_(joined)
        else:
            brought = [tensor for (tensor,) in self.tensors]
            found = torch.stack(brought).sum(dim=0) if name == "all_reduce" else brought[0].clone()
            for tensor in brought:
                tensor.copy_(found)


def run_group(ranks: Sequence[Callable[[Group], Any]]) -> list[Any]:
    """What each of the functions returns; each is a rank, gets its group, and has a thread.

    Raises:
        CheckFailed: the ranks do not make the same calls.
    """
    meeting = _Meeting(len(ranks))

    def run(rank: int) -> Any:
        try:
            found = ranks[rank](Group(meeting, rank))
            meeting.end(rank)
            return found
        except BrokenBarrierError:  # what broke it is raised in another thread
            return None
        except Exception:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(len(ranks)) as pool:
        running = [pool.submit(run, rank) for rank in range(len(ranks))]
        return [future.result() for future in running]
