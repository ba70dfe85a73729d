"""Weight averaging: a copy of the weights that follows a training without changing it."""

from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import WeightAveraging
from timm.utils import ModelEmaV3
from torch import nn
from torch.nn.utils import parameters_to_vector
from torch.optim.swa_utils import update_bn

DECAY = 0.75


def mix(average, weights, num_averaged, decay):
    """The EMA, written so that equal numbers stay as they are: frozen weights do not change."""
    return average + (1 - decay) * (weights - average)


def make_ema(kind=WeightAveraging, decay=DECAY):
    return {"callbacks": kind(avg_fn=partial(mix, decay=decay))}


SEAM = {"trainer": make_ema()}


def invariant(record):
    """The weights that come back are the EMA of those after each optimizer step."""
    average = record.biases[0]  # the first update copies
    for bias in record.biases[1:]:
        average = DECAY * average + (1 - DECAY) * bias
    torch.testing.assert_close(record.head_bias.detach(), average)


def compare(record, without):
    """The training is the same, bit for bit: the average only watches."""
    assert len(record.losses) == len(without.losses)
    for (*_, loss), (*_, other) in zip(record.losses, without.losses, strict=True):
        assert torch.equal(loss, other)
    assert not torch.equal(record.head_bias, without.head_bias)


class FromInitialWeights(WeightAveraging):
    """The initial weights are in the average."""

    def on_train_start(self, trainer, pl_module):
        self._average_model.update_parameters(pl_module)


class PerMicroBatch(WeightAveraging):
    """Updated after each micro-batch, whether the optimizer took a step or not."""

    def on_train_batch_end(self, trainer, pl_module, *_):
        self._average_model.update_parameters(pl_module)


class ReturnsLastWeights(WeightAveraging):
    def on_train_end(self, trainer, pl_module):
        pass


class IntoTheTraining(WeightAveraging):
    """The next step starts from the average."""

    def on_train_batch_end(self, trainer, pl_module, *others):
        super().on_train_batch_end(trainer, pl_module, *others)
        self._copy_average_to_current(pl_module)


FAULTS = [
    ("trainer", make_ema(decay=1 - DECAY)),
    ("trainer", {"callbacks": WeightAveraging()}),  # equal shares
    ("trainer", make_ema(FromInitialWeights)),
    ("trainer", make_ema(PerMicroBatch)),
    ("trainer", make_ema(ReturnsLastWeights)),
    ("trainer", {}),
]


COMPARED_FAULTS = [("trainer", make_ema(IntoTheTraining)), ("trainer", {})]


def train_by_hand(net, batches, epochs):
    """Steps of AdamW at 1e-3; the EMA of the weights with timm's warm-up of the decay."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    ema = ModelEmaV3(net, decay=0.9999, use_warmup=True, exclude_buffers=True)
    for step, (inputs, targets) in enumerate(epochs * batches, start=1):
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), targets).backward()
        optimizer.step()
        ema.update(net, step=step)
    return ema.module


def check_decay(mix):
    """``mix(average, weight, step, highest)`` is timm's: with a decay that rises to a highest one.

    ``average`` and ``weight`` are networks, the first of which is changed.
    """
    timm = ModelEmaV3(nn.Linear(1, 1), decay=0.999, use_warmup=True)
    for step in (1, 2, 50, 10**6):
        average, weight = nn.Linear(2, 2), nn.Linear(2, 2)
        decay = timm.get_decay(step)
        expected = [
            decay * a + (1 - decay) * w
            for a, w in zip(average.parameters(), weight.parameters(), strict=True)
        ]
        mix(average, weight, step, 0.999)
        torch.testing.assert_close(list(average.parameters()), expected)


def check_pytorch_card(card):
    """It averages after every step, with its own statistics, and saves the average."""
    check_decay(card["follow"])
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    batches = [(torch.randn(8, 3), torch.randint(2, (8,))) for _ in range(5)]
    expected = train_by_hand(net, batches, epochs=4)
    update_bn(batches, expected)
    saved = torch.load("averaged.pt", weights_only=True)
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(saved[name].cpu(), tensor)
    assert not card["ema"].training


def check_lightning_card(card):
    """The checkpoint and the module hold the average, of every step."""

    def mix(average, weight, step, highest):
        own, other = list(average.parameters()), list(weight.parameters())
        with torch.no_grad():  # how many were averaged before
            card["follow_all"](own, other, torch.tensor(step - 1), highest)

    check_decay(mix)
    torch.manual_seed(0)
    net = card["LitNet"]().model
    pairs = [(torch.randn(3), i % 2) for i in range(40)]
    expected = train_by_hand(net, list(torch.utils.data.DataLoader(pairs, 8)), epochs=3)
    found = card["lit_net"].model
    torch.testing.assert_close(
        parameters_to_vector(found.parameters()).cpu(), parameters_to_vector(expected.parameters())
    )
    [path] = Path("checkpoints").glob("*.ckpt")
    saved = torch.load(path, weights_only=True)
    torch.testing.assert_close(saved["state_dict"]["model.0.weight"].cpu(), expected[0].weight.data)
    last = saved["current_model_state"]["model.0.weight"].cpu()
    torch.testing.assert_close(last, net[0].weight.data)
