"""The averages that lesson 13's study follows, each measured with BatchNorm statistics of its own.

One training gives the last weights and all averages, because an average watches a training and does
not change it.
"""

import copy
from dataclasses import dataclass, field
from functools import cache

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import AdamW
from torch.optim.swa_utils import update_bn

from course_utils.config import Config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.measure.timing import ends_epoch

__all__ = ["DECAYS", "MeasureAverages", "share_of_step"]

DECAYS = (0.9, 0.999)  # of further EMAs, constant ones
NOISE = 0.15  # of random changes of the weights: the norm of each tensor's noise over its own norm
DIRECTIONS = 2  # of these random changes
FEW = 250  # training images on which the loss around the weights is measured

load = cache(load_data)  # a process trains many times on the same data


def share_of_step(name: str, step: int, total_steps: int) -> float:
    """What an average takes of the weights after a step: average += share · (weights - average).

    Args:
        name: ``"ema"``, whose decay rises as timm's warm-up has it, 1 - step^(-2/3), up to 0.9999;
            ``"swa"``, the mean of the second half; ``"ema 0.9"``, a constant decay.
        step: from 1. The first one is copied.
        total_steps: of the training.
    """
    if name == "ema":
        return max(1e-4, step ** (-2 / 3))
    if name == "swa":
        return 1 / max(1, step - total_steps // 2)
    return 1.0 if step == 1 else 1 - float(name.removeprefix("ema "))


@torch.no_grad()
def update(average: nn.Module, network: nn.Module, share: float) -> None:
    """Parameters and BatchNorm statistics; its counter of batches is copied."""
    own, new = average.state_dict(), network.state_dict()  # they share memory with the networks
    for name, tensor in own.items():
        if tensor.is_floating_point():
            tensor.lerp_(new[name], share)
        else:
            tensor.copy_(new[name])


def recompute_statistics(network: nn.Module, data: ImageData) -> nn.Module:
    """A copy with BatchNorm statistics of its own weights, over augmented training images."""
    network = copy.deepcopy(network)
    update_bn(data.train_loader(), network)
    return network


def take_statistics(network: nn.Module, source: nn.Module) -> nn.Module:
    """A copy with the BatchNorm statistics of another network."""
    network = copy.deepcopy(network)
    for buffer, other in zip(network.buffers(), source.buffers(), strict=True):
        buffer.copy_(other)
    return network


@torch.no_grad()
def measure_accuracy(network: nn.Module, data: ImageData) -> float:
    """Of the validation images, in [0, 1]."""
    network.eval()
    right = [network(images).argmax(dim=1) == targets for images, targets in data.eval_loader()]
    return torch.cat(right).float().mean().item()


@torch.no_grad()
def measure_rise(network: nn.Module, data: ImageData) -> float:
    """By how much random noise in the weights raises the training loss, in nats.

    The mean over `DIRECTIONS` directions, the same for every network, each tensor's noise scaled
    to the tensor's norm, and with new BatchNorm statistics.
    """
    few = data.take_train(FEW)
    losses = []
    for direction in range(DIRECTIONS + 1):  # the first time without noise
        changed = copy.deepcopy(network)
        generator = torch.Generator().manual_seed(direction)
        for tensor in changed.parameters() if direction else ():
            noise = torch.randn(tensor.shape, generator=generator)
            tensor.add_(NOISE * tensor.norm() * noise / noise.numel() ** 0.5)
        update_bn(few.plain_loader(), changed)
        changed.eval()
        batches = few.eval_loader(few.train)
        sums = [F.cross_entropy(changed(x), targets, reduction="sum") for x, targets in batches]
        losses.append(torch.stack(sums).sum().item() / len(few.train))
    return sum(losses[1:]) / DIRECTIONS - losses[0]


def cool_down(trainer: L.Trainer, network: nn.Module, data: ImageData) -> nn.Module:
    """A copy that trains one more epoch, while the learning rate falls in a line to zero."""
    network = copy.deepcopy(network).train()
    optimizer = AdamW(network.parameters())
    optimizer.load_state_dict(copy.deepcopy(trainer.optimizers[0].state_dict()))
    lr = optimizer.param_groups[0]["lr"]
    batches = data.train_loader(seed=10_000 + trainer.global_step)
    for step, (images, targets) in enumerate(batches):
        optimizer.param_groups[0]["lr"] = lr * (1 - step / len(batches))
        optimizer.zero_grad()
        with trainer.precision_plugin.forward_context():
            F.cross_entropy(network(images), targets).backward()
        optimizer.step()
    return network


@dataclass(eq=False)
class MeasureAverages(L.Callback):
    """Validates the last weights or their EMA with new BatchNorm statistics, and logs more.

    Logged at the end are accuracies: ``last_old``, of the last weights with the statistics of the
    training, and what the arguments ask for. The training is a plain one, with one optimizer step
    for each batch.

    Args:
        config: of the data.
        judged: ``"last"`` or ``"ema"``: what is validated, so that it decides about the trial.
        other: also logs the other one of the two, under its name.
        thorough: also logs other averages, other statistics, and how noise raises the loss.
        every: after each so many epochs but the last one, also logs ``last_old``, ``last`` and
            ``ema``, and once in so many ``cooldown``: that of a copy whose learning rate falls to
            zero within the same epoch. The number of the epoch is behind the name. 0: off.
    """

    config: Config
    judged: str = "last"
    other: bool = False
    thorough: bool = False
    every: int = 0
    logged: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        names = ["ema"] if self.other or self.judged == "ema" else []
        if self.thorough:
            names += ["swa", *(f"ema {decay}" for decay in DECAYS)]
        network = pl_module.get_submodule("model")
        self.averages = {name: copy.deepcopy(network) for name in names}

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *_: object
    ) -> None:
        network = pl_module.get_submodule("model")
        total_steps = int(trainer.estimated_stepping_batches)
        for name, average in self.averages.items():
            update(average, network, share_of_step(name, trainer.global_step, total_steps))
        if ends_epoch(trainer):
            with torch.random.fork_rng():
                self._end_epoch(trainer, network, load(self.config))
            if trainer.current_epoch + 1 == trainer.max_epochs:
                pl_module.log_dict(self.logged, on_step=False, on_epoch=True, batch_size=1)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Validated once, at the end: what is judged stays in the module."""
        pl_module.get_submodule("model").load_state_dict(self.chosen.state_dict())

    def _end_epoch(self, trainer: L.Trainer, network: nn.Module, data: ImageData) -> None:
        epoch = trainer.current_epoch + 1
        both = {"last": network} | self.averages
        if epoch == trainer.max_epochs:
            self.chosen = recompute_statistics(both[self.judged], data)
            self._log(trainer, "last_old", network, data)
            for name, found in both.items():
                if name != self.judged:
                    self._log(trainer, name, recompute_statistics(found, data), data)
            if self.thorough:
                self._measure_around(trainer, network, data)
            return
        if self.every and epoch % self.every == 0:
            self._log(trainer, f"last_old_{epoch}", network, data)
            for name in ("last", "ema"):
                found = recompute_statistics(both[name], data)
                self._log(trainer, f"{name}_{epoch}", found, data)
        if self.every and (epoch + 1) % self.every == 0:
            cooled = recompute_statistics(cool_down(trainer, network, data), data)
            self._log(trainer, f"cooldown_{epoch + 1}", cooled, data)

    def _log(self, trainer: L.Trainer, name: str, network: nn.Module, data: ImageData) -> None:
        with trainer.precision_plugin.forward_context():
            accuracy = measure_accuracy(copy.deepcopy(network), data)
        self.logged[name.replace(" ", "_")] = accuracy

    def _measure_around(self, trainer: L.Trainer, network: nn.Module, data: ImageData) -> None:
        """The EMA with other statistics; the loss around the last weights and the EMA."""
        average = self.averages["ema"]
        self._log(trainer, "ema_averaged_statistics", average, data)
        self._log(trainer, "ema_last_statistics", take_statistics(average, network), data)
        self.logged["rise_last"] = measure_rise(network, data)
        self.logged["rise_ema"] = measure_rise(average, data)
