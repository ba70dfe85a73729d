"""A plain training loop that does ten things slowly, and a fix for each of them.

`FIXES` has the names. A `TrainingLoop` gets the names of those that it has: none of them in the
slow loop, `FAST` in the fast one. `list_comparisons` says which two loops tell what a fix saves,
and `SpeedUps` reads what `study.py` stored of them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn
from torch.optim import AdamW

from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.data.loaders import BatchDataset
from course_utils.data.tokens import pad_texts
from course_utils.measure.paired import PairedDifference
from course_utils.models.create import create_model

__all__ = [
    "DATASETS",
    "FAST",
    "FIXES",
    "LOOPS",
    "Comparison",
    "Examples",
    "Fix",
    "SpeedUps",
    "TrainingLoop",
    "add_biases",
    "list_comparisons",
    "list_fixes",
    "load_examples",
    "make_network",
    "stack_one_by_one",
]

DATASETS = {"photographs": "photos", "texts": "glosses"}
NETWORKS = {"photographs": "convnet_small", "texts": "text_small"}
BATCH_SIZE = 64
BATCHES = 10
VALIDATE_EVERY, NUM_VAL = 5, 250  # in the slow loop; as often as 1,000 examples each 20 steps
LOG_EVERY = 5  # steps, in a loop that does not log each of them
MARGIN = 0.02  # of a ratio of times: smaller differences do not matter
LOOPS = ("slow", "fast")


class Fix(NamedTuple):
    """What a loop without the fix does, and what a loop with it does."""

    slow: str
    fixed: str
    only: str = ""  # the one kind of examples that it is about; empty: both


FIXES = {
    "no item": Fix(
        "loss.item() and accuracy.item() in each step", "sums stay tensors and are read at the end"
    ),
    "batched copies": Fix(
        "torch.tensor for each example, then torch.stack", "torch.from_numpy, a batch at a time"
    ),
    "foreach optimizer": Fix(
        "AdamW(foreach=False)", "AdamW(foreach=True): all weights in each operation"
    ),
    "fused optimizer": Fix(
        "AdamW(foreach=False)", "AdamW(fused=True): the update in one operation"
    ),
    "set to none": Fix("zero_grad(set_to_none=False)", "zero_grad(set_to_none=True)"),
    "channels last": Fix(
        "contiguous images and weights", "images and weights with the channels last", "photographs"
    ),
    "no bias": Fix(
        "convolutions before BatchNorm have a bias", "they have bias=False", "photographs"
    ),
    "bf16": Fix("fp32", "torch.autocast in bf16"),
    "rare validation": Fix(
        f"validation on {NUM_VAL} examples every {VALIDATE_EVERY} steps", "no validation meanwhile"
    ),
    "rare logging": Fix("one flushed line for each step", f"one line for {LOG_EVERY} steps"),
    "compile": Fix("eager", "torch.compile with its defaults"),
}
# Of two fixes that exclude each other one is in the fast loop. Compiled it is not, because a
# machine may lack a compiler. All of this was decided before anything was measured.
RIVALS = {"foreach optimizer": "fused optimizer", "fused optimizer": "foreach optimizer"}
FAST = frozenset(FIXES) - {"foreach optimizer", "compile"}


def list_fixes(kind: str) -> list[str]:
    """The names of the fixes that are about ``"photographs"`` or ``"texts"``."""
    return [name for name, fix in FIXES.items() if fix.only in ("", kind)]


# ---- Examples, and two ways to make a batch of them.


@dataclass(frozen=True)
class Examples:
    """What a loop trains on.

    Args:
        kind: ``"photographs"`` or ``"texts"``.
        num_classes: C.
        inputs: images ``(N, H, W, 3)`` uint8, or N texts ``(T,)`` int64.
        targets: ``(N,)`` int64.
        batches: the places of the examples of each batch.
        val: batches for validation, ready to use.
        mean, std: of the images' channels, in units of 255; empty for texts.
    """

    kind: str
    num_classes: int
    inputs: Any
    targets: np.ndarray
    batches: Sequence[np.ndarray]
    val: Sequence[tuple[Tensor, Tensor]]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def stack(self, index: np.ndarray) -> tuple[Tensor, Tensor]:
        """One batch of inputs ``(B, 3, H, W)`` or ``(B, T)`` and targets ``(B,)``, at once."""
        if self.kind == "texts":
            inputs = pad_texts([self.inputs[i] for i in index])
            return inputs, torch.from_numpy(self.targets[index])
        images = BatchDataset(self.inputs, self.targets, self.mean, self.std)
        return images.__getitems__(index.tolist())


def stack_one_by_one(examples: Examples, index: np.ndarray) -> tuple[Tensor, Tensor]:
    """The batch of `Examples.stack`, with copies of each example: how the slow loop makes it."""
    inputs = [torch.tensor(examples.inputs[i]) for i in index]  # torch.tensor copies
    if examples.kind == "texts":
        longest = max(len(text) for text in inputs)
        inputs = [F.pad(text, (0, longest - len(text))) for text in inputs]
    else:
        mean, std = torch.tensor(examples.mean), torch.tensor(examples.std)
        inputs = [((image / 255 - mean) / std).permute(2, 0, 1) for image in inputs]
    return torch.stack(inputs), torch.tensor([int(examples.targets[i]) for i in index])


@cache
def load_examples(kind: str) -> Examples:
    """Ten batches of 64 photographs or definitions, and 250 others for validation.

    A batch has the texts that the course's loader puts together, which are of similar length.
    """
    config = load_config("quick", dataset=DATASETS[kind], first_seed=0).replace(
        num_val=NUM_VAL, batch_size=BATCH_SIZE, progress=False
    )
    data = load_data(config)
    common = {
        "kind": kind,
        "num_classes": data.num_classes,
        "targets": data.train.targets,
        "val": list(data.eval_loader()),
    }
    if kind == "texts":
        order = np.array(list(data.train_loader(seed=0).sampler))
        batches = order[: BATCHES * BATCH_SIZE].reshape(BATCHES, BATCH_SIZE)
        return Examples(inputs=data.train.tokens, batches=list(batches), **common)
    order = np.random.default_rng(0).permutation(len(data.train))
    batches = order[: BATCHES * BATCH_SIZE].reshape(BATCHES, BATCH_SIZE)
    return Examples(
        inputs=data.train.images, batches=list(batches), mean=data.mean, std=data.std, **common
    )


# ---- The network, and the loop.


def add_biases(model: nn.Module) -> nn.Module:
    """Give every convolution that has none a bias of zeros, in place.

    BatchNorm subtracts the mean of each channel, and with it the bias, so the network's answers
    in train mode stay what they are, whatever the bias is.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d) and layer.bias is None:
            layer.bias = nn.Parameter(layer.weight.new_zeros(layer.out_channels))
    return model


