"""Lightning's ``ModelParallelStrategy`` on CPU ranks, and what its Trainer saves."""

from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

from course_utils.training import quiet_trainer

EXAMPLES = 24  # a multiple of 1, 2 and 3 ranks


class LitSharded(L.LightningModule):
    """A small network that the Trainer shards, if its strategy has a mesh of devices."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 17), nn.Tanh(), nn.Linear(17, 5)).double()

    def configure_model(self) -> None:
        """Called when the ranks have met and the mesh is there; by `load_from_checkpoint`, too."""
        mesh = self.device_mesh
        if mesh is not None:
            for part in (self.model[0], self.model[2], self.model):
                fully_shard(part, mesh=mesh["data_parallel"])

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return F.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.02)


def make_loader(size: int) -> DataLoader:
    """One batch in every epoch, of which each rank gets its part."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(EXAMPLES, 8, generator=generator, dtype=torch.float64)
    return DataLoader(TensorDataset(x, torch.arange(EXAMPLES) % 5), EXAMPLES // size)


def train(size: int, epochs: int, path: str = "", sharded: bool = True, start: str = "") -> Tensor:
    """The weights of all ranks after so many epochs, as one vector.

    Args:
        path: a checkpoint to write at the end; none if empty.
        sharded: each rank writes its own shards into a folder; else rank 0 writes one file.
        start: a checkpoint to go on from; none if empty.
    """
    strategy = ModelParallelStrategy(size, 1, save_distributed_checkpoint=sharded)
    options: dict[str, Any] = {"accelerator": "cpu", "devices": size, "strategy": strategy}
    trainer = quiet_trainer(max_epochs=epochs, **options)
    lit = LitSharded()
    trainer.fit(lit, make_loader(size), ckpt_path=start or None)
    if path:
        trainer.save_checkpoint(path)
    parts: list[Any] = list(lit.parameters())
    return torch.cat([part.full_tensor().flatten() for part in parts]).detach()


def measure(rank: int, size: int, trained: str = "trained", **_: object) -> dict[str, Any]:
    """Four epochs at once; and two, a checkpoint, and two more.

    Args:
        trained: beginning of the names of a sharded checkpoint and of one in a single file.
    """
    whole = train(size, 4)
    train(size, 2, f"{trained}_shards.ckpt")
    again = train(size, 4, f"{trained}_file.ckpt", sharded=False, start=f"{trained}_shards.ckpt")
    return {"trainer, at once": whole, "trainer, resumed": again}
