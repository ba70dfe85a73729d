"""What lesson 01 reads: how far seeds are apart, by number of photographs and by training length.

Two pairs of regimes differ in one thing. 1,000 photographs for 8 epochs and 4,000 for 2 take
about as many optimizer steps, and 1,000 photographs are trained for 2 and for 8 epochs. The
second variant ends with a learning rate near zero, whereas that of the baseline is constant: it is
a real change of the training, to be compared with the distance of two seeds. No setting is tuned,
because the spread of the course's baseline, as it stands, is the question.
"""

from course_tools.study.declare import Options, Regime, Study
from course_utils.config import Config, load_config
from course_utils.training.schedules import warmup_cosine

PHOTOGRAPHS = load_config("quick", dataset="photos", first_seed=0).replace(
    num_val=2000, progress=False
)
REGIMES = {  # (photographs, epochs): why
    (1000, 2): "about 30 optimizer steps, which is hardly a training",
    (1000, 8): "about 120 steps, the training that this lesson runs live",
    (4000, 2): "about as many steps as 1,000 photographs for 8 epochs, each on new photographs",
}


def list_variants(config: Config) -> dict[str, dict[str, Options]]:
    """The baseline, and the same training with a schedule; validated once, at the end."""
    options = {"trainer": {"check_val_every_n_epoch": config.epochs}}
    return {
        "baseline": {"as it is": options},
        "cosine schedule": {"as it is": options | {"make_schedule": warmup_cosine}},
    }


def make_regime(count: int, epochs: int, why: str) -> Regime:
    config = PHOTOGRAPHS.replace(num_train=count, epochs=epochs)
    about = f"{count:,} photographs for {epochs} epochs from random weights: {why}."
    return Regime(about, config, list_variants(config))


STUDY = Study(
    "How far apart are two trainings that differ in nothing but the seed?",
    {
        f"{count:,} for {epochs} epochs": make_regime(count, epochs, why)
        for (count, epochs), why in REGIMES.items()
    },
    search_seeds=(),
)
