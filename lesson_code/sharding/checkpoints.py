"""A sharded training with checkpoints, in which the last rank can be told to die while it saves."""

import os
import signal
from pathlib import Path
from typing import Any, cast
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim import AdamW

from course_utils.ranks import DEVICE
from lesson_code.sharding.saving_shards import load_shards, save_shards

STEPS, SAVE_EVERY = 20, 5
BATCH = 12  # a multiple of 1, 2 and 3 ranks

Pair = tuple[nn.Module, AdamW]


def make_training(size: int = 0) -> Pair:
    """A small network in double precision and its AdamW, whole or sharded over ``size`` ranks.

    Neither 2 nor 3 divides all of its dimensions, so some shards are shorter than others.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 17), nn.Tanh(), nn.Linear(17, 5)).to(DEVICE, torch.float64)
    if size:
        mesh = init_device_mesh(DEVICE.type, (size,))
        for part in (model[0], model[2], model):
            fully_shard(part, mesh=mesh)
    return model, AdamW(model.parameters(), lr=0.02, weight_decay=0.1)


def take_step(model: nn.Module, optimizer: AdamW, step: int, rank: int = 0, size: int = 1) -> None:
    """One step on this rank's part of a batch that follows from the number of the step."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(BATCH, 8, generator=generator, dtype=torch.float64).to(DEVICE)  # (B, 8)
    y = torch.randint(5, (BATCH,), generator=generator).to(DEVICE)  # (B,)
    optimizer.zero_grad()
    F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
    optimizer.step()


def read_whole(model: nn.Module, optimizer: AdamW) -> dict[str, Tensor]:
    """Weights and moments, unsharded, by name; of a sharded training on rank 0, elsewhere nothing.

    All ranks have to call it, because it gathers the shards. The optimizer must have taken a step:
    of a new one PyTorch makes the state by a step of length zero, which Adam counts.
    """
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, state = get_state_dict(model, optimizer, options=options)
    found, moments = dict[str, Any](weights), cast(dict[str, Any], state.get("state", {}))
    for name, values in moments.items():
        found |= {f"{name}.{kind}": value for kind, value in values.items()}
    return {name: tensor.clone() for name, tensor in found.items()}


def run_undisturbed(steps: int = STEPS) -> dict[str, Tensor]:
    """Weights and moments of one process that takes the same steps on whole batches."""
    model, optimizer = make_training()
    for step in range(steps):
        take_step(model, optimizer, step)
    return read_whole(model, optimizer)


def find_gap(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """The largest difference between two states with the same names."""
    if ours.keys() != theirs.keys():
        raise ValueError(f"not the same state: {sorted(ours.keys() ^ theirs.keys())}")
    return max((ours[name] - theirs[name]).abs().max().item() for name in ours)


def die_while_writing() -> None:
    """From now on this process is killed when half of its next file is on the disk."""
    write = FileSystemWriter.write_data

    def write_half(self: FileSystemWriter, *arguments: Any) -> Any:
        write(self, *arguments).wait()
        for path in Path(self.path).glob(f"__{dist.get_rank()}_*"):
            os.truncate(path, path.stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)

    mock.patch.object(FileSystemWriter, "write_data", write_half).start()


def measure(rank: int, size: int, folder: str, die_at: int = 0, **_: object) -> dict[str, Any]:
    """Train from the last checkpoint on, and save after every fifth step.

    Args:
        folder: of the checkpoints. Rank 0 also puts the unsharded state beside each of them, as
            ``whole_….pt``, to compare with what others load.
        die_at: while the state after this step is saved, the last rank is killed.

    Returns:
        The first step, and the state right after loading, empty at step 0.
    """
    model, optimizer = make_training(size)
    first = load_shards(folder, model, optimizer)
    loaded = read_whole(model, optimizer) if first else {}
    for step in range(first, STEPS):
        take_step(model, optimizer, step, rank, size)
        done = step + 1
        if done % SAVE_EVERY:
            continue
        whole = read_whole(model, optimizer)
        if rank == 0:
            torch.save(whole, Path(folder, f"whole_{done:06}.pt"))
        if (rank, done) == (size - 1, die_at):
            die_while_writing()
        save_shards(folder, done, model, optimizer)
    return {"begun at": first, "loaded": loaded}