def make_network(kind: str, num_classes: int, fixes: Iterable[str]) -> nn.Module:
    """`convnet_small` or `text_small` with random weights, as the fixes say; the same each time."""
    fixes = frozenset(fixes)
    state = torch.get_rng_state()
    torch.manual_seed(0)
    model = create_model(NETWORKS[kind], num_classes)
    torch.set_rng_state(state)
    if kind == "photographs" and "no bias" not in fixes:
        add_biases(model)
    if "channels last" in fixes:
        model.to(memory_format=torch.channels_last)
    return model


def make_optimizer(model: nn.Module, fixes: Iterable[str], lr: float) -> AdamW:
    """AdamW, in one of its three ways to compute the same step."""
    if "fused optimizer" in fixes:
        return AdamW(model.parameters(), lr=lr, fused=True)
    return AdamW(model.parameters(), lr=lr, foreach="foreach optimizer" in fixes)


class TrainingLoop:
    """A plain training loop, with some of the `FIXES`.

    Every loop trains on the same batches in the same order. The default learning rate is so small
    that weights hardly change however many steps are timed, because a network that fits its
    examples too well has gradients whose squares are denormal numbers, which are slow.

    Args:
        examples: of `load_examples`.
        fixes: names of `FIXES`.
        log: where lines of the log go.
        lr: learning rate of AdamW.
        model: shared with other loops, of `make_network` with the same fixes; None: a new one.
        compiled: what `torch.compile` made of ``model``; None: it is compiled if the fixes say so.

    Raises:
        ValueError: an unknown fix, one that is not about these examples, or two that exclude each
            other.
    """

    def __init__(
        self,
        examples: Examples,
        fixes: Iterable[str],
        log: IO[str],
        lr: float = 1e-6,
        model: nn.Module | None = None,
        compiled: Callable[[Tensor], Tensor] | None = None,
    ):
        self.examples, self.fixes, self.log = examples, frozenset(fixes), log
        known = set(list_fixes(examples.kind))
        if self.fixes - known or {"foreach optimizer", "fused optimizer"} <= self.fixes:
            raise ValueError(
                f"fixes {sorted(self.fixes)}: take some of {sorted(known)}, and one optimizer"
            )
        self.model = model or make_network(examples.kind, examples.num_classes, self.fixes)
        self.model.train()
        self.forward: Callable[[Tensor], Tensor] = self.model
        if "compile" in self.fixes:
            self.forward = torch.compile(self.model) if compiled is None else compiled
        self.optimizer = make_optimizer(self.model, self.fixes, lr)
        self.number = 0  # of the next step
        self.loss_sum: Tensor | float = 0.0
        self.accuracy_sum: Tensor | float = 0.0

    def load_batch(self) -> tuple[Tensor, Tensor]:
        """The next batch, in the memory format that the network has."""
        index = self.examples.batches[self.number % len(self.examples.batches)]
        if "batched copies" in self.fixes:
            inputs, targets = self.examples.stack(index)
        else:
            inputs, targets = stack_one_by_one(self.examples, index)
        if inputs.ndim == 4:
            is_last = "channels last" in self.fixes
            layout = torch.channels_last if is_last else torch.contiguous_format
            inputs = inputs.contiguous(memory_format=layout)
        return inputs, targets

    def train_step(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Forward, backward and an optimizer step: the loss, and the share of right answers."""
        self.optimizer.zero_grad(set_to_none="set to none" in self.fixes)
        with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in self.fixes):
            logits = self.forward(inputs)  # (B, C)
            loss = F.cross_entropy(logits, targets)
        loss.backward()
        self.optimizer.step()
        return loss.detach(), (logits.detach().argmax(dim=1) == targets).float().mean()

    def record(self, loss: Tensor, accuracy: Tensor) -> None:
        """Add to the sums, and write a line. It has no loss, which would be read by ``item``."""
        if "no item" in self.fixes:
            self.loss_sum += loss
            self.accuracy_sum += accuracy
        else:
            self.loss_sum += loss.item()
            self.accuracy_sum += accuracy.item()
        if "rare logging" not in self.fixes or (self.number + 1) % LOG_EVERY == 0:
            lr = self.optimizer.param_groups[0]["lr"]
            print(f"step {self.number:6}, learning rate {lr:.2e}", file=self.log, flush=True)

    @torch.no_grad()
    def validate(self) -> float:
        """Mean loss on the validation examples, in fp32; the network as it is, not compiled."""
        self.model.eval()
        losses = [
            F.cross_entropy(self.model(inputs), targets) for inputs, targets in self.examples.val
        ]
        self.model.train()
        return torch.stack(losses).mean().item()

    def run(self, steps: int) -> None:
        """Train for some steps."""
        for _ in range(steps):
            inputs, targets = self.load_batch()
            self.record(*self.train_step(inputs, targets))
            self.number += 1
            if "rare validation" not in self.fixes and self.number % VALIDATE_EVERY == 0:
                self.validate()

    def read_sums(self) -> tuple[float, float]:
        """The sums of losses and accuracies so far: the one place that waits for the device."""
        return float(self.loss_sum), float(self.accuracy_sum)


# ---- What is compared, and what came out.


class Comparison(NamedTuple):
    """Two loops that differ by one fix: their times, divided, are what it saves."""

    loop: str  # "slow": the fix is added to it; "fast": the fix is taken from it
    fix: str
    without: frozenset[str]
    with_fix: frozenset[str]


def list_comparisons(kind: str) -> list[Comparison]:
    """Every fix alone in the slow loop, and every fix alone left out of the fast loop.

    A fix that the fast loop does not have, such as ``compile``, is added to it. A rival of it
    goes: the loop with the foreach optimizer has no fused one.
    """
    names = list_fixes(kind)
    found = []
    for fix in names:
        alone = frozenset([fix])
        found.append(Comparison("slow", fix, frozenset(), alone))
        with_fix = (FAST & set(names) | alone) - {RIVALS.get(fix, "")}
        found.append(Comparison("fast", fix, with_fix - alone, with_fix))
    return found


def name_loop(fixes: Iterable[str]) -> str:
    """The name of a loop in the stored file: its fixes in the order of `FIXES`."""
    fixes = frozenset(fixes)
    return " + ".join(name for name in FIXES if name in fixes) or "none"


class SpeedUps:
    """What `study.py` stored: how many times as fast a loop is with each fix.

    Args:
        content: of its file.
    """

    def __init__(self, content: dict[str, Any]):
        self.content = content
        self._ms = {
            (row["kind"], row["loop"]): np.array(row["ms"]) for row in content["ladder"]["rows"]
        }

    def list_comparisons(self, kind: str) -> list[Comparison]:
        """Those of which both loops are stored: without a compiler, ``compile`` is not."""
        stored = {name for stored_kind, name in self._ms if stored_kind == kind}
        return [
            x
            for x in list_comparisons(kind)
            if {name_loop(x.without), name_loop(x.with_fix)} <= stored
        ]

    def read_ms(self, kind: str, fixes: Iterable[str]) -> np.ndarray:
        """Milliseconds of a step ``(R,)``: the mean over the block of each of R rounds."""
        return self._ms[kind, name_loop(fixes)]

    def compare(
        self, kind: str, without: Iterable[str], with_fix: Iterable[str]
    ) -> PairedDifference:
        """The logarithm of the ratio of two loops' times, paired by rounds: above 0 is faster.

        It is the *median* of the rounds with its 95 % interval, because other programs interrupt
        some blocks and make them up to half as long again (`scipy.stats.quantile_test`).
        """
        before, after = (np.log(self.read_ms(kind, x)) for x in (without, with_fix))
        ratios = before - after
        low, high = stats.quantile_test(ratios, p=0.5).confidence_interval(0.95)
        return PairedDifference(float(np.median(ratios)), low, high, len(ratios))

    def difference(self, kind: str, loop: str, fix: str) -> PairedDifference:
        """`compare` for a fix in the slow or the fast loop."""
        known = {(x.loop, x.fix): x for x in list_comparisons(kind)}
        found = known[loop, fix]
        return self.compare(kind, found.without, found.with_fix)

    def speed_up(self, kind: str, loop: str, fix: str) -> tuple[float, float, float]:
        """Time without the fix over time with it, in the median round, and its 95 % interval."""
        found = self.difference(kind, loop, fix)
        middle, low, high = np.exp([found.mean, found.low, found.high]).tolist()
        return middle, low, high

    def total(self, kind: str) -> tuple[float, float, float]:
        """Time of the slow loop over that of the fast one, and its 95 % interval."""
        found = self.compare(kind, frozenset(), FAST & set(list_fixes(kind)))
        middle, low, high = np.exp([found.mean, found.low, found.high]).tolist()
        return middle, low, high

    def verdict(self, kind: str, loop: str, fix: str) -> str:
        """``"helps"``, ``"hurts"``, ``"equivalent"`` (within ±2 %) or ``"inconclusive"``."""
        return self.difference(kind, loop, fix).verdict(margin=np.log1p(MARGIN).item())

    def table(self, kind: str) -> pd.DataFrame:
        """One row for each fix and loop: milliseconds, ratio, interval and verdict."""
        rows = []
        for x in self.list_comparisons(kind):
            middle, low, high = self.speed_up(kind, x.loop, x.fix)
            rows.append(
                {
                    "fix": x.fix,
                    "loop": x.loop,
                    "ms without": round(float(np.median(self.read_ms(kind, x.without))), 2),
                    "ms with": round(float(np.median(self.read_ms(kind, x.with_fix))), 2),
                    "times as fast": round(middle, 3),
                    "95 % interval": f"{low:.3f} to {high:.3f}",
                    "verdict": self.verdict(kind, x.loop, x.fix),
                }
            )
        return pd.DataFrame(rows).set_index(["fix", "loop"])

    def describe_provenance(self) -> str:
        """One line: how many rounds, on which machine, and when."""
        about, ladder = self.content["hardware"], self.content["ladder"]
        return (
            f"{ladder['rounds']} rounds of {ladder['steps']} steps for each loop; {about['cpu']}, "
            f"{self.content['threads']} thread; {self.content['made']}"
        )
