"""What lesson 18 reads: whether early stopping gains where a training overfits, and where not.

All regimes have the same 90 steps, the same check of 200 validation definitions after every third
step, and the same rules. The first two differ in how many definitions the steps see. The validation
definitions choose the check that is restored and the learning rate; 1,000 others chose nothing and
judge (`lesson_code/when_to_stop/stopping.py`).

At first 120 steps and five variants in both regimes were declared. After three trainings of the
search, before any two variants could be compared, this was cut down, because the machine was shared
and it would have taken more than two hours.

The regime with too high a learning rate was added when the two search seeds of the first regime had
shown what their largest learning rate does: the learning rate that the search prefers does not
overfit in its validation loss. Its ten seeds were not seen before it was declared.
"""

from functools import partial

from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LinearLR, LRScheduler

from course_tools.study.declare import Regime, Study
from course_utils.config import Config, load_config
from course_utils.training.schedules import warmup_cosine
from lesson_code.when_to_stop.stopping import NUM_FRESH, FollowStopping

FEW, MANY = 96, 2880  # definitions that are trained on: 3 and 90 batches of 32
DEFINITIONS = load_config("quick", dataset="glosses", first_seed=0).replace(
    model="text_small", num_train=MANY + NUM_FRESH, num_val=200, batch_size=32, progress=False
)
EPOCHS = {FEW: 30, MANY: 1}  # of 3 and of 90 steps
LRS = (2e-4, 5e-4, 1.25e-3)  # peak learning rates of AdamW that are tried


def warm_up(optimizer: Optimizer, total_steps: int) -> LRScheduler:
    """A tenth of the steps in a straight line up, then constant."""
    steps = total_steps // 10
    return LinearLR(optimizer, start_factor=1 / (steps + 1), total_iters=steps)


def warm_up_cosine(optimizer: Optimizer, total_steps: int) -> LRScheduler:
    """The same line up, then a cosine to zero."""
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)


def tune(config: Config, schedule, **followed) -> dict[str, dict]:
    """Arguments of `fit` at each learning rate; Lightning validates once, at the end."""
    options = {
        "pretrained": True,
        "make_schedule": schedule,
        "trainer": {
            "callbacks": FollowStopping(config, **followed),
            "check_val_every_n_epoch": config.epochs,
        },
    }
    return {f"lr {lr:g}": options | {"make_optimizer": partial(AdamW, lr=lr)} for lr in LRS}


def make_regime(few: int, about: str) -> Regime:
    """Last weights, and early stopping; on few definitions an average and a cosine as well."""
    config = DEFINITIONS.replace(epochs=EPOCHS[few])
    add = partial(tune, config)
    variants = {
        "last weights": add(warm_up, follow=True),
        "stopped by the loss": add(warm_up, returned="loss"),
    }
    if few == FEW:
        variants["EMA"] = add(warm_up, returned="ema")
        variants["cosine"] = add(warm_up_cosine, follow=True)
    return Regime(about, config, variants, few=few)


def keep_highest(few: int, about: str) -> Regime:
    """Last weights and early stopping at the largest learning rate, without a search."""
    regime, highest = make_regime(few, about), f"lr {LRS[-1]:g}"
    names = ("last weights", "stopped by the loss")
    variants = {name: {highest: regime.variants[name][highest]} for name in names}
    return Regime(about, regime.config, variants, few=few)


STUDY = Study(
    "Does early stopping gain where a training overfits, and what does it cost where it does not?",
    {
        "few definitions": make_regime(
            FEW,
            "96 definitions, each of them thirty times, and a pretrained network: few labels and "
            "many epochs, the case for which early stopping was invented, because the network can "
            "memorise what it sees thirty times.",
        ),
        "many definitions": make_regime(
            MANY,
            "2,880 definitions, each of them once, in as many steps: as large models are "
            "fine-tuned today, where nothing is seen twice, so that a validation score that rises "
            "no longer is more likely noise than overfitting.",
        ),
        "too high a learning rate": keep_highest(
            FEW,
            "The 96 definitions again, at the largest learning rate of the search and without one: "
            "a setting that nobody tuned, in which the validation loss of the search's trainings "
            "rose from the fourth epoch on, so that early stopping has something to gain.",
        ),
    },
)
