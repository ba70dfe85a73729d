"""What lesson 07 defines, and what it says of its studies in words is what they found."""

import copy

import nbformat
import numpy as np
import pytest
import torch
from torch import nn

from course_tools.run.lessons import NOTEBOOKS
from course_tools.study.lesson_code import read_definitions
from course_utils.models.create import create_model
from course_utils.results import STUDIES, read_file
from course_utils.study_results import read_study
from lesson_code.mixed_precision import study as declared

FP32, MIXED, PURE, ROUNDED = "fp32", "mixed bf16", "pure bf16", "rounded weights"
LOW = ", low learning rate"
HIGH_REGIMES = ("definitions", "photographs")
LOW_REGIMES = tuple(name + LOW for name in HIGH_REGIMES)


@pytest.fixture(scope="module")
def lesson():
    """The functions and classes of the notebook, without its trainings."""
    return read_definitions("07_mixed_precision")


@pytest.fixture(scope="module")
def read_text():
    """The source of a cell of the notebook, by its id, in one line."""
    notebook = nbformat.read(NOTEBOOKS / "07_mixed_precision.ipynb", as_version=4)
    cells = {cell.id: " ".join(cell.source.split()) for cell in notebook.cells}
    return cells.__getitem__


# ---- What the notebook defines.


def test_rounded_weights_are_those_of_the_study(lesson):
    torch.manual_seed(0)
    layer = nn.Linear(5, 3)
    other = copy.deepcopy(layer)
    for model, make in ((layer, lesson["make_rounded"]), (other, declared.make_rounding)):
        optimizer = make(list(model.named_parameters()), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 5)).sum().backward()
            optimizer.step()
    assert torch.equal(layer.weight, other.weight)
    assert torch.equal(layer.weight, layer.weight.bfloat16().float())


@pytest.mark.parametrize("value", [1.001, -1.001, 3e-5, 0.0])
def test_stochastic_rounding_gives_a_neighbour_and_keeps_the_mean(lesson, value):
    weights = torch.full((100_000,), value)
    rounded = lesson["round_at_random"](weights, torch.Generator().manual_seed(0))
    again = declared.round_stochastically(weights, torch.Generator().manual_seed(0))
    assert torch.equal(rounded, again)
    assert torch.equal(rounded, rounded.bfloat16().float())
    assert len(rounded.unique()) <= 2
    assert rounded.double().mean().item() == pytest.approx(weights[0].item(), rel=1e-4, abs=1e-12)


def test_the_enlarged_network_computes_the_same(lesson):
    torch.manual_seed(0)
    model = create_model("convnet_small", 10, pretrained=True).eval()
    images = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        expected, found = model(images), lesson["enlarge"](model, 2**16)(images)
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


# ---- The text of the lesson against the study that it reads.


@pytest.fixture(scope="module")
def study():
    return read_study("mixed_precision")


@pytest.fixture(scope="module")
def points(study):
    """The mean difference of a variant from another one, in points."""
    return lambda regime, variant, other=FP32: 100 * study.difference(regime, variant, other).mean


@pytest.fixture(scope="module")
def judge(study):
    """The verdict on a variant against fp32."""
    return lambda regime, variant: study.difference(regime, variant, FP32).verdict(
        margin=study.margin
    )


@pytest.fixture(scope="module")
def numbers(points):
    """The numbers of the sentences below."""
    return {
        "largest": max(abs(points(x, MIXED)) for x in HIGH_REGIMES + LOW_REGIMES),
        "pure": [-points(x, PURE) for x in LOW_REGIMES],
        "rounded": [-points(x, ROUNDED) for x in LOW_REGIMES],
    }


def test_the_settings_are_those_that_the_text_says(study, read_text):
    said = "once at the learning rate that suits fp32 and once at a tenth of it, for twice as many"
    assert said in read_text("first-md")
    for name in HIGH_REGIMES:
        high, low = study.regimes[name].config, study.regimes[name + LOW].config
        assert low.epochs == 2 * high.epochs
        lrs = [float(study.best[x][FP32].split()[1]) for x in (name, name + LOW)]
        assert lrs[1] == pytest.approx(lrs[0] / 10)
    assert study.regimes["definitions"].config.num_train == 500
    assert declared.FACTOR == 0.00001
    assert "multiplied the loss by 0.00001" in read_text("fp16-md")
    assert {len(set(trials.values())) for trials in study.best.values()} == {1}, (
        "one for all formats"
    )


def test_mixed_bf16_is_equivalent_everywhere(judge, numbers, read_text):
    assert {judge(x, MIXED) for x in HIGH_REGIMES + LOW_REGIMES} == {"equivalent"}
    assert judge("definitions", "mixed fp16") == "equivalent"
    assert f"differ by {numbers['largest']:.1f} points at most" in read_text("first-read-md")
    assert f"differ by {numbers['largest']:.1f} points at most" in read_text("ffb4bc67")


def test_pure_bf16_loses_at_the_low_learning_rate(judge, numbers, read_text):
    assert {judge(x, PURE) for x in HIGH_REGIMES} == {"equivalent"}
    assert {judge(x, PURE) for x in LOW_REGIMES} == {"hurts"}
    assert {judge(x, ROUNDED) for x in LOW_REGIMES} == {"hurts"}
    definitions, photographs = numbers["pure"]
    text = read_text("first-read-md")
    assert f"it loses {definitions:.1f} points on definitions and {photographs:.1f} on" in text
    definitions, photographs = numbers["rounded"]
    assert f"Rounded weights lose {definitions:.1f} and {photographs:.1f} points" in text
    assert f"{numbers['pure'][0]:.1f} points on definitions at the low one" in read_text("ffb4bc67")


def test_fp16_needs_its_scale_with_a_small_loss(judge, points, read_text):
    lost = -points("small loss", "fp16 without a scale")
    assert f"Without a scale fp16 loses {lost:.1f} points" in read_text("small-loss-read")
    assert judge("small loss", "fp16 without a scale") == "hurts"
    assert {judge("small loss", x) for x in ("mixed fp16", MIXED)} == {"equivalent"}


def test_stochastic_rounding_brings_most_back(study, points, read_text):
    regime, variant = "definitions" + LOW, "stochastic rounding"
    back = points(regime, variant, ROUNDED)
    assert f"brings back {back:.1f} points" in read_text("stochastic-read")
    assert study.difference(regime, variant, ROUNDED).low > 0


# ---- The stored times.


@pytest.fixture(scope="module")
def ratio():
    """The time of a step in multiples of fp32's at the same level, median over the rounds."""
    rows = read_file(STUDIES / "mixed_precision/study_speed.json")["rows"]
    ms = {(row["level"], row["network"], row["format"]): np.array(row["ms"]) for row in rows}

    def find(level, network, name):
        found = ms[level, network, name]
        return float(np.median(found / ms[level, network, FP32][: len(found)]))

    return find
