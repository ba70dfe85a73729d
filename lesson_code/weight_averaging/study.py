"""What lesson 13 reads: an average of the weights against the last weights and against schedules.

All networks are validated with new BatchNorm statistics, the last weights too, so that what the
averaging does is told apart from what the statistics do. Each variant has a learning rate of its
own, because an average bears a higher one. In bfloat16 mixed precision, which takes less time.
"""

from functools import partial

from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LinearLR, LRScheduler

from course_tools.study.declare import Regime, Study
from course_utils.config import Config, load_config
from course_utils.training.schedules import warmup_cosine
from lesson_code.weight_averaging.averages import MeasureAverages

LONG = load_config("quick", dataset="photos", first_seed=0).replace(
    model="vgg_tiny", num_train=1000, num_val=2000, epochs=12, batch_size=32, progress=False
)
SHORT = LONG.replace(model="convnet_small", num_train=500, epochs=6, batch_size=64)
LONG_LRS = (0.001, 0.002, 0.004, 0.008)
SHORT_LRS = (0.0004, 0.0008, 0.0016, 0.0032)
EVERY = 4  # epochs: how often the long run is looked at


def warm_up(optimizer: Optimizer, total_steps: int, share: float) -> LRScheduler:
    """A straight line up, then constant."""
    steps = int(share * total_steps)
    return LinearLR(optimizer, start_factor=1 / (steps + 1), total_iters=max(1, steps))


def rise_and_cosine(optimizer: Optimizer, total_steps: int, share: float) -> LRScheduler:
    """A straight line up, then a cosine to zero."""
    return warmup_cosine(optimizer, total_steps, warmup_steps=int(share * total_steps))


def tune(config: Config, lrs: tuple[float, ...], schedule, pretrained: bool, **measured) -> dict:
    """Arguments of `fit` at each learning rate; validated once, at the end."""
    trainer = {
        "callbacks": MeasureAverages(config, **measured),
        "check_val_every_n_epoch": config.epochs,
        "precision": "bf16-mixed",
    }
    options = {"pretrained": pretrained, "make_schedule": schedule, "trainer": trainer}
    return {f"lr {lr:g}": options | {"make_optimizer": partial(AdamW, lr=lr)} for lr in lrs}


def list_variants(
    config: Config, lrs: tuple[float, ...], pretrained: bool, share: float, every: int
) -> dict[str, dict]:
    """The same for both regimes; ``share`` of the steps is the warm-up."""
    add = partial(tune, config, lrs, pretrained=pretrained)
    constant, cosine = partial(warm_up, share=share), partial(rise_and_cosine, share=share)
    return {
        "last weights": add(schedule=constant),
        "EMA": add(schedule=constant, judged="ema", other=True, thorough=True, every=every),
        "cosine": add(schedule=cosine, other=True),
    }


STUDY = Study(
    "Are the last weights of a training its best weights?",
    {
        "long": Regime(
            "1,000 photographs for 12 epochs from random weights: 372 steps, nine tenths of them "
            "at a constant learning rate, which is the training that averages are made for, "
            "because nobody has to know in advance when it ends.",
            LONG,
            list_variants(LONG, LONG_LRS, pretrained=False, share=0.1, every=EVERY),
        ),
        "fine-tuning": Regime(
            "500 photographs for 6 epochs and a pretrained network: the short training of the "
            "lesson, 42 steps, in which an average has little time.",
            SHORT,
            list_variants(SHORT, SHORT_LRS, pretrained=True, share=0.0, every=0),
        ),
    },
    search_seeds=(100,),
)
