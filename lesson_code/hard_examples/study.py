"""What lesson 17 reads: wrong labels, what is done about them, and rare classes.

Three regimes plant wrong labels and one plants rare classes. A seed decides which labels are
wrong, or which classes are rare. Validation data are clean and as they were.
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
)

TEXTS = load_config("quick", dataset="glosses", first_seed=0).replace(
    model="text_small", num_train=400, num_val=1000, epochs=4, batch_size=32, progress=False
)
PHOTOS = TEXTS.replace(dataset="photos", model="convnet_small", num_train=500, epochs=5)
RARE = PHOTOS.replace(num_train=1200)
TEXT_LRS, PHOTO_LRS = (0.0005, 0.001), (0.001, 0.002)  # around what earlier lessons found
WRONG = 0.2  # share of wrong labels, about that of images from a web search
KEPT = 0.5  # share of a batch that counts, in the hardest half
WARMUP = 0.5  # share of the steps until small-loss selection leaves out all it will leave out
RATIO = 0.05  # the rarest class has a twentieth of the images of the most frequent one
TEXT_HUNT = Hunt(TEXTS, epochs=2, lr=0.001)
PHOTO_HUNT = Hunt(PHOTOS, epochs=3, lr=0.002, precision="bf16-mixed")


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
    trainer = {
        "callbacks": list(callbacks),
        "check_val_every_n_epoch": config.epochs,
        "precision": "32-true" if config.dataset == "glosses" else "bf16-mixed",
    }
    changed = {"pretrained": True, "make_loader": load, "make_schedule": warmup_cosine}
    changed |= {"trainer": trainer} | options
    return {f"lr {lr:g}": changed | {"make_optimizer": partial(AdamW, lr=lr)} for lr in lrs}


def fix_labels(config: Config, lrs: tuple[float, ...], hunt: Hunt, share: float, *fixes) -> dict:
    """Trainings with wrong labels, and after each fix of the data."""
    load = partial(load_noisy, share=share)
    searched = partial(load, hunt=hunt)
    variants = {"keep": tune(config, lrs, load)}
    for fix in fixes:
        if "suspects" in fix or "random" in fix:
            variants[fix] = tune(config, lrs, partial(searched, fix=fix), [LogFound()])
        else:
            variants[fix] = tune(config, lrs, partial(load, fix=fix))
    return variants


def select(config: Config, lrs: tuple[float, ...], share: float, **selections) -> dict:
    """Trainings with wrong labels in which only a part of each batch counts."""
    load = partial(load_noisy, share=share)
    hardest = {"loss": partial(average_largest, share=KEPT)}
    variants = {"hardest half": tune(config, lrs, load, **hardest)}
    for name, warmup in selections.items():
        callback = SelectSmallest(share=1 - WRONG, warmup=warmup)
        variants[name.replace("_", " ")] = tune(config, lrs, load, [callback])
    return variants


def balance() -> dict:
    """Rare classes: nothing is done, and four ways to do something."""
    load = partial(load_rare, ratio=RATIO)
    train = partial(tune, RARE, PHOTO_LRS)
    return {
        "mean": train(load, [ClassLoss()]),
        "class weights": train(load, [ClassLoss("class weights")]),
        "class-balanced sampling": train(partial(load, balanced=True), [ClassLoss()]),
        "focal loss": train(load, [ClassLoss()], loss=focal_loss),
        "logit adjustment": train(load, [ClassLoss("logit adjustment")]),
    }


DROPS = ("drop at random", "drop suspects", "relabel suspects")
ORACLES = ("drop the wrong", "right labels")
CLEAN_LRS = (0.001,)  # one trial: nothing is chosen where nothing is wrong
STUDY = Study(
    "Some labels are wrong: does it help to find the suspects, and to drop or relabel them?",
    {
        "definitions, a fifth wrong": Regime(
            "400 definitions for 4 epochs and a pretrained transformer, a fifth of the labels "
            "wrong, as in data that a web search has labelled: a network that names three of four "
            "definitions right is one that people would let search their labels.",
            TEXTS,
            fix_labels(TEXTS, TEXT_LRS, TEXT_HUNT, WRONG, *DROPS, *ORACLES),
        ),
        "photographs, a fifth wrong": Regime(
            "500 photographs for 5 epochs and a pretrained network that names six of ten right, a "
            "fifth of the labels wrong: the lesson's live training, where the search is harder, "
            "and where the losses that choose within a batch are compared.",
            PHOTOS,
            fix_labels(PHOTOS, PHOTO_LRS, PHOTO_HUNT, WRONG, "drop suspects")
            | select(PHOTOS, PHOTO_LRS, WRONG, smallest_at_once=0.0, smallest_after_warmup=WARMUP),
        ),
        "photographs, none wrong": Regime(
            "The same photographs with all labels right: what the same fixes cost where there is "
            "nothing to fix, which nobody knows beforehand.",
            PHOTOS,
            fix_labels(PHOTOS, CLEAN_LRS, PHOTO_HUNT, 0.0, "drop suspects")
            | select(PHOTOS, CLEAN_LRS, 0.0, smallest_after_warmup=WARMUP),
        ),
        "rare classes": Regime(
            "Photographs of ten classes, 120 of the most frequent and 6 of the rarest one, for 5 "
            "epochs and a pretrained network, validated on balanced classes: so uneven are "
            "collections of animals, products or diagnoses.",
            RARE,
            balance(),
        ),
    },
    search_seeds=(100,),
)
