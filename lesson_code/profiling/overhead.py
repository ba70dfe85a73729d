"""What Lightning's Trainer costs in each step beside a plain loop, flag by flag, in microseconds.

The network has one weight, so a step is nearly all overhead. Processor time is counted, in which
other programs hardly count. `measure_overhead` has the loops in turn, round by round; `Overhead`
reads what `study.py` stored of it.
"""

import contextlib
import logging
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest import mock

import lightning as L
import numpy as np
import pandas as pd
import torch
from lightning.pytorch.callbacks.progress import rich_progress
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from course_utils.measure.paired import paired_difference

__all__ = [
    "DEFAULTS",
    "FLAGS",
    "INTERACTIVE",
    "PLAIN",
    "UNLOGGED",
    "Overhead",
    "StampedModule",
    "Timing",
    "length_for_share",
    "make_loader",
    "measure_overhead",
    "run_plain_loop",
    "run_trainer",
]

PLAIN = "plain loop"
DEFAULTS = "Trainer, defaults"
INTERACTIVE = "defaults, interactive"
UNLOGGED = "no self.log"
ALL_OFF: dict[str, Any] = {
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
    "logger": False,
    "use_distributed_sampler": False,
}
# Arguments of the Trainer. Each flag is turned off alone, then all of them.
FLAGS: dict[str, dict[str, Any]] = {
    DEFAULTS: {},
    **{f"{name}={value}": {name: value} for name, value in ALL_OFF.items()},
    "log_every_n_steps=0": {"log_every_n_steps": 0},
    "log_every_n_steps=1": {"log_every_n_steps": 1},
    "all five off": ALL_OFF,
    "barebones=True": {"barebones": True},
    INTERACTIVE: {},
    f"defaults, {UNLOGGED}": {},
    f"all five off, {UNLOGGED}": ALL_OFF,
}
WARM_STEPS = 20  # not counted


class Timing(NamedTuple):
    """Microseconds of a step, and milliseconds of everything else that a training took."""

    step_us: float
    rest_ms: float


class StampedModule(L.LightningModule):
    """A network of one weight that notes when each of its training steps begins.

    Args:
        log: whether each step calls ``self.log``, as most modules do.
    """

    def __init__(self, log: bool = True):
        super().__init__()
        self.net = nn.Linear(1, 1, bias=False)
        self.log_loss = log
        self.stamps: list[float] = []  # seconds

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        self.stamps.append(time.process_time())
        loss = self.net(batch[0]).mean()
        if self.log_loss:
            self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


def make_loader(steps: int) -> DataLoader:
    """``steps`` batches of one number each."""
    return DataLoader(TensorDataset(torch.zeros(steps, 1)), batch_size=1)


def read_timing(stamps: list[float], total_s: float) -> Timing:
    """From the times at which steps began: the mean of those after the warm-up.

    Args:
        stamps: seconds, of more than ``WARM_STEPS`` + 1 steps.
        total_s: seconds of the whole training.

    Raises:
        ValueError: too few steps.
    """
    if len(stamps) < WARM_STEPS + 2:
        raise ValueError(f"{len(stamps)} steps: take {WARM_STEPS + 2} or more")
    step_s = (stamps[-1] - stamps[WARM_STEPS]) / (len(stamps) - 1 - WARM_STEPS)
    return Timing(1e6 * step_s, 1000 * (total_s - step_s * len(stamps)))


def run_plain_loop(steps: int) -> Timing:
    """The same training as `run_trainer`, in the loop that a textbook would write."""
    module = StampedModule(log=False)
    start = time.process_time()
    optimizer = module.configure_optimizers()
    for number, batch in enumerate(make_loader(steps)):
        loss = module.training_step(batch, number)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return read_timing(module.stamps, time.process_time() - start)


