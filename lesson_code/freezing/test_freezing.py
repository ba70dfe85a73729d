"""What lesson 02 defines, and what it says of its study in words is what the study found."""

import copy
import itertools

import nbformat
import numpy as np
import pytest
import torch

from course_tools.run.lessons import NOTEBOOKS
from course_tools.study.lesson_code import read_definitions
from course_utils.measure.paired import paired_difference
from course_utils.measure.statistics import adjust_holm
from course_utils.models.create import create_model
from course_utils.study_results import read_study

FULL, LAST, PROBE, SCRATCH = "full fine-tuning", "last stage", "linear probe", "from scratch"
LAYER_WISE = "layer-wise learning rates"
LABELS = {
    "photographs": (125, 500, 2000, 6000),
    "definitions": (125, 500, 2000),
    "drawings": (125, 500),
}


@pytest.fixture(scope="module")
def lesson():
    """The functions and classes of the notebook, without its trainings."""
    return read_definitions("02_freezing", FULL=FULL)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return create_model("convnet_small", num_classes=4, pretrained=True)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 3, 32, 32, generator=generator), torch.arange(8) % 4


def test_a_frozen_prefix_stays_as_it_is_in_training_mode_too(lesson, network, batch):
    start = copy.deepcopy(network.state_dict())
    frozen = lesson["FrozenPrefix"](network, "layer4")
    lesson["train_a_step"](frozen, batch)
    moved = lesson["find_moved"](network, start)
    assert moved
    assert all(name.startswith(("layer4", "fc")) for name in moved)


def test_without_gradients_alone_the_statistics_move(lesson, network, batch):
    start = copy.deepcopy(network.state_dict())
    lesson["train_a_step"](lesson["forbid_gradients"](network, "fc"), batch)
    moved = lesson["find_moved"](network, start) - {"fc.weight", "fc.bias"}
    assert moved
    assert all(name.endswith(("running_mean", "running_var", "tracked")) for name in moved)


def test_a_child_that_does_not_exist_is_an_error(lesson, network):
    with pytest.raises(ValueError, match="layer9"):
        lesson["forbid_gradients"](network, "layer9")


def test_a_cut_trains_what_stands_behind_it(lesson, network):
    changed = lesson["FrozenPrefix"](network, "layer3")
    trained = {name for name, p in changed.model.named_parameters() if p.requires_grad}
    assert {name.split(".")[0] for name in trained} == {"layer3", "layer4", "fc"}


# ---- The text of the lesson against the study that it reads.


@pytest.fixture(scope="module")
def study():
    return read_study("freezing")


@pytest.fixture(scope="module")
def read_text():
    """The source of a cell of the notebook, by its id, in one line."""
    notebook = nbformat.read(NOTEBOOKS / "02_freezing.ipynb", as_version=4)
    cells = {cell.id: " ".join(cell.source.split()) for cell in notebook.cells}
    return cells.__getitem__


@pytest.fixture(scope="module")
def compare_in_points(study):
    """The paired difference of a variant from another one, in points."""

    def find(kind, labels, variant, other=FULL):
        values = [100 * study.values(f"{kind}, {labels:,}", name) for name in (other, variant)]
        return paired_difference(*values)

    return find


@pytest.fixture(scope="module")
def judge(compare_in_points):
    return lambda *setting: compare_in_points(*setting).verdict(margin=1)


def list_settings():
    return [(kind, n, v) for kind, labels in LABELS.items() for n in labels for v in (PROBE, LAST)]


def test_the_study_has_the_labels_and_epochs_that_the_text_says(study, read_text):
    found = {
        (config.num_train, config.epochs) for config in (x.config for x in study.regimes.values())
    }
    assert found == {(125, 16), (500, 8), (2000, 4), (6000, 2)}
    assert "16 with 125 labels, 8 with 500, 4 with 2,000, 2 with 6,000" in read_text("first-md")
    assert set(study.regimes) == {
        f"{kind}, {n:,}" for kind, labels in LABELS.items() for n in labels
    }
    assert {x.config.num_val for x in study.regimes.values()} == {2000}


def test_with_few_labels_a_part_is_ahead(compare_in_points, judge, read_text):
    best = {
        kind: max(
            (compare_in_points(kind, 125, v) for v in (PROBE, LAST)), key=lambda gap: gap.mean
        )
        for kind in LABELS
    }
    assert {gap.verdict(margin=1) for gap in best.values()} == {"helps"}
    photographs, definitions, drawings = (f"{gap.mean:.1f}" for gap in best.values())
    sentence = (
        f"by {photographs} points on photographs, {definitions} on definitions and {drawings} on "
        "drawings"
    )
    assert sentence in read_text("first-read-md")
    assert f"the probe is {drawings} points ahead" in read_text("far-read")
    assert {judge(kind, 125, v) for kind in LABELS for v in (PROBE, LAST)} <= {
        "helps",
        "inconclusive",
    }


