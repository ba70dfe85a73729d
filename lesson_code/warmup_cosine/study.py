"""What lesson 04 reads: five schedules, each at its own best peak learning rate.

Once where schedules decide, in a training from random weights. Once in fine-tuning, on definitions
with and without a warm-up, and on photographs as in the lesson itself.
"""

from functools import partial

from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import ConstantLR, LinearLR, LRScheduler, OneCycleLR, SequentialLR

from course_tools.study.declare import Regime, Study
from course_utils.config import load_config
from course_utils.training.schedules import warmup_cosine

FROM_SCRATCH = load_config("quick", dataset="photos", first_seed=0).replace(
    model="vgg_tiny", num_train=4000, num_val=2000, epochs=10, progress=False
)
FEW = FROM_SCRATCH.replace(model="convnet_small", num_train=500, epochs=6)
DEFINITIONS = FEW.replace(dataset="glosses", model="text_small", epochs=8, batch_size=32)
HIGH_LR = 8e-3  # sixteen times a good constant learning rate for few photographs
HALVINGS = (0.5, 1.0, 2.0)  # of the peak learning rate that is given: the trials of each variant


def warm_up(optimizer: Optimizer, steps: int) -> LRScheduler:
    """A straight line to the optimizer's own learning rate."""
    return LinearLR(optimizer, start_factor=1 / (steps + 1), total_iters=steps)


def constant(optimizer: Optimizer, total_steps: int) -> LRScheduler:
    """The optimizer's own learning rate in every step."""
    return ConstantLR(optimizer, factor=1.0, total_iters=1)


def warmup_constant(optimizer: Optimizer, total_steps: int) -> LRScheduler:
    """Constant after a tenth of the steps."""
    return warm_up(optimizer, total_steps // 10)


def warm_up_tenth(optimizer: Optimizer, total_steps: int) -> LRScheduler:
    """A cosine after a tenth of the steps."""
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)


def warmup_linear(optimizer: Optimizer, total_steps: int) -> LRScheduler:
    """A straight line to 0 after a tenth of the steps."""
    rise = total_steps // 10
    fall = LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=total_steps - rise)
    return SequentialLR(optimizer, [warm_up(optimizer, rise), fall], milestones=[rise])


def warmup_stable_decay(optimizer: Optimizer, total_steps: int) -> LRScheduler:
    """A tenth of the steps up, then constant, and a straight line to 0 in the last fifth."""
    rise, decay = total_steps // 10, total_steps // 5
    fall = LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=decay)
    return SequentialLR(
        optimizer, [warm_up(optimizer, rise), fall], milestones=[total_steps - decay]
    )


def one_cycle(optimizer: Optimizer, total_steps: int) -> LRScheduler:
    """PyTorch's one cycle with its defaults: 30 % of the steps up, and AdamW's beta 1 moves too."""
    peak_lr = optimizer.param_groups[0]["lr"]
    return OneCycleLR(optimizer, max_lr=peak_lr, total_steps=total_steps)


def train(peak_lr: float, make_schedule, epochs: int, pretrained: bool) -> dict:
    """Arguments of `fit`, validated once, at the end."""
    return {
        "pretrained": pretrained,
        "make_optimizer": partial(AdamW, lr=peak_lr),
        "make_schedule": make_schedule,
        "trainer": {"check_val_every_n_epoch": epochs},
    }


def tune(schedules: dict, peak_lr: float, epochs: int, pretrained: bool = True) -> dict:
    """Each schedule at three peak learning rates."""
    return {
        name: {
            f"lr {factor * peak_lr:g}": train(factor * peak_lr, schedule, epochs, pretrained)
            for factor in HALVINGS
        }
        for name, schedule in schedules.items()
    }


WITH_WARM_UP = {
    "constant": warmup_constant,
    "cosine": warm_up_tenth,
    "linear to zero": warmup_linear,
    "warmup-stable-decay": warmup_stable_decay,
    "one cycle": one_cycle,
}
FINE_TUNING = {
    "constant": constant,
    "cosine": warmup_cosine,
    "warm-up and cosine": warm_up_tenth,
}
STUDY = Study(
    "How should the learning rate move during training?",
    {
        "from scratch": Regime(
            "4,000 photographs for 10 epochs from random weights, all with a warm-up: a training "
            "that is long enough for its end to matter.",
            FROM_SCRATCH,
            tune(WITH_WARM_UP, 4e-3, FROM_SCRATCH.epochs, pretrained=False),
        ),
        "definitions": Regime(
            "500 definitions for 8 epochs, with and without a warm-up: transformers are said to "
            "need one.",
            DEFINITIONS,
            tune(FINE_TUNING | {"warm-up and constant": warmup_constant}, 1e-3, DEFINITIONS.epochs),
        ),
        "photographs": Regime(
            "500 photographs for 6 epochs, as in the lesson: fine-tuning, 42 steps.",
            FEW,
            tune(FINE_TUNING, 1e-3, FEW.epochs),
        ),
        "high peak": Regime(
            "The same at one peak learning rate that is too high for a constant one.",
            FEW,
            {
                name: {f"lr {HIGH_LR:g}": train(HIGH_LR, schedule, FEW.epochs, pretrained=True)}
                for name, schedule in FINE_TUNING.items()
            },
        ),
    },
    search_seeds=(100,),
)
