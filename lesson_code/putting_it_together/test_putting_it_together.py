"""What lesson 12's study trains, and what the lesson says of it is what the study found."""

import re
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
from course_utils.measure.statistics import adjust_holm
from course_utils.results import read_file
from course_utils.study_results import read_study
from course_utils.training import compare, fit
from lesson_code.putting_it_together import study as declared
from tests.places import ROOT

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
        differ = {x for x in names if describe_value(full.get(x)) != describe_value(variant.get(x))}
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
        assert {len(trials) for trials in regime.variants.values()} == {4}
    assert len(study.seeds) == 10
    assert len(study.search_seeds) == 2
    assert read_study("putting_it_together").is_complete()


# ---- The text of the lesson against the study that it reads.


def read(regime, variant):
    """Accuracies of the seeds, in percent."""
    return 100 * read_study("putting_it_together").values(regime, variant)


def judge(regime, variant, baseline=FULL) -> PairedDifference:
    """By how much a variant is better than the full recipe, or another one, in points."""
    return paired_difference(read(regime, baseline), read(regime, variant))


def write(found: PairedDifference, sign: str = "+") -> str:
    """The mean with its interval; two decimals where an edge is near zero or the margin."""
    edges = abs(found.low), abs(found.high)
    digits = 2 if any(edge < 0.05 or abs(edge - 1) < 0.05 for edge in edges) else 1
    mean, low, high = (f"{x:{sign}.{digits}f}" for x in (found.mean, found.low, found.high))
    return f"{mean} points ({low} to {high})"


def write_loss(regime, variant) -> str:
    """What is lost without a part, as a positive number."""
    found = judge(regime, variant)
    return f"{-found.mean:.1f} points ({-found.high:.1f} to {-found.low:.1f})"


def read_search(regime, variant) -> dict[float, float]:
    """Mean accuracies over the search's seeds, in percent, by learning rate."""
    study = read_study("putting_it_together")
    found: dict[float, list[float]] = {}
    for one in study.trainings:
        if (one.regime, one.variant) == (regime, variant) and one.seed in study.search_seeds:
            lr = float(one.trial.removeprefix("lr "))
            found.setdefault(lr, []).append(100 * one.read_metric("val_accuracy"))
    return {lr: sum(values) / len(values) for lr, values in found.items()}


def adjust_photos() -> dict[str, float]:
    """Holm's p-values of the seven parts on photographs."""
    names = [f"without {name}" for name in declared.PARTS]
    adjusted = adjust_holm([judge(PHOTOS, name).p_value() for name in names])
    return dict(zip(names, adjusted, strict=True))


