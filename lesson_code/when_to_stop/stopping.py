"""What lesson 18's study follows: when a rule ends a training, and what it restores.

One training gives the last weights and what every rule would have restored, because a rule only
watches. Definitions are of three kinds, and none is of two: those of the training, 200 of the
validation split, which choose, and 1,000 at the end of the training split, which are *fresh*: they
are not trained on, and choose nothing.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from timm.utils import ModelEmaV3
from torch import nn

from course_utils.config import Config
from course_utils.data.load import load_data
from course_utils.data.text_data import TextData, Texts
from course_utils.data.tokens import pad_texts

__all__ = ["CHECK_EVERY", "NUM_FRESH", "PATIENCES", "FollowStopping", "measure_texts"]

CHECK_EVERY = 3  # steps: an epoch of 96 definitions in batches of 32
FRESH_EVERY = 10  # checks after which the fresh definitions are looked at, too
NUM_FRESH = 1000
PATIENCES = {"3": 3, "5": 5, "10": 10, "all": math.inf}  # checks; "all": the best of the training
SCORES = ("loss", "accuracy")
BATCH_SIZE = 32  # of texts of similar length, which need little padding

State = Mapping[str, torch.Tensor]
load = cache(load_data)  # a process trains many times on the same data


def take_fresh(data: TextData) -> Texts:
    """The definitions at the end of the training split."""
    return Texts(data.train.tokens[-NUM_FRESH:], data.train.targets[-NUM_FRESH:])


@torch.no_grad()
def measure_texts(network: nn.Module, texts: Texts) -> dict[str, float]:
    """Mean loss in nats and accuracy in [0, 1], in eval mode; the mode is as before afterwards."""
    was_training, device = network.training, next(network.parameters()).device
    order = np.argsort([len(tokens) for tokens in texts.tokens], kind="stable")
    loss, right = 0.0, 0
    network.eval()
    for start in range(0, len(order), BATCH_SIZE):
        rows = order[start : start + BATCH_SIZE]
        logits = network(pad_texts([texts.tokens[row] for row in rows]).to(device)).float()
        targets = torch.from_numpy(texts.targets[rows]).to(device)
        loss += F.cross_entropy(logits, targets, reduction="sum").item()
        right += int((logits.argmax(dim=1) == targets).sum())
    network.train(was_training)
    return {"loss": loss / len(order), "accuracy": right / len(order)}


def copy_state(network: nn.Module) -> State:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


@dataclass(eq=False)
class FollowStopping(L.Callback):
    """Checks a training, ends it by a rule if it is told to, and validates what is returned.

    A check measures the loss and the accuracy of the validation split after every `CHECK_EVERY`
    steps. A rule watches one of them, and stops when so many checks in a row, its patience, were
    not better than the best one; that one is restored. Logged at the end are ``fresh_loss`` and
    ``fresh_accuracy`` of what is returned, ``checks``, how many there were, and ``restored``, the
    number of the best one.

    Args:
        config: of the data.
        returned: what is validated, so that it decides about the trial: ``"last"`` weights,
            ``"ema"``, or the best ones by ``"loss"`` or ``"accuracy"``, which ends the training.
        patience: of the rule that ends it.
        follow: logs all checks, some of them on the fresh definitions, too, and what each rule
            would have restored. Needs a training to its end.
    """

    config: Config
    returned: str = "last"
    patience: str = "5"
    follow: bool = False
    logged: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.network = pl_module.get_submodule("model")
        self.probe = copy.deepcopy(self.network)  # gets the weights that are judged
        self.data = load(self.config)
        self.fresh = take_fresh(self.data)
        self.average = (
            ModelEmaV3(self.network, decay=0.9999, use_warmup=True)
            if self.returned == "ema"
            else None
        )
        self.checks: list[dict[str, float]] = []
        self.best: dict[str, tuple[int, State]] = {}  # by score: the check from 1, its weights
        self.ended: dict[tuple[str, str], tuple[int, int]] = {}  # by rule: its end, and the best
        self.judged: dict[int, dict[str, float]] = {}  # by check: on the fresh definitions

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *_: object
    ) -> None:
        if self.average is not None:
            self.average.update(self.network, step=trainer.global_step)
        is_watching = self.follow or self.returned in SCORES
        if is_watching and trainer.global_step % CHECK_EVERY == 0:
            self._check()
            trainer.should_stop |= (self.returned, self.patience) in self.ended

    def _check(self) -> None:
        self.checks.append(measure_texts(self.network, self.data.val))
        number, now = len(self.checks), self.checks[-1]
        if self.follow and number % FRESH_EVERY == 0:
            self.judged[number] = measure_texts(self.network, self.fresh)
        for score in SCORES:
            sign = -1 if score == "loss" else 1
            best, _ = self.best.get(score, (0, {}))
            if not best or sign * now[score] > sign * self.checks[best - 1][score]:
                self.best[score] = number, copy_state(self.network)
                continue
            for name, patience in PATIENCES.items():
                if (score, name) not in self.ended and number - best >= patience:
                    self._end_rule(score, name)

    def _end_rule(self, score: str, name: str) -> None:
        best, state = self.best[score]
        self.ended[score, name] = len(self.checks), best
        if self.follow and best not in self.judged:
            self.judged[best] = self._judge(state)

    def _judge(self, state: State) -> dict[str, float]:
        self.probe.load_state_dict(state)
        return measure_texts(self.probe, self.fresh)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Validated once, at the end: what is returned stays in the module."""
        if self.follow:
            self._log_rules()
        if self.average is not None:
            self.network.load_state_dict(self.average.module.state_dict())
        elif self.returned in SCORES:
            self.network.load_state_dict(self.best[self.returned][1])
        for name, value in measure_texts(self.network, self.fresh).items():
            self.logged[f"fresh_{name}"] = value
        self.logged["checks"] = len(self.checks)
        if self.returned in SCORES:
            self.logged["restored"] = self.best[self.returned][0]

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        pl_module.log_dict(self.logged)

    def _log_rules(self) -> None:
        """Every check, and of each rule its end, its best check, and what that reaches."""
        for number, now in enumerate(self.checks, start=1):
            self.logged |= {f"check_{number}_{name}": value for name, value in now.items()}
        for score in SCORES:
            for name in PATIENCES:
                if (score, name) not in self.ended:
                    self._end_rule(score, name)
                end, best = self.ended[score, name]
                rule = f"by_{score}_{name}"
                self.logged |= {f"{rule}_checks": end, f"{rule}_restored": best}
                fresh = self.judged[best]
                self.logged |= {f"{rule}_fresh_{x}": value for x, value in fresh.items()}
        for number in range(FRESH_EVERY, len(self.checks) + 1, FRESH_EVERY):
            fresh = self.judged[number]
            self.logged |= {f"check_{number}_fresh_{x}": value for x, value in fresh.items()}
