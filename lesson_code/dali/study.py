"""What lesson 11 reads: validation images that are resized in another way than training images.

The trainings of a regime that differ only in their validation have the same weights at each seed.
The learning rate is the one that the search of lesson 02 found for photographs and this network,
and no variant has a better one of its own.
"""

from functools import partial

from torch.optim import AdamW

from course_tools.study.declare import Regime, Study
from course_utils.config import Config, load_config
from course_utils.training.schedules import warmup_cosine
from lesson_code.dali.resizing import (
    Resize,
    ValidateResized,
    load_resized,
    pass_half_size,
    read_large_files,
    read_small_files,
)

FILES = load_config("quick", dataset="photos", first_seed=0).replace(
    model="convnet_small", num_train=1000, num_val=1000, epochs=2, batch_size=32, progress=False
)
LONGER = FILES.replace(num_train=500, epochs=8)
LR = 0.001
OTHERS = ("linear", "antialiased", "never_enlarged")
HALF_SIZE = ("area", "antialiased", "nearest")


def warm_up_tenth(optimizer, total_steps: int):
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)


def train(
    config: Config,
    resize: Resize,
    judged: str,
    others: tuple[str, ...] = (),
) -> dict[str, dict]:
    """The one trial of a variant: trained on images resized in one way, validated on another."""
    options = {
        "pretrained": True,
        "make_loader": partial(load_resized, resize=resize),
        "make_optimizer": partial(AdamW, lr=LR),
        "make_schedule": warm_up_tenth,
        "trainer": {
            "callbacks": [ValidateResized(judged, others)],
            "check_val_every_n_epoch": config.epochs,
        },
    }
    return {f"lr {LR:g}": options}


STUDY = Study(
    "What does it cost to resize validation images in another way than training images?",
    {
        "files, 2 epochs": Regime(
            "1,000 photographs for 2 epochs and a pretrained network, as the lesson trains live. "
            "Each photograph is enlarged four times, stored as a JPEG file and reduced again by "
            "area, because this is what an input pipeline does with files that are too large.",
            FILES,
            {
                "resized as in training": train(FILES, read_large_files, "area", OTHERS),
                "never enlarged": train(FILES, read_large_files, "never_enlarged"),
                "small files": train(FILES, read_small_files, "area"),
            },
        ),
        "files, 8 epochs": Regime(
            "500 photographs for 8 epochs: the same with twice as many steps on half of the "
            "photographs, because the network then has more time to get used to its own images.",
            LONGER,
            {
                "resized as in training": train(LONGER, read_large_files, "area"),
                "never enlarged": train(LONGER, read_large_files, "never_enlarged"),
            },
        ),
        "half size": Regime(
            "1,000 photographs for 2 epochs, reduced to 16 pixels and enlarged again: unlike an "
            "enlarged photograph they have detail up to the last pixel, as photographs of a "
            "camera have, so that the ways to reduce them differ. Each network is trained with one "
            "way and validated with all three.",
            FILES,
            {
                way: train(
                    FILES,
                    partial(pass_half_size, way=way),
                    f"half_{way}",
                    tuple(f"half_{other}" for other in HALF_SIZE),
                )
                for way in HALF_SIZE
            }
            # the weights of "area" again, so that results list what another way costs them
            | {
                "area, other validation": train(
                    FILES, partial(pass_half_size, way="area"), "half_antialiased"
                )
            },
        ),
    },
)