def write_sentences() -> dict[str, str]:
    """What the lesson says of the study, by a name each."""
    start, schedule = "without pretrained start", f"without {SCHEDULE}"
    full, plain = read_search(PHOTOS, FULL), read_search(PHOTOS, PLAIN)
    averaged, neither = read_search(PHOTOS, schedule), read_search(PHOTOS, BOTH)
    best, high, top = max(plain, key=plain.get), max(plain), max(full, key=full.get)
    full_texts, plain_texts = read_search(TEXTS, FULL), read_search(TEXTS, PLAIN)
    low, (*lower, _) = min(full_texts), sorted(averaged)
    gain = {regime: judge(regime, FULL, PLAIN) for regime in (PHOTOS, TEXTS)}
    lost = {regime: judge(regime, schedule) for regime in (PHOTOS, TEXTS)}
    return {
        "loss_start": write_loss(PHOTOS, start),
        "loss_start_texts": write_loss(TEXTS, start),
        "loss_schedule": write_loss(PHOTOS, schedule),
        "schedule_texts": write(lost[TEXTS]),
        "plain": write(gain[PHOTOS], ""),
        "plain_texts": write(gain[TEXTS]),
        "untuned": (
            f"Plain fine-tuning was best at {best:g}, with {plain[best]:.1f} %. At {high:g} it had "
            f"{plain[high]:.1f} % on photographs, where the full recipe had {full[high]:.1f} %. A "
            f"comparison at {high:g} alone would have shown a gain of "
            f"{full[high] - plain[high]:.1f} points, and one at {top:g}, the full recipe's own "
            f"best, {full[top] - plain[top]:.1f} points"
        ),
        "too_low": (
            f"on definitions it had {full_texts[low]:.1f} % at {low:g}, and plain fine-tuning "
            f"{plain_texts[low]:.1f} %"
        ),
        "noisy_search": (
            "they had {:.1f}, {:.1f} and {:.1f} % at ".format(*(averaged[lr] for lr in lower))
            + "{:g}, {:g} and {:g}, and the winner then ".format(*lower)
            + f"{read(PHOTOS, schedule).mean():.1f} % at ten seeds"
        ),
        "schedule_alone_texts": (
            f"alone brings only {write(judge(TEXTS, f'without {AVERAGING}', BOTH))}"
        ),
        "average_ahead_texts": (
            "ahead of the schedule alone by "
            + write(judge(TEXTS, schedule, f"without {AVERAGING}"))
        ),
        "neither_texts": f"leaving out both is equivalent, {write(judge(TEXTS, BOTH))}",
        "corners": (
            f"both reach {read(PHOTOS, FULL).mean():.1f} %, the schedule alone "
            f"{read(PHOTOS, f'without {AVERAGING}').mean():.1f}, the average alone "
            f"{read(PHOTOS, schedule).mean():.1f} and neither {read(PHOTOS, BOTH).mean():.1f}"
        ),
        "average_photos": write(judge(PHOTOS, schedule, BOTH)),
        "average_beside_photos": write(judge(PHOTOS, FULL, f"without {AVERAGING}")),
        "average_texts": write(judge(TEXTS, schedule, BOTH)),
        "average_beside_texts": write(judge(TEXTS, FULL, f"without {AVERAGING}")),
        "smoothing_texts": write(judge(TEXTS, "without label smoothing")),
        "short_schedule": f"{-lost[PHOTOS].mean:.1f}",
        "holm": f"{adjust_photos()[schedule]:.2f}",
        "constant_high": (
            f"at a constant {high:g} the search had {averaged[high]:.1f} % with the average and "
            f"{neither[high]:.1f} % without"
        ),
        "four_times": (
            "At four times its best value plain fine-tuning loses "
            f"{plain[best] - plain[4 * best]:.1f} points on photographs, and the full recipe "
            f"{full[top] - full[4 * top]:.1f}"
        ),
    }


@pytest.fixture(scope="module")
def text():
    """All that the notebook says, in one line."""
    cells = (cell.source for cell in read_cells().values() if cell.cell_type == "markdown")
    return " ".join("\n".join(cells).split()).replace("−", "-")


@pytest.mark.parametrize("name", write_sentences())
def test_the_lesson_says_what_was_measured(name, text):
    assert write_sentences()[name] in text


def test_the_verdicts_are_those_that_the_lesson_names(text):
    verdicts = {
        regime: {
            variant.removeprefix("without "): judge(regime, variant).verdict(margin=1)
            for variant in declared.STUDY.regimes[regime].variants
            if variant != FULL
        }
        for regime in (PHOTOS, TEXTS)
    }
    parts = [name for name in declared.PARTS if name not in ("pretrained start", SCHEDULE)]
    assert len(parts) == 5
    assert all(verdicts[PHOTOS][name] == "equivalent" for name in parts)
    assert "leaving out **five of the seven** parts is equivalent" in text
    assert verdicts[PHOTOS]["pretrained start"] == verdicts[TEXTS]["pretrained start"] == "hurts"
    assert (verdicts[PHOTOS][SCHEDULE], verdicts[TEXTS][SCHEDULE]) == ("hurts", "helps")
    assert verdicts[TEXTS]["label smoothing"] == "helps"
    for name in ("clipping", "decay groups", AVERAGING):
        assert verdicts[TEXTS][name] == "equivalent"
    assert judge(PHOTOS, FULL, PLAIN).verdict(margin=1) == "helps"
    assert judge(TEXTS, FULL, PLAIN).verdict(margin=1) == "equivalent"
    for regime in (PHOTOS, TEXTS):  # no other part brings a whole point on average
        for variant in declared.STUDY.regimes[regime].variants:
            if variant not in (FULL, "without pretrained start"):
                assert abs(judge(regime, variant).mean) < 1


