"""Save and load a sharded training, so that any number of ranks can go on from it."""

from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.optim import Optimizer


def save_shards(folder: str, step: int, model: nn.Module, optimizer: Optimizer) -> None:
    """Each rank writes its shards; the folder gets its name when all of them are there."""
    weights, state = get_state_dict(model, optimizer)
    part = Path(folder, f"part_{step:06}")
    dcp.save({"step": step, "model": weights, "optimizer": state}, checkpoint_id=part)
    if dist.get_rank() == 0:  # dcp.save has returned, so all ranks have written
        part.rename(part.with_name(f"step_{step:06}"))
    dist.barrier()


def load_shards(folder: str, model: nn.Module, optimizer: Optimizer) -> int:
    """Load the last complete checkpoint; the first step that is still to do."""
    last = max(Path(folder).glob("step_*"), default=None)
    if last is None:
        return 0
    weights, state = get_state_dict(model, optimizer)  # says which shards this rank needs
    saved: dict[str, Any] = {"step": 0, "model": weights, "optimizer": state}
    dcp.load(saved, checkpoint_id=last)  # in place
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    return saved["step"]
