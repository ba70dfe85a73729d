"""ZeRO 1 and ZeRO 3 by PyTorch's own means; lesson 20 prints this source."""

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW, Optimizer

from course_utils.models.text_small import TextSmall

__all__ = ["make_redundancy", "make_sharded"]


def make_redundancy(model: TextSmall, lr: float) -> tuple[nn.Module, Optimizer]:
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return ddp, ZeroRedundancyOptimizer(ddp.parameters(), AdamW, lr=lr)


def make_sharded(model: TextSmall, lr: float) -> tuple[nn.Module, Optimizer]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (*model.blocks, model):  # each block is a unit, and what is left is one
        fully_shard(part, mesh=mesh, reshard_after_forward=True)
    return model, AdamW(model.parameters(), lr)  # after fully_shard, of the parts
