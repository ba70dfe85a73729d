"""What four learning-rate finders suggest, each on a range test with its library's own defaults.

`TakeSuggestion` trains at one of these suggestions. The formulas are those of Lightning 2.6.6 and
fastai 2.8 (``fastai/callback/schedule.py``). A test compares Lightning's with its `Tuner`.
"""

import copy
import math
from collections.abc import Callable, Iterable
from functools import partial

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.config import Config
from course_utils.data.load import load_data
from course_utils.measure.timing import ends_epoch
from course_utils.training.lit_classifier import LitClassifier

__all__ = ["FINDERS", "TakeSuggestion", "find_suggestions", "find_valley", "smooth_losses"]

STEPS = 100  # of a range test: the default of both libraries
BETA = 0.98  # of the moving average of the losses
LIMIT = 4.0  # times the lowest average: there a range test ends
FINDERS = ("Lightning's suggestion", "steepest slope", "valley", "a tenth of the lowest")
_FOUND: dict[tuple[Config, int, str], dict[str, float]] = {}  # in a process, by what decides it

Curve = tuple[np.ndarray, np.ndarray]  # learning rates and smoothed losses, (steps,) each


def smooth_losses(losses: np.ndarray, ahead: int = 0) -> np.ndarray:
    """The moving average over its first steps' share; Lightning counts one step ``ahead``."""
    average, smoothed = 0.0, []
    for count, loss in enumerate(losses, start=1):
        average = BETA * average + (1 - BETA) * loss
        smoothed.append(average / (1 - BETA ** (count + ahead)))
    return np.array(smoothed)


def run_range_test(
    network: nn.Module,
    make_optimizer: Callable,
    batches: Iterable,
    learning_rates: np.ndarray,
    ahead: int,
    compute_loss: Callable,
) -> Curve:
    """One step per learning rate, on a copy; ends at ``LIMIT`` times the lowest average."""
    network = copy.deepcopy(network).train()
    optimizer = make_optimizer(list(network.named_parameters()))
    losses: list[float] = []
    for learning_rate, (inputs, targets) in zip(learning_rates, batches, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = float(learning_rate)
        optimizer.zero_grad()
        loss = compute_loss(network, inputs, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        smoothed = smooth_losses(np.array(losses), ahead)
        if not smoothed[-1] <= LIMIT * smoothed.min():  # NaN is not below any number
            break
    finite = np.isfinite(smoothed)
    return learning_rates[: len(losses)][finite], smoothed[finite]


def find_valley(losses: np.ndarray) -> int:
    """fastai's *valley*: the index at the middle of the longest falling subsequence, roughly.

    Args:
        losses: ``(n,)``.

    Returns:
        The start of the subsequence plus one third and one sixth of its length, each rounded down,
        where fastai counts the length in points and takes the start from it.
    """
    longest = np.ones(len(losses), dtype=int)  # of a falling subsequence that ends at a point
    end = start = 0
    for i in range(1, len(losses)):
        for j in range(i):
            if losses[i] < losses[j] and longest[i] < longest[j] + 1:
                longest[i] = longest[j] + 1
            if longest[end] < longest[i]:
                end = i
                start = end - longest[end]
    third = (end - start) / 3
    return int(start) + int(third) + int(third / 2)


def place_as_lightning() -> np.ndarray:
    """1e-8 to 1; the second step is already two of a hundred parts up."""
    rates = 1e-8 * (1 / 1e-8) ** ((1 + np.arange(STEPS)) / STEPS)
    rates[0] = 1e-8
    return rates


def place_as_fastai() -> np.ndarray:
    """1e-7 to nearly 10."""
    return 1e-7 * (10 / 1e-7) ** (np.arange(STEPS) / STEPS)


def find_suggestions(lightning: Curve, fastai: Curve) -> dict[str, float]:
    """The learning rate of each finder, from the range tests of both libraries.

    Lightning's suggestion is where the loss falls fastest over the learning rate. Before 2.5.3 it
    was where it falls fastest from step to step, which is over the logarithm: the steepest slope.
    fastai has *valley*, its default, and a tenth of the lowest, which it calls ``minimum``.
    """
    rates, losses = (values[10:-1] for values in lightning)
    of_fastai, falling = (values[STEPS // 10 : -5] for values in fastai)
    return {
        "Lightning's suggestion": float(rates[np.gradient(losses, rates).argmin()]),
        "steepest slope": float(rates[np.gradient(losses).argmin()]),
        "valley": float(of_fastai[find_valley(falling)]),
        "a tenth of the lowest": float(of_fastai[falling.argmin()]) / 10,
    }


class TakeSuggestion(L.Callback):
    """Runs the range tests before a training, and trains at what one finder suggests.

    The optimizer of the training is made without a learning rate: this callback gives it. Logged
    at the end are the suggestions of all finders, as logarithms to base 10.

    Args:
        finder: one of `FINDERS`.
        config: of the data; the batches are those of the training's seed.
    """

    def __init__(self, finder: str, config: Config):
        self.finder, self.config = finder, config.replace(epochs=1)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Before Lightning makes the optimizer."""
        if stage != "fit":
            return
        assert isinstance(pl_module, LitClassifier)
        make: Callable[..., torch.optim.Optimizer] = pl_module.make_optimizer
        seed = torch.initial_seed()
        key = (self.config, seed, str(getattr(make, "func", make)))
        if key not in _FOUND:
            with torch.random.fork_rng():
                _FOUND[key] = self._measure(trainer, pl_module.model, make, seed)
        self.found = _FOUND[key]
        pl_module.make_optimizer = partial(make, lr=self.found[self.finder])

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_) -> None:
        if ends_epoch(trainer):
            logged = {f"lr {name}": math.log10(lr) for name, lr in self.found.items()}
            pl_module.log_dict(logged, on_step=False, on_epoch=True, batch_size=1)

    def _measure(self, trainer, network: nn.Module, make: Callable, seed: int) -> dict[str, float]:
        data = load_data(self.config)
        device = trainer.strategy.root_device

        def compute_loss(network, inputs, targets):
            with trainer.precision_plugin.forward_context():
                return F.cross_entropy(network(inputs.to(device)), targets.to(device))

        def list_batches():
            loader = data.train_loader(seed)  # each epoch has its own order
            while True:
                yield from loader

        network = copy.deepcopy(network).to(device)
        curves = [
            run_range_test(network, make, list_batches(), rates, ahead, compute_loss)
            for rates, ahead in ((place_as_lightning(), 1), (place_as_fastai(), 0))
        ]
        return find_suggestions(*curves)
