"""FSDP: each rank holds a part of every parameter, and the gradients are those of one process."""

from typing import Any

import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from lesson_code.ddp.small import DEVICE, build, make_batch


def measure(rank: int, size: int) -> dict[str, Any]:
    x, y = make_batch()
    mesh = init_device_mesh(DEVICE.type, (size,))
    whole, model = build(), build()
    F.cross_entropy(whole(x), y).backward()
    for part in (model[0], model[3], model):  # each layer gathers its own, the model what is left
        fully_shard(part, mesh=mesh)
    F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
    parts: list[Any] = list(model.parameters())
    pairs: Any = zip(parts, whole.parameters(), strict=True)
    gap = max((part.grad.full_tensor() - own.grad).abs().max() for part, own in pairs)
    held = sum(part.to_local().numel() for part in parts)
    print(f"I hold {held} of {sum(own.numel() for own in whole.parameters())} parameters")
    return {"sharded, gap": gap.item()}
