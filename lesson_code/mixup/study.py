"""What lesson 05 reads: mixup and CutMix over the length of a training and the number of images.

Each way of mixing with and without flips and shifts, so that a reader sees what mixing adds to
nothing, and what it adds to the plainest augmentation. In bfloat16 mixed precision, which takes six
tenths of the time of fp32 on the processor that made it (lesson 07 finds no loss of accuracy).
"""

from functools import partial

from torch.optim import AdamW
from torchvision.transforms import v2

from course_tools.study.declare import Regime, Study
from course_utils.config import load_config
from course_utils.data.image_data import ImageData
from course_utils.training.schedules import warmup_cosine

FROM_SCRATCH = load_config("quick", dataset="photos", first_seed=0).replace(
    model="vgg_tiny", num_train=250, num_val=2000, batch_size=32, progress=False
)
FINE_TUNING = FROM_SCRATCH.replace(model="convnet_small", num_train=500, epochs=6)
NUM_CLASSES = 10
MIXINGS = {  # every λ is equally likely, as both papers have it for CIFAR-10
    "mixup": v2.MixUp(alpha=1.0, num_classes=NUM_CLASSES),
    "CutMix": v2.CutMix(alpha=1.0, num_classes=NUM_CLASSES),
}
# Of AdamW. From random weights the best and the next lower one of lesson 04's search with this
# network, because batches are half as large here; for fine-tuning around what lesson 02 found.
FROM_SCRATCH_LRS, FINE_TUNING_LRS = (0.002, 0.004), (0.0005, 0.001)


def train(lr: float, epochs: int, augmented: bool, mixing: v2.Transform | None, **options) -> dict:
    """Arguments of `fit`, validated once, at the end."""
    return {
        "batch_transform": mixing,
        "make_loader": ImageData.train_loader if augmented else ImageData.plain_loader,
        "make_optimizer": partial(AdamW, lr=lr),
        "make_schedule": warmup_cosine,
        "trainer": {"check_val_every_n_epoch": epochs, "precision": "bf16-mixed"},
    } | options


def tune(lrs: tuple[float, ...], epochs: int, *rest, **options) -> dict[str, dict]:
    """The same at each learning rate: the trials of a variant."""
    return {f"lr {lr:g}": train(lr, epochs, *rest, **options) for lr in lrs}


def list_variants(epochs: int) -> dict[str, dict]:
    """From random weights: no mixing, mixup or CutMix, without and with flips and shifts."""
    plain = {"nothing": None} | MIXINGS
    both = {"flips and shifts": None}
    both |= {f"flips, shifts and {name}": mixing for name, mixing in MIXINGS.items()}
    return {
        name: tune(FROM_SCRATCH_LRS, epochs, augmented, mixing)
        for augmented, variants in ((False, plain), (True, both))
        for name, mixing in variants.items()
    }


def from_scratch(images: int, epochs: int, about: str) -> Regime:
    """A regime of so many photographs and epochs."""
    return Regime(
        f"{images:,} photographs for {epochs} epochs from random weights: {about}.",
        FROM_SCRATCH.replace(num_train=images, epochs=epochs),
        list_variants(epochs),
    )


STUDY = Study(
    "From which length of training on does mixing images help?",
    {
        "250 photographs, 8 epochs": from_scratch(
            250, 8, "a short training, which ends before the photographs are memorised"
        ),
        "250 photographs, 32 epochs": from_scratch(
            250, 32, "a training that memorises its photographs"
        ),
        "250 photographs, 128 epochs": from_scratch(
            250, 128, "a long training, as in the papers, which have hundreds of epochs"
        ),
        "1,000 photographs, 8 epochs": from_scratch(
            1000, 8, "as many steps as 250 for 32 epochs, on photographs that are seen less often"
        ),
        "fine-tuning": Regime(
            "500 photographs for 6 epochs and a pretrained network, with flips and shifts: what "
            "most people train.",
            FINE_TUNING,
            {
                name: tune(FINE_TUNING_LRS, FINE_TUNING.epochs, True, mixing, pretrained=True)
                for name, mixing in ({"flips and shifts": None} | MIXINGS).items()
            },
        ),
    },
    search_seeds=(100,),
)