def test_an_average_helps_only_on_definitions_without_a_schedule():
    schedule, averaging = f"without {SCHEDULE}", f"without {AVERAGING}"
    assert judge(TEXTS, schedule, BOTH).verdict(margin=1) == "helps"
    assert judge(TEXTS, FULL, averaging).verdict(margin=1) == "equivalent"
    assert judge(PHOTOS, FULL, averaging).verdict(margin=1) == "equivalent"
    assert judge(PHOTOS, schedule, BOTH).verdict(margin=1) == "equivalent"


def test_no_learning_rate_is_at_an_edge_and_the_schedule_does_not_survive_holm():
    study = read_study("putting_it_together")
    for regime, best in study.best.items():
        for variant, trial in best.items():
            found = read_search(regime, variant)
            lr = float(trial.removeprefix("lr "))
            assert len(found) == 4
            assert max(found, key=found.get) == lr
            assert min(found) < lr < max(found)
    adjusted = adjust_photos()
    assert adjusted["without pretrained start"] < 0.05 < adjusted[f"without {SCHEDULE}"]


def test_neither_of_the_two_parts_does_the_work_of_the_other(text):
    """On photographs the average alone brings nothing, and on definitions the schedule alone."""
    assert "Neither does the work of the other here" in text
    schedule, averaging = f"without {SCHEDULE}", f"without {AVERAGING}"
    assert judge(PHOTOS, schedule, BOTH).verdict(margin=1) == "equivalent"
    assert judge(PHOTOS, schedule, averaging).verdict(margin=1) == "hurts"
    assert judge(TEXTS, averaging, BOTH).verdict(margin=1) == "equivalent"
    assert judge(TEXTS, schedule, averaging).verdict(margin=1) == "helps"
    assert judge(TEXTS, BOTH).verdict(margin=1) == "equivalent"


def test_the_lesson_says_how_many_trainings_a_variant_had(text):
    study = load_study("putting_it_together")
    searched, seeds = len(study.search_seeds), len(study.seeds)
    [trials] = {len(x) for regime in study.regimes.values() for x in regime.variants.values()}
    said = f"{trials} learning rates × {searched} seeds for the search, and {seeds} seeds"
    assert f"{trials * searched + seeds} trainings for each variant: {said}" in text


def test_the_lesson_says_what_the_networks_were_pretrained_on(text):
    weights = ROOT / "data" / "weights"
    assert "100,000 training" in read_file(weights / "convnet_small_tiny_imagenet.json")["data"]
    assert "92,708 for training" in read_file(weights / "text_small_wordnet.json")["data"]
    assert "pretrained on 100,000 others" in text
    assert "has read 92,708 others" in text


# ---- The text of the lesson against its own stored run.


def read_printed(name) -> str:
    """What a cell printed."""
    return "".join(x.text for x in read_cells()[name].outputs if x.output_type == "stream")


def test_the_live_intervals_contain_zero_as_the_lesson_says(text):
    found = re.findall(r"live \S+ \((\S+) to (\S+)\), ", read_printed("live-figure"))
    assert len(found) == 2
    assert all(float(low) < 0 < float(high) for low, high in found)
    assert "Both of our live ones contain it" in text
    for one in (judge(PHOTOS, FULL, PLAIN), judge(PHOTOS, f"without {SCHEDULE}")):
        assert one.low > 0 or one.high < 0
    assert "The study's two intervals exclude zero" in text


def test_three_live_seeds_do_not_decide_on_the_test_split(text):
    found = re.search(
        r"fine-tuning \S+ \((\S+) to (\S+)\), inconclusive", read_printed("test-table")
    )
    low, high = map(float, found.groups())
    assert high - low > judge(PHOTOS, FULL, PLAIN).mean
    assert "Ours is inconclusive, with an interval wider than the study's gain" in text
    assert "On the test split, three live seeds cannot decide so small a gain" in text