@contextlib.contextmanager
def quiet(interactive: bool) -> Iterator[None]:
    """Nothing is printed, but Lightning draws its bar as for a terminal of a person.

    Args:
        interactive: as where a person types, such as in IPython: there the bar is drawn in each
            step, and else ten times per second by a thread of its own.
    """
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "100"}
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
        mock.patch.dict(os.environ, terminal),
        mock.patch.object(rich_progress, "_IS_INTERACTIVE", interactive),
        warnings.catch_warnings(action="ignore"),
    ):
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def run_trainer(name: str, steps: int) -> Timing:
    """One epoch of ``steps`` steps by a Trainer with the arguments ``FLAGS[name]``, on the CPU."""
    module, loader = StampedModule(log=UNLOGGED not in name), make_loader(steps)
    with TemporaryDirectory() as folder, quiet(name == INTERACTIVE):
        start = time.process_time()
        trainer = L.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=1,
            default_root_dir=Path(folder),
            **FLAGS[name],
        )
        trainer.fit(module, loader)
        total_s = time.process_time() - start
    return read_timing(module.stamps, total_s)


def measure_overhead(rounds: int, steps: int) -> list[dict[str, Any]]:
    """For the plain loop and every entry of `FLAGS`, the times of each round.

    Each round has all of them, in an order of its own. One round more comes first and is not kept.
    """
    rows: dict[str, dict[str, Any]] = {
        name: {"loop": name, "step_us": [], "rest_ms": []} for name in (PLAIN, *FLAGS)
    }
    for number in range(-1, rounds):
        for name in np.random.default_rng(number + 1).permutation(list(rows)).tolist():
            timing = run_plain_loop(steps) if name == PLAIN else run_trainer(name, steps)
            if number >= 0:
                rows[name]["step_us"].append(round(timing.step_us, 2))
                rows[name]["rest_ms"].append(round(timing.rest_ms, 2))
    return list(rows.values())


def length_for_share(overhead_us: float, share: float) -> float:
    """Milliseconds of a step of which the overhead is ``share``, in (0, 1].

    Raises:
        ValueError: another share.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share {share}: it must be in (0, 1], such as 0.01")
    return overhead_us / share / 1000


class Overhead:
    """What `study.py` stored of `measure_overhead`.

    Args:
        content: of its file.
    """

    def __init__(self, content: Mapping[str, Any]):
        self._rows = {row["loop"]: row for row in content["overhead"]["rows"]}
        self.loops = list(self._rows)

    def step_us(self, loop: str) -> np.ndarray:
        """Microseconds of a step ``(R,)``, one for each round."""
        return np.array(self._rows[loop]["step_us"])

    def rest_ms(self, loop: str) -> np.ndarray:
        """Milliseconds of a training without its steps ``(R,)``, such as for its checkpoint."""
        return np.array(self._rows[loop]["rest_ms"])

    def over(self, loop: str, baseline: str = PLAIN) -> tuple[float, float, float]:
        """Microseconds per step more than the baseline, the mean and its 95 % interval."""
        found = paired_difference(self.step_us(baseline), self.step_us(loop))
        return found.mean, found.low, found.high

    def length_for_share(self, share: float, loop: str = DEFAULTS) -> float:
        """Milliseconds of a step of which the loop's overhead is ``share``."""
        return length_for_share(self.over(loop)[0], share)

    def table(self) -> pd.DataFrame:
        """One row for each loop: µs per step, more than the plain loop, saved by the flag."""
        rows = []
        for loop in self.loops:
            more, low, high = self.over(loop)
            saved, _, _ = self.over(DEFAULTS, loop)
            rows.append(
                {
                    "loop": loop,
                    "µs per step (median)": round(float(np.median(self.step_us(loop))), 1),
                    "more than the plain loop (mean)": round(more, 1),
                    "95 % interval": f"{low:.1f} to {high:.1f}",
                    "less than the defaults": round(saved, 1),
                    "ms once per training": round(float(np.median(self.rest_ms(loop))), 1),
                }
            )
        return pd.DataFrame(rows).set_index("loop")
