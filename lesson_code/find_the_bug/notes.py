"""Notes of what happens while a script runs: batches, targets, losses, learning rates."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from lesson_code.find_the_bug.bench import Bench, Start

__all__ = ["Budget", "run_noted", "watch"]


@contextmanager
def watch(model: nn.Module | None, bench: Bench) -> Iterator[SimpleNamespace]:
    """Notes of every training and validation batch of photographs, loss and learning rate.

    ``trained`` and ``validated`` are the numbers of the photographs, in order.
    """
    notes = SimpleNamespace(trained=[], validated=[], targets=[], losses=[], lrs=[])
    plain_loss, last = F.cross_entropy, SimpleNamespace(batch=None)
    before = copy.deepcopy(model.state_dict()) if model else None

    def note_batch(module: nn.Module, args: tuple) -> None:
        batch = args[0]
        if batch is last.batch or batch.shape[1:] != bench.images.shape[1:]:
            return  # the parts of a network get the batch once more, or features
        last.batch = batch
        noted = notes.trained if torch.is_grad_enabled() else notes.validated
        noted.extend(bench.number_of(batch))

    def note_loss(logits: Tensor, targets: Tensor, **options: Any) -> Tensor:
        loss = plain_loss(logits, targets, **options)
        notes.targets.append(targets)
        notes.losses.append(loss.item())
        return loss

    def note_step(optimizer: Optimizer, *_: object) -> None:
        notes.lrs.append(optimizer.param_groups[0]["lr"])

    hooks = [register_module_forward_pre_hook(note_batch)]
    hooks.append(register_optimizer_step_pre_hook(note_step))
    try:
        with mock.patch.object(F, "cross_entropy", note_loss):
            yield notes
    finally:
        for hook in hooks:
            hook.remove()
    notes.before, notes.model = before, model


def run_noted(bench: Bench, script: Callable, start: Start) -> SimpleNamespace:
    """Run a script, and return the notes with what the measurements compare them with."""
    with watch(start.model, bench) as notes:
        found = script(*start.arguments)
    notes.available = start.available or len(bench.images)
    notes.classes = bench.classes if start.classes is None else start.classes
    notes.report_gap = lambda: start.gap(script, found)
    return notes


class Budget:
    """``take_one(script, start, measurement)`` prints a measurement, a few for each script.

    Args:
        bench: with the photographs.
        seed: of the start.
        most: measurements that a script may have.
    """

    def __init__(self, bench: Bench, seed: int, most: int) -> None:
        self.bench, self.seed, self.most = bench, seed, most
        self.used: dict[str, set[str]] = {}

    def __call__(self, script: Callable, start: Callable, measurement: Callable) -> None:
        used, name = self.used.setdefault(script.__name__, set()), measurement.__name__
        if name not in used and len(used) == self.most:
            print(f"the budget of {self.most} is used: think about {', '.join(sorted(used))}")
            return
        used.add(name)
        print(f"{name}: {measurement(run_noted(self.bench, script, start(self.seed))):.3g}")
