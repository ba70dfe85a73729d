"""What lesson 08 reads: accumulated batches beside small ones and beside one large batch.

All variants of a regime see the same number of examples, and each has its own best learning rate.
The photographs' network has BatchNorm, which sees one micro-batch at a time. The text's has none.
"""

from functools import partial

from torch.optim import AdamW
from torch.utils.data import DataLoader

from course_tools.study.declare import Regime, Study
from course_utils.config import load_config
from course_utils.training.schedules import warmup_cosine

PHOTOGRAPHS = load_config("quick", dataset="photos", first_seed=0).replace(
    num_train=2048, num_val=2000, epochs=4, progress=False
)
TEXTS = PHOTOGRAPHS.replace(dataset="glosses", model="text_small")
SMALL, LARGE = 16, 128  # examples of a micro-batch and of an effective batch
ACCUMULATED = {"accumulate_grad_batches": LARGE // SMALL}
HALVINGS = (0.5, 1.0, 2.0)  # of the learning rate that is given: the trials of each variant


def make_loader(data, seed: int, size: int) -> DataLoader:
    """Batches of ``size`` examples."""
    return data.train_loader(seed, batch_size=size)


def warm_up_tenth(optimizer, total_steps: int):
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)


def tune(lr: float, batch_size: int, trainer: dict | None = None) -> dict[str, dict]:
    """Arguments of `fit` at three learning rates; validated once, at the end."""
    return {
        f"lr {factor * lr:g}": {
            "pretrained": True,
            "make_loader": partial(make_loader, size=batch_size),
            "make_optimizer": partial(AdamW, lr=factor * lr),
            "make_schedule": warm_up_tenth,
            "trainer": {"check_val_every_n_epoch": PHOTOGRAPHS.epochs} | (trainer or {}),
        }
        for factor in HALVINGS
    }


def list_variants(lr: float) -> dict[str, dict]:
    """``lr`` of the small batches; eight times as large a batch begins with √8 times as much."""
    larger = lr * (LARGE / SMALL) ** 0.5
    return {
        "large batches": tune(larger, LARGE),
        "accumulated": tune(larger, SMALL, ACCUMULATED),
        "small batches": tune(lr, SMALL),
    }


STUDY = Study(
    "Is an accumulated batch as good as a large one, and as good as small batches?",
    {
        "photographs": Regime(
            "2,048 photographs for 4 epochs, fine-tuned: BatchNorm sees 16 images instead of 128.",
            PHOTOGRAPHS,
            list_variants(5e-4),
        ),
        "definitions": Regime(
            "2,048 definitions on the same terms: a transformer, whose LayerNorm sees one example.",
            TEXTS,
            list_variants(3.5e-4),
        ),
    },
    search_seeds=(100,),
)
