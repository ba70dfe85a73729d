"""What lesson 12's study trains, and what the lesson says of it is what the study found."""

from functools import partial

import nbformat
import pytest
import torch
from lightning.pytorch.callbacks import WeightAveraging
from torch import nn

from course_tools.run.lessons import NOTEBOOKS
from course_tools.study.declare import load_study
from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.measure.paired import PairedDifference, paired_difference
from course_utils.measure.provenance import describe_value
from course_utils.study_results import read_study
from course_utils.training import compare, fit
from lesson_code.putting_it_together import study as declared

NAME = "12_putting_it_together"
FULL, PLAIN, SCHEDULE, AVERAGING = (
    declared.FULL,
    declared.PLAIN,
    declared.SCHEDULE,
    declared.AVERAGING,
)
BOTH = f"without {SCHEDULE}, {AVERAGING}"
PHOTOS, TEXTS = "photographs", "definitions"
SHOWN = ("imports", "combine", "leave-out", "parts", "finish")  # cells that train nothing


def read_cells():
    """The cells of the notebook by their names."""
    return {cell.id: cell for cell in nbformat.read(NOTEBOOKS / f"{NAME}.ipynb", 4).cells}


@pytest.fixture(scope="module")
def lesson():
    """What the notebook's own recipe consists of."""
    config = load_config("smoke", dataset="shapes").replace(num_train=64, num_val=40)
    known = {"config": config, "data": load_data(config), "compare": compare, "fit": fit}
    for name in SHOWN:
        exec(read_cells()[name].source, known)
    return known


# ---- What the study trains.


def describe(options):
    """Arguments of `fit` in words, without what the course's callback is called."""
    words = describe_value(options | {"trainer": dict(sorted(options["trainer"].items()))})
    return words.replace("RisingEMA()", "WeightAveraging()")


@pytest.mark.parametrize("regime", [PHOTOS, TEXTS])
def test_the_variants_of_the_study_are_those_of_the_lesson(regime, lesson):
    parts = lesson["parts"]
    base = {"check_val_every_n_epoch": declared.STUDY.regimes[regime].config.epochs}
    if regime == PHOTOS:
        base["precision"] = "bf16-mixed"
    else:
        parts = {name: part for name, part in parts.items() if name != "flips and shifts"}
    assert list(lesson["parts"]) == list(declared.PARTS)
    variants = declared.STUDY.regimes[regime].variants
    left_out = {FULL: (), BOTH: (SCHEDULE, AVERAGING)}
    left_out |= {f"without {name}": (name,) for name in parts}
    left_out[PLAIN] = tuple(name for name in parts if name != "pretrained start")
    assert set(left_out) == set(variants)
    for name, trials in variants.items():
        decay = 0.01 if name == PLAIN else 0.05
        for trial, options in trials.items():
            recipe = lesson["leave_out"](parts, *left_out[name], instead=lesson["instead"])
            recipe = lesson["combine"](recipe, {"trainer": base})
            ours = lesson["finish"](recipe, float(trial.removeprefix("lr ")), decay)
            sorted_ours, theirs = ({k: x[k] for k in sorted(x)} for x in (ours, options))
            said = describe(sorted_ours).replace("warm_up,", "warm_up_tenth,")
            assert said.replace("warm_up}", "warm_up_tenth}") == describe(theirs)


def test_the_average_of_the_study_is_that_of_the_lesson(lesson):
    callbacks = lesson["parts"][AVERAGING]["trainer"]["callbacks"], declared.RisingEMA()
    assert all(isinstance(one, WeightAveraging) for one in callbacks)
    ours, theirs = (one._kwargs["avg_fn"] for one in callbacks)
    average, weights = torch.randn(5), torch.randn(5)
    for number in (0, 1, 40, 10**7):
        found = ours(average, weights, number)
        torch.testing.assert_close(found, theirs(average, weights, torch.tensor(number)))
        share = max(1e-4, (number + 1) ** (-2 / 3))
        torch.testing.assert_close(found, (1 - share) * average + share * weights)


def test_a_variant_lacks_its_part_and_nothing_else():
    variants = declared.STUDY.regimes[PHOTOS].variants
    chosen = {name: trials["lr 0.001"] for name, trials in variants.items()}
    full = chosen[FULL]
    for name, changed in {
        "pretrained start": {"pretrained"},
        "flips and shifts": {"make_loader"},
        SCHEDULE: {"make_schedule"},
        "label smoothing": {"loss"},
        "clipping": {"trainer"},
        "decay groups": {"make_optimizer"},
        AVERAGING: {"trainer"},
    }.items():
        variant = chosen[f"without {name}"]
        names = full.keys() | variant.keys()
        differ = {
            x for x in names if describe_value(full.get(x)) != describe_value(variant.get(x))
        }
        assert differ == changed
    assert chosen[PLAIN]["make_loader"].__name__ == "plain_loader"
    assert chosen[PLAIN]["pretrained"]


def test_with_the_average_fit_returns_and_validates_the_averaged_network():
    config = load_config("smoke", dataset="shapes").replace(num_train=64, num_val=40, epochs=2)
    data = load_data(config.replace(batch_size=16))

    def make_network(num_classes):
        layers = nn.Linear(3072, 4), nn.BatchNorm1d(4), nn.Linear(4, num_classes)
        return nn.Sequential(nn.Flatten(), *layers)

    def train(**trainer):
        optimizer = partial(torch.optim.AdamW, lr=1e-2)
        options = {"model": make_network, "make_optimizer": optimizer, "save": False}
        return fit(config, data, trainer={"check_val_every_n_epoch": 2} | trainer, **options)

    plain, averaged = train(), train(callbacks=declared.RisingEMA())
    with torch.no_grad():
        right = [averaged.model(x).argmax(1) == y for x, y in data.eval_loader()]
    assert torch.cat(right).float().mean().item() == pytest.approx(averaged.metrics["val_accuracy"])
    assert not torch.equal(plain.model[1].weight, averaged.model[1].weight)
    assert not torch.equal(plain.model[2].running_mean, averaged.model[2].running_mean)


def test_every_variant_has_as_many_trials_as_the_baseline():
    study = load_study("putting_it_together")
    for regime in study.regimes.values():
        assert {len(trials) for trials in regime.variants.values()} == {3}
    assert len(study.seeds) == 10
    assert len(study.search_seeds) == 2
    assert read_study("putting_it_together").is_complete()
