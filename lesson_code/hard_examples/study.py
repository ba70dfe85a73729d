"""What lesson 17 reads: wrong labels, what is done about them, and rare classes.

Four regimes train on data with wrong labels or none, and one on data with rare classes. A seed
decides which labels are wrong, or which classes are rare. Validation data are clean and as they
were. A head of two layers is trained on the features of a pretrained network that stays as it is,
so that one training takes about a second.
"""

from functools import partial

import torch.nn.functional as F
from torch import Tensor
from torch.optim import AdamW

from course_tools.study.declare import Regime, Study
from course_utils.config import Config, load_config
from course_utils.training.schedules import warmup_cosine
from lesson_code.hard_examples.planted_labels import (
    ClassLoss,
    Hunt,
    LogFound,
    SelectSmallest,
    load_noisy,
    load_rare,
    make_head,
)

BRIEF = load_config("quick", dataset="glosses", first_seed=0).replace(
    model="text_small", num_train=1000, num_val=1000, epochs=10, batch_size=100, progress=False
)
LONG = BRIEF.replace(epochs=40)
PHOTOS = LONG.replace(dataset="photos", model="convnet_small")
RARE = PHOTOS.replace(num_train=5000, epochs=20)
LRS = (0.002, 0.004)  # the one from which on a long training memorises wrong labels, and twice it
BRIEF_LRS = (0.001, 0.002)
WRONG = 0.2  # share of wrong labels, about that of images from a web search
KEPT = 0.5  # share of a batch that counts, in the hardest half
WARMUP = 0.5  # share of the steps until small-loss selection leaves out all it will leave out
RATIO = 0.01  # the rarest class has a hundredth of the images of the most frequent one


def average_largest(logits: Tensor, targets: Tensor, share: float) -> Tensor:
    """Mean of the highest cross-entropies in the batch, ``share`` of them."""
    losses = F.cross_entropy(logits, targets, reduction="none")
    return losses.topk(max(1, round(share * len(losses)))).values.mean()


def focal_loss(logits: Tensor, targets: Tensor, gamma: float = 2.0) -> Tensor:
    """Mean of (1 - p)^gamma times the cross-entropy, p of the right class."""
    losses = F.cross_entropy(logits, targets, reduction="none")
    return ((1 - (-losses).exp()) ** gamma * losses).mean()


def tune(config: Config, lrs: tuple[float, ...], load, callbacks=(), **options) -> dict[str, dict]:
    """Arguments of `fit` at each learning rate; validated once, at the end."""
    trainer = {"callbacks": list(callbacks), "check_val_every_n_epoch": config.epochs}
    changed = {
        "model": partial(make_head, name=config.model),
        "make_loader": load,
        "make_schedule": warmup_cosine,
        "trainer": trainer,
    } | options
    return {f"lr {lr:g}": changed | {"make_optimizer": partial(AdamW, lr=lr)} for lr in lrs}


def fix_labels(config: Config, lrs: tuple[float, ...], share: float, *fixes: str) -> dict:
    """Trainings with wrong labels, and after each fix of the data."""
    load = partial(load_noisy, hunt=Hunt(config), share=share)
    variants = {"keep": tune(config, lrs, load)}
    for fix in fixes:
        logged = [LogFound()] if "suspects" in fix else []
        variants[fix] = tune(config, lrs, partial(load, fix=fix), logged)
    return variants


def select(config: Config, share: float, **selections: float) -> dict:
    """Trainings with wrong labels in which only a part of each batch counts; their warm-ups."""
    load = partial(load_noisy, hunt=Hunt(config), share=share)
    hardest = {"loss": partial(average_largest, share=KEPT)}
    variants = {"hardest half": tune(config, LRS, load, **hardest)}
    for name, warmup in selections.items():
        callback = SelectSmallest(share=1 - WRONG, warmup=warmup)
        variants[name.replace("_", " ")] = tune(config, LRS, load, [callback])
    return variants


def balance() -> dict:
    """Rare classes: nothing is done, and four ways to do something."""
    load = partial(load_rare, config=RARE, ratio=RATIO)
    train = partial(tune, RARE, BRIEF_LRS)
    return {
        "mean": train(load, [ClassLoss()]),
        "class weights": train(load, [ClassLoss("class weights")]),
        "class-balanced sampling": train(partial(load, balanced=True), [ClassLoss()]),
        "focal loss": train(load, [ClassLoss()], loss=focal_loss),
        "logit adjustment": train(load, [ClassLoss("logit adjustment")]),
    }


SUSPECTS = ("drop suspects", "relabel suspects")
ORACLES = ("drop the wrong", "right labels")
SELECTIONS = {"smallest_at_once": 0.0, "smallest_after_warmup": WARMUP}
STUDY = Study(
    "Some labels are wrong: does it help to find the suspects, and to drop or relabel them?",
    {
        "definitions, memorised": Regime(
            "1,000 definitions, a fifth of the labels wrong, as in data that a web search has "
            "labelled, and 40 epochs, in which a head memorises them: memorised labels are what "
            "the search for suspects is meant to prevent.",
            LONG,
            fix_labels(LONG, LRS, WRONG, "drop at random", *SUSPECTS, *ORACLES)
            | select(LONG, WRONG, **SELECTIONS),
        ),
        "definitions, brief": Regime(
            "The same for 10 epochs at lower learning rates, which end before the wrong labels "
            "are memorised: the other way to keep them from doing harm.",
            BRIEF,
            fix_labels(BRIEF, BRIEF_LRS, WRONG, *SUSPECTS, "drop the wrong"),
        ),
        "photographs, memorised": Regime(
            "1,000 photographs, a fifth of the labels wrong, for 40 epochs: the lesson's live "
            "training, where the features name fewer photographs right, so that the search is "
            "harder.",
            PHOTOS,
            fix_labels(PHOTOS, LRS, WRONG, *SUSPECTS, "drop the wrong"),
        ),
        "definitions, none wrong": Regime(
            "The 1,000 definitions for 40 epochs with all labels right: what the same fixes cost "
            "where there is nothing to fix, which is not known beforehand.",
            LONG,
            fix_labels(LONG, LRS, 0.0, "drop suspects")
            | select(LONG, 0.0, smallest_after_warmup=WARMUP),
        ),
        "rare classes": Regime(
            "Photographs of ten classes, 500 of the most frequent and 5 of the rarest one, for 20 "
            "epochs, validated on balanced classes: so uneven are the benchmarks of the papers, "
            "and collections of animals, products or diagnoses.",
            RARE,
            balance(),
        ),
    },
    search_seeds=(100,),
)
