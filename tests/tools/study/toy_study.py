"""A study of eight trainings, in a second and a half; and its rows without a training."""

import shutil

from course_tools.study.declare import load_study
from course_tools.study.trainings import list_trainings
from course_utils.study_results import TrainingResult

TOY = """
from functools import partial

import torch

from course_tools.study.declare import Regime, Study
from course_utils.config import load_config

CONFIG = load_config("smoke", dataset="shapes").replace(
    num_train=32, num_val=20, batch_size=16, progress=False
)


def smooth(logits, targets, amount):
    return torch.nn.functional.cross_entropy(logits, targets, label_smoothing=amount)


def tune(**options):
    return {
        f"lr {lr:g}": {"make_optimizer": partial(torch.optim.AdamW, lr=lr)} | options
        for lr in (0.001, 0.01)
    }


STUDY = Study(
    "Does smoothing help on a toy?",
    {
        "tiny": Regime(
            "Thirty-two drawings, because they take no time.",
            CONFIG,
            {"plain": tune(), "smooth": tune(loss=partial(smooth, amount=0.1))},
        )
    },
    seeds=(0, 1),
    search_seeds=(100,),
)
"""


def write_toy(folder, text=TOY):
    """Declare the study ``toy`` in a folder of lessons."""
    (folder / "toy").mkdir(parents=True, exist_ok=True)
    (folder / "toy" / "study.py").write_text(text)
    # compiled code counts as current if the source has the same size, and second, as before
    shutil.rmtree(folder / "toy" / "__pycache__", ignore_errors=True)
    load_study.cache_clear()
    return folder


def make_row(training, accuracy=0.5, loss=1.0, seconds=2.0):
    """What `train` gives for a training; ``loss=None``: it diverged."""
    return TrainingResult(
        **vars(training),
        metrics={"epoch": 1, "val_loss": loss, "val_accuracy": accuracy},
        trained_parameters=10,
        saved_bytes=100,
        seconds=seconds,
    )


def list_toy(folder, **names):
    """The declared trainings whose fields have these values, such as ``variant="plain"``."""
    trainings = list_trainings("toy", load_study("toy", folder))
    return [x for x in trainings if names.items() <= vars(x).items()]
