"""What lesson 07 defines, and what it says of its studies in words is what they found."""

import copy

import nbformat
import numpy as np
import pytest
import torch
from torch import nn

from course_tools.run.lessons import NOTEBOOKS
from course_tools.study.lesson_code import read_definitions
from course_utils.data.glosses import describe_glosses
from course_utils.models.create import create_model
from course_utils.results import STUDIES, read_file
from course_utils.study_results import read_study
from lesson_code.mixed_precision import study as declared

FP32, MIXED, PURE, ROUNDED = "fp32", "mixed bf16", "pure bf16", "rounded weights"
LOW = ", low learning rate"
LOW_REGIMES = ("definitions" + LOW, "photographs" + LOW)
HIGH_REGIMES = ("definitions", "photographs")
SETTINGS = ("definitions", LOW_REGIMES[0], "photographs", LOW_REGIMES[1])


@pytest.fixture(scope="module")
def lesson():
    """The functions and classes of the notebook, without its trainings."""
    return read_definitions("07_mixed_precision", FP32=FP32, LOW_LR=1e-4)


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
        "largest": max(abs(points(x, MIXED)) for x in SETTINGS),
        "pure": [-points(x, PURE) for x in LOW_REGIMES],
        "rounded": [-points(x, ROUNDED) for x in LOW_REGIMES],
    }


def test_the_settings_are_those_that_the_text_says(study, read_text):
    rates = "0.001, which suits fp32 (8 epochs), and 0.0001 (definitions 16 epochs, photographs 8)"
    assert rates in read_text("first-md")
    epochs = [study.regimes[x].config.epochs for x in SETTINGS]
    assert epochs == [8, 16, 8, 8]
    assert {study.regimes[x].config.num_train for x in SETTINGS} == {500}
    lrs = [float(study.best[x][FP32].split()[1]) for x in SETTINGS]
    assert lrs == [0.001, 0.0001, 0.001, 0.0001]
    assert declared.FACTOR == 0.00001
    small = study.regimes["small loss"].config
    assert (small.model, small.num_train, small.epochs) == ("text_small", 500, 2)
    assert study.best["small loss"][FP32] == "lr 0.001"
    trained = "on 500 definitions for 2 epochs at 0.001, with the loss times 0.00001"
    assert trained in read_text("fp16-md")
    assert {len(set(trials.values())) for trials in study.best.values()} == {1}


def test_mixed_bf16_is_equivalent_everywhere(judge, numbers, read_text):
    assert {judge(x, MIXED) for x in SETTINGS} == {"equivalent"}
    assert judge("definitions", "mixed fp16") == "equivalent"
    assert f"differ by {numbers['largest']:.2f} points at most" in read_text("first-read-md")
    assert f"differ by {numbers['largest']:.2f} points at most" in read_text("ffb4bc67")


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
    assert judge("small loss", "mixed fp16") == "equivalent"


def test_stochastic_rounding_is_equivalent_to_fp32(study, judge, points, read_text):
    regime, variant = "definitions" + LOW, "stochastic rounding"
    lost = -points(regime, ROUNDED)
    text = read_text("stochastic-read")
    assert f"brings back the {lost:.1f} points that rounding to the nearest loses" in text
    assert study.difference(regime, variant, ROUNDED).low > 0
    assert judge(regime, variant) == "equivalent"


def test_the_average_of_squared_gradients_costs_little(points, read_text):
    assert "less than one point below rounded weights in every setting" in read_text("bn-md")
    assert min(points(x, PURE, ROUNDED) for x in SETTINGS) > -1


def test_definitions_are_of_ten_kinds(read_text):
    kinds = describe_glosses()["classes"]
    assert len(kinds) == 10
    assert {"animal", "food"} <= set(kinds)
    assert "which of ten kinds of things is defined, such as *animal* or" in read_text("77b0b480")


def test_the_saved_bytes_of_the_study(study, read_text):
    first = {
        x.variant: x.saved_bytes
        for x in study.trainings
        if x.regime == LOW_REGIMES[0] and x.seed == study.seeds[0]
    }
    share = 100 * first[MIXED] / first[FP32]
    assert f"to {share:.0f} % in the study's first batch, whose texts are" in read_text("29175537")
    assert first[PURE] / first[FP32] == pytest.approx(0.5, abs=0.01)


def test_fp32_is_not_at_its_best_at_the_low_learning_rate(study, read_text):
    low, high = (100 * study.values(x, FP32).mean() for x in ("photographs" + LOW, "photographs"))
    assert f"with {low:.0f} % on photographs against {high:.0f} %" in read_text("ffb4bc67")


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


ALL, NO_16_BITS, OLDER = "all instructions", "AVX-512 without bf16 and fp16", "AVX2"
CONVOLUTIONAL, SMALL, WIDE = "convnet_small", "text_small", "text, width 512"


def test_the_instructions_decide_what_bf16_takes(ratio, read_text):
    text = read_text("speed-read")
    assert "for `convnet_small` and for the wide transformer (*text, width 512*)" in text
    assert max(ratio(ALL, x, MIXED) for x in (CONVOLUTIONAL, WIDE)) < 1
    assert f"but {ratio(ALL, SMALL, MIXED):.2g} times as much for `text_small`" in text

    def find_range(level):
        networks = (CONVOLUTIONAL, SMALL, WIDE)
        found = [ratio(level, x, y) for x in networks for y in (MIXED, PURE)]
        return f"{min(found):.2g} to {max(found):.2g} times"

    assert f"takes {find_range(NO_16_BITS)} as long in bf16" in text
    assert f"with AVX2 {find_range(OLDER)}." in text


def test_the_convolutional_network_is_slow_in_fp16(ratio, read_text):
    slower = ratio(ALL, CONVOLUTIONAL, "mixed fp16")
    assert f"`convnet_small` takes {slower:.2g} times as long in it" in read_text("speed-read")


def test_the_processor_that_was_measured_has_the_instructions():
    about = read_file(STUDIES / "mixed_precision/study_speed.json")
    assert all(about["capabilities"][x] for x in ("amx_bf16", "avx512_bf16", "avx512_fp16"))
    assert {about["vector_instructions"][x] for x in (ALL, NO_16_BITS)} == {"AVX512"}