def test_with_2000_labels_or_more_everything_is_ahead(judge):
    for kind, labels in (("photographs", 2000), ("photographs", 6000), ("definitions", 2000)):
        assert {judge(kind, labels, v) for v in (PROBE, LAST)} == {"hurts"}
    assert {judge("drawings", 500, v) for v in (PROBE, LAST)} == {"hurts"}


@pytest.mark.parametrize(("kind", "rounded"), [("photographs", 380), ("definitions", 270)])
def test_the_crossings_of_the_last_stage(compare_in_points, read_text, kind, rounded):
    gaps = [(n, compare_in_points(kind, n, LAST).mean) for n in LABELS[kind]]
    crossings = [
        few * (many / few) ** (ahead / (ahead - behind))
        for (few, ahead), (many, behind) in itertools.pairwise(gaps)
        if ahead > 0 >= behind
    ]
    assert crossings == [pytest.approx(rounded, abs=5)]
    assert f"{rounded} {kind}" in read_text("first-read-md")


def test_the_distance_decides_what_the_probe_loses(compare_in_points, read_text):
    photographs, definitions, drawings = (-compare_in_points(x, 500, PROBE).mean for x in LABELS)
    sentence = (
        f"loses {photographs:.1f} point on photographs, {definitions:.1f} on definitions and "
        f"{drawings:.0f} on drawings"
    )
    assert sentence in read_text("first-read-md")


def test_the_numbers_of_the_verdict(compare_in_points, judge, read_text):
    text = read_text("ff8d2648")
    assert judge("photographs", 500, LAST) == "equivalent"
    lost = {
        setting: f"{-compare_in_points(*setting, LAST).mean:.1f}"
        for setting in (("photographs", 2000), ("photographs", 6000), ("definitions", 2000))
    }
    many, most, definitions = lost.values()
    assert (
        f"with 2,000 it is behind by {many} points and with 6,000 by {most}, with 2,000 "
        f"definitions by {definitions}" in text
    )
    far = [-compare_in_points("drawings", 500, variant).mean for variant in (LAST, PROBE)]
    assert f"the last stage loses {far[0]:.0f} points, and the probe {far[1]:.0f}" in text


def test_what_survives_the_correction(compare_in_points):
    """Of the leads of a part only that on definitions."""
    gaps = {setting: compare_in_points(*setting) for setting in list_settings()}
    p_values = adjust_holm([gap.p_value() for gap in gaps.values()])
    decided = [setting for setting, p in zip(gaps, p_values, strict=True) if p < 0.05]
    assert [x for x in decided if gaps[x].mean > 0] == [("definitions", 125, LAST)]


def test_layer_wise_learning_rates(compare_in_points, judge, read_text):
    for kind in ("photographs", "definitions"):
        assert judge(kind, 500, LAYER_WISE) == "equivalent"
    text = read_text("layer-read")
    lead = compare_in_points("definitions", 500, LAYER_WISE, LAST).mean
    assert f"they lead the last stage by {lead:.1f} points" in text
    lost = -compare_in_points("drawings", 500, LAYER_WISE).mean
    ahead = compare_in_points("drawings", 500, LAYER_WISE, LAST).mean
    assert f"they lose {lost:.1f} points" in text
    assert f"they are {ahead:.1f} ahead of the last stage" in text


def test_the_accuracies_on_500_drawings(study, read_text):
    means = (100 * study.values("drawings, 500", v).mean() for v in (PROBE, FULL, SCRATCH))
    probe, full, scratch = (f"{mean:.0f} %" for mean in means)
    text = read_text("far-read")
    assert f"the probe reaches {probe}" in text
    assert f"reaches {full}" in text
    assert f"from scratch reaches only {scratch}" in text


def test_pretraining_brings_about_20_points_on_500_photographs(compare_in_points):
    gain = compare_in_points("photographs", 500, FULL, SCRATCH).mean
    assert gain == pytest.approx(20, abs=1.5)


def test_the_learning_rates_of_the_recipe(study, read_text):
    best = study.best["photographs, 500"]
    probe, last, full = (float(best[v].split()[1]) for v in (PROBE, LAST, FULL))
    assert (probe, last, full) == (1e-2, 2e-3, 1e-3)
    assert "1e-2 for a linear probe, 2e-3 for the last stage and 1e-3" in read_text("4c36b483")
    for kind in LABELS:
        found = {v: float(x.split()[1]) for v, x in study.best[f"{kind}, 500"].items()}
        assert found[PROBE] == max(found.values())


def test_the_chosen_learning_rate_is_often_the_highest_or_lowest_that_was_tried(study):
    at_edge = []
    for regime, variants in study.best.items():
        for variant, trial in variants.items():
            chosen = (x for x in study.trainings if (x.regime, x.variant) == (regime, variant))
            tried = {float(x.trial.split()[1]) for x in chosen}
            at_edge.append(float(trial.split()[1]) in (min(tried), max(tried)))
    assert np.mean(at_edge) > 0.3
