"""What lesson 07 reads: whole networks trained in other number formats than fp32.

The learning rate of a regime is one, for all variants, so that nothing but the format differs. It
is the one that lesson 02's study found for fp32 on a seed that is not reported, or a tenth of it.

Written before any result: mixed precision should be equivalent to fp32 everywhere. Weights in bf16
should lose, and at the low learning rate most, because updates below half the distance to the next
number are lost. Stochastic rounding should bring most of that back. The regimes of photographs and
of the small loss were made shorter for want of time, before any of their trainings. Photographs at
the higher learning rate and stochastic rounding were left out, and trained last after all.
"""

from functools import partial

import torch
import torch.nn.functional as F
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor
from torch.optim import AdamW, Optimizer

from course_tools.study.declare import Regime, Study
from course_utils.config import load_config
from course_utils.training.schedules import warmup_cosine

PHOTOGRAPHS = load_config("quick", dataset="photos", first_seed=0).replace(
    num_train=500, num_val=2000, epochs=8, batch_size=32, progress=False
)
DEFINITIONS = PHOTOGRAPHS.replace(dataset="glosses", model="text_small")
LONGER = DEFINITIONS.replace(epochs=16)  # for the low learning rate
SHORT = DEFINITIONS.replace(epochs=2)
LR = 1e-3  # found for fp32 in lesson 02's study, with 500 photographs and with 500 definitions
LOW_LR = LR / 10
FACTOR = 1e-5  # of the small loss: as if each prediction were one of 100,000 pixels
TINY_EPS = 1e-16  # of AdamW for the small loss, whose gradients are below the usual 1e-8


def warm_up_tenth(optimizer: Optimizer, total_steps: int):
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)


def take_small_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy times `FACTOR`."""
    return FACTOR * F.cross_entropy(logits, targets)


def round_to_nearest(weights: Tensor) -> Tensor:
    """fp32 numbers rounded to bf16, and still stored as fp32."""
    return weights.bfloat16().float()


def round_stochastically(weights: Tensor, generator: torch.Generator) -> Tensor:
    """fp32 numbers rounded to one of the two bf16 neighbours, to the nearer one more often.

    The mean of the rounded number is the number: bf16 keeps the upper 16 bits of fp32, and a
    random number below one unit of these is added before the lower 16 bits are cleared.
    """
    bits = weights.view(torch.int32)
    noise = torch.randint(1 << 16, bits.shape, generator=generator, dtype=torch.int32)
    return ((bits + noise) & -(1 << 16)).view(torch.float32)


def make_rounding(named_parameters, lr: float, stochastic: bool = False) -> Optimizer:
    """AdamW in fp32 that rounds all weights to bf16 after each step."""
    optimizer = AdamW(named_parameters, lr=lr)
    generator = torch.Generator().manual_seed(torch.initial_seed())  # the seed of the training

    @torch.no_grad()
    def round_weights(*_) -> None:
        for group in optimizer.param_groups:
            for weights in group["params"]:
                rounded = (
                    round_stochastically(weights, generator)
                    if stochastic
                    else round_to_nearest(weights)
                )
                weights.copy_(rounded)

    optimizer.register_step_post_hook(round_weights)
    return optimizer


class Fp16(MixedPrecision):
    """Autocast to fp16 on a CPU, where ``precision="16-mixed"`` would run as bf16-mixed."""

    def __init__(self, loss_scale: bool = True):
        super().__init__("16-mixed", "cpu", torch.amp.GradScaler("cpu", enabled=loss_scale))
        self.loss_scale = loss_scale


def train(lr: float, epochs: int, *, eps: float = 1e-8, trainer=None, **options) -> dict:
    """One trial: arguments of `fit` at this learning rate; validated once, at the end."""
    changed = {
        "pretrained": True,
        "make_optimizer": partial(AdamW, lr=lr, eps=eps),
        "make_schedule": warm_up_tenth,
        "trainer": {"check_val_every_n_epoch": epochs} | (trainer or {}),
    }
    return {f"lr {lr:g}": changed | options}


def list_formats(lr: float, epochs: int) -> dict[str, dict]:
    """fp32, and the same training in other formats."""
    return {
        "fp32": train(lr, epochs),
        "mixed bf16": train(lr, epochs, trainer={"precision": "bf16-mixed"}),
        "pure bf16": train(lr, epochs, trainer={"precision": "bf16-true"}),
        "rounded weights": train(lr, epochs, make_optimizer=partial(make_rounding, lr=lr)),
    }


def list_small_loss(lr: float, epochs: int) -> dict[str, dict]:
    """fp16 with and without a loss scale where the gradients are too small for it."""
    small = partial(train, lr, epochs, eps=TINY_EPS, loss=take_small_loss)
    return {
        "fp32": small(),
        "mixed fp16": small(trainer={"plugins": Fp16()}),
        "fp16 without a scale": small(trainer={"plugins": Fp16(loss_scale=False)}),
    }


# Not for photographs: one training with convolutions in fp16 had not ended after five minutes.
IN_FP16 = {"mixed fp16": train(LR, DEFINITIONS.epochs, trainer={"plugins": Fp16()})}
STOCHASTIC = {
    "stochastic rounding": train(
        LOW_LR,
        LONGER.epochs,
        make_optimizer=partial(make_rounding, lr=LOW_LR, stochastic=True),
    )
}
STUDY = Study(
    "Can a whole network train with half the bits?",
    {
        "definitions": Regime(
            "500 definitions for 8 epochs: a small transformer, at the learning rate that suits "
            "fp32.",
            DEFINITIONS,
            list_formats(LR, DEFINITIONS.epochs) | IN_FP16,
        ),
        "definitions, low learning rate": Regime(
            "The same for twice as many epochs at a tenth of the learning rate: large pretrained "
            "networks are fine-tuned at low learning rates, and there an update is small beside "
            "its weight.",
            LONGER,
            list_formats(LOW_LR, LONGER.epochs) | STOCHASTIC,
        ),
        "small loss": Regime(
            f"500 definitions for {SHORT.epochs} epochs with the loss times {FACTOR:g}, as where a "
            "loss is a mean over very many predictions: gradients that are too small for fp16.",
            SHORT,
            list_small_loss(LR, SHORT.epochs),
        ),
        "photographs": Regime(
            "500 photographs for 8 epochs: a convolutional network, at the learning rate that "
            "suits fp32.",
            PHOTOGRAPHS,
            list_formats(LR, PHOTOGRAPHS.epochs),
        ),
        "photographs, low learning rate": Regime(
            "The same at a tenth of the learning rate.",
            PHOTOGRAPHS,
            list_formats(LOW_LR, PHOTOGRAPHS.epochs),
        ),
    },
)
