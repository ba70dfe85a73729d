"""What lesson 03 defines: its layers with adapters, and the variants that train few parameters."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_tools.study.lesson_code import read_definitions
from course_utils.measure.memory import count_parameters
from course_utils.models.create import create_model
from course_utils.study_results import read_study

EVERY_LINEAR = r"layer\d+\.(q|k|v|o|up|down)"
CONVOLUTIONS = r"layer\d+\..*(conv\d?|downsample\.0)"


@pytest.fixture(scope="module")
def lesson():
    """The functions and classes of the notebook, without its trainings."""
    return read_definitions("03_lora", ALPHA=8)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return create_model("convnet_small", num_classes=4, pretrained=True).eval()


@pytest.fixture
def transformer():
    torch.manual_seed(0)
    return create_model("text_small", num_classes=4, pretrained=True).eval()


@pytest.fixture
def images():
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def tokens():
    return torch.randint(1, 4096, (3, 9), generator=torch.Generator().manual_seed(1))


def list_adapters(model, lesson):
    kinds = lesson["LoRALinear"], lesson["LoRAConv2d"]
    return [module for module in model.modules() if isinstance(module, kinds)]


def test_the_pattern_hits_the_stages_and_neither_stem_nor_head(lesson, network):
    model = lesson["add_lora"](network, CONVOLUTIONS, 2, 8, make=lesson["LoRAConv2d"])
    names = [name for name, module in model.named_modules() if hasattr(module, "merge")]
    stages = ["layer1.0.conv", "layer2.0.conv", "layer3.0.conv", "layer4.0.conv1", "layer4.0.conv2"]
    assert names == stages


def test_the_pattern_hits_every_linear_layer_but_the_head(lesson, transformer):
    linear = {name for name, module in transformer.named_modules() if type(module) is nn.Linear}
    model = lesson["add_lora"](transformer, EVERY_LINEAR, 2, 8)
    names = {name for name, module in model.named_modules() if hasattr(module, "merge")}
    assert names == linear - {"fc"}


def test_a_pattern_without_a_match_is_an_error(lesson, network):
    with pytest.raises(ValueError, match="conv9"):
        lesson["add_lora"](network, "conv9", 2, 8)


def test_only_the_adapter_gets_a_gradient_and_first_only_b(lesson, transformer, tokens):
    model = lesson["add_lora"](transformer, EVERY_LINEAR, 2, 8)
    F.cross_entropy(model(tokens), torch.tensor([0, 1, 2])).backward()
    adapters = list_adapters(model, lesson)
    assert len(adapters) == 24
    for layer in adapters:
        assert layer.base.weight.grad is None
        assert layer.A.grad.norm() == 0 < layer.B.grad.norm()


def test_an_adapter_has_r_times_d_plus_k_parameters(lesson, network):
    model = lesson["add_lora"](network, CONVOLUTIONS, 3, 8, make=lesson["LoRAConv2d"])
    for layer in list_adapters(model, lesson):
        d, k = layer.base.weight.flatten(1).shape
        assert layer.A.numel() + layer.B.numel() == 3 * (d + k)


def test_a_merged_model_has_its_old_layers_and_the_same_outputs(lesson, transformer, tokens):
    model = lesson["add_lora"](transformer, EVERY_LINEAR, 2, 8)
    for layer in list_adapters(model, lesson):
        nn.init.normal_(layer.B, std=0.1)
    expected = model(tokens)
    merged = lesson["merge_lora"](model)
    assert not list_adapters(merged, lesson)
    torch.testing.assert_close(merged(tokens), expected, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(6, 4), (5, 6)),
        (nn.Linear(6, 4, bias=False), (5, 6)),
        (nn.Conv2d(3, 4, 3), (2, 3, 8, 8)),
        (nn.Conv2d(3, 4, 3, stride=2, padding=1, dilation=2), (2, 3, 9, 9)),
        (nn.Conv2d(3, 4, (1, 3), bias=False), (2, 3, 8, 8)),
    ],
)
def test_merged_equals_unmerged_and_leaves_the_base_alone(lesson, layer, shape):
    torch.manual_seed(0)
    kind = lesson["LoRALinear"] if isinstance(layer, nn.Linear) else lesson["LoRAConv2d"]
    adapted = kind(layer, rank=2, alpha=5)
    before = layer.weight.clone()
    x = torch.randn(shape)
    torch.testing.assert_close(adapted(x), layer(x), rtol=0, atol=0)
    nn.init.normal_(adapted.B)
    torch.testing.assert_close(adapted.merge()(x), adapted(x), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(adapted(x), layer(x), atol=1e-2)
    assert torch.equal(layer.weight, before)


def test_twice_the_alpha_at_twice_the_rank_is_the_same_scale(lesson):
    scales = [lesson["LoRALinear"](nn.Linear(6, 4), r, a).scale for r, a in ((2, 8), (4, 16))]
    assert scales == [4, 4]


VARIANTS = {
    "LoRA": (lambda lesson, model: lesson["with_lora"](model, CONVOLUTIONS, 2), 2 * 7584),
    "norms": (
        lambda lesson, model: lesson["with_lora_and_norms"](model, CONVOLUTIONS, 2),
        2 * 7584 + 2 * 992,
    ),
    "control": (
        lambda lesson, model: lesson["train_only"](model, r"layer4\.0\.conv1"),
        256 * 256 * 9,
    ),
}


@pytest.mark.parametrize(("change", "added"), VARIANTS.values(), ids=VARIANTS)
def test_a_variant_starts_as_the_network_and_trains_what_it_says(
    lesson, network, images, change, added
):
    expected = network(images)
    head = count_parameters(network.fc)
    changed = change(lesson, copy.deepcopy(network)).eval()
    torch.testing.assert_close(changed(images), expected, atol=1e-3, rtol=1e-4)
    assert count_parameters(changed, trainable=True) == added + head


def test_the_first_step_is_as_long_at_every_rank_if_the_update_is_divided(
    lesson, transformer, tokens
):
    names = {"backbone": transformer, "tokens": tokens, "targets": torch.tensor([0, 1, 2])}
    names["config"] = type("Seeds", (), {"first_seed": 0})
    names["EVERY_LINEAR"] = EVERY_LINEAR
    measure = lesson["measure_movement"]
    measure.__globals__.update(names)
    constant = [measure(rank, 8) for rank in (1, 16)]
    assert 0.7 < constant[1] / constant[0] < 1.4
    assert measure(16, 8 * 16) > 8 * constant[0]


# ---- The text of the lesson against the study that it reads.

FULL, PROBE = "full fine-tuning", "linear probe"
RANKS = (1, 2, 4, 8, 16, 32)


@pytest.fixture(scope="module")
def study():
    return read_study("lora")


@pytest.fixture(scope="module")
def points(study):
    """The mean difference of a variant from full fine-tuning, in points."""
    return lambda regime, variant: 100 * study.difference(regime, variant, FULL).mean


@pytest.fixture(scope="module")
def stored(study):
    """Bytes that a step of the first reported seed stores on definitions, of each variant."""
    first = [x for x in study.trainings if (x.regime, x.seed) == ("definitions", study.seeds[0])]
    return {x.variant: x.saved_bytes for x in first}


def read_lr(study, regime, variant):
    return float(study.best[regime][variant].split()[1])


def list_tried(study, regime, variant):
    chosen = (x for x in study.trainings if (x.regime, x.variant) == (regime, variant))
    return {float(x.trial.split()[1]) for x in chosen if x.seed in study.search_seeds}


def test_rank_4_loses_one_point_and_the_probe_five(points):
    assert points("definitions", "LoRA on all, rank 4") == pytest.approx(-1, abs=0.3)
    assert points("definitions", PROBE) == pytest.approx(-5, abs=0.3)


def test_at_ranks_16_and_32_it_is_equivalent_to_full_fine_tuning(study):
    for rank in RANKS:
        found = study.difference("definitions", f"LoRA on all, rank {rank}", FULL)
        assert (found.verdict(margin=study.margin) == "equivalent") == (rank >= 16)


def test_the_differences_on_all_layers_are_those_of_the_worked_answer(points):
    found = [round(points("definitions", f"LoRA on all, rank {rank}"), 2) for rank in RANKS]
    assert found == [-2.70, -1.38, -0.95, -0.57, -0.22, -0.47]


def test_rank_32_on_q_and_v_is_equivalent_to_rank_4_on_all_and_stores_less(study, stored):
    wide, narrow = "LoRA on q and v, rank 32", "LoRA on all, rank 4"
    found = study.difference("definitions", wide, narrow)
    assert found.verdict(margin=study.margin) == "equivalent"
    assert stored[wide] / stored[FULL] == pytest.approx(0.71, abs=0.005)


def test_the_learning_rates_lie_where_the_text_says(study):
    full = list_tried(study, "definitions", FULL)
    assert read_lr(study, "definitions", FULL) == max(full) == 0.001
    for rank in RANKS:
        on_all, on_two = (f"LoRA on {layers}, rank {rank}" for layers in ("all", "q and v"))
        tried = list_tried(study, "definitions", on_all)
        assert tried == list_tried(study, "definitions", on_two) == {0.004, 0.008, 0.016}
        assert max(full) == min(tried) / 4  # the grids do not overlap
        assert read_lr(study, "definitions", on_all) == (0.008 if rank == 8 else min(tried))
        expected = 0.016 if rank == 1 else 0.004 if rank in (2, 4) else 0.008
        assert read_lr(study, "definitions", on_two) == expected


def test_what_the_text_says_of_dora_and_bitfit(study, points, stored):
    assert stored["DoRA on all, rank 4"] / stored[FULL] == pytest.approx(2.5, abs=0.05)
    assert stored["BitFit"] == min(size for variant, size in stored.items() if variant != PROBE)
    dora, lora = (f"{x} on all, rank 4" for x in ("DoRA", "LoRA"))
    assert study.difference("definitions", dora, lora).verdict(margin=study.margin) == "equivalent"
    assert study.difference("definitions", "BitFit", lora).high < 0
    assert points("definitions", "BitFit") == pytest.approx(-3, abs=0.3)


def test_on_photographs_lora_has_little_to_win(study, points):
    assert points("photographs", PROBE) == pytest.approx(-1, abs=0.3)
    found = study.difference("photographs", "LoRA, rank 16", FULL)
    assert found.verdict(margin=study.margin) == "equivalent"


def test_what_closes_the_gap_on_drawings(study, points):
    gap = points("drawings", "LoRA, rank 4")
    assert gap == pytest.approx(-19, abs=0.5)
    assert not study.difference("drawings", "LoRA, rank 16", "LoRA, rank 4").low > 0
    assert 1 - points("drawings", "LoRA and BatchNorm, rank 4") / gap == pytest.approx(
        0.6, abs=0.01
    )
    assert 1 - points("drawings", "BatchNorm and head") / gap == pytest.approx(0.56, abs=0.01)
    assert 1 - points("drawings", "same layers in full") / gap == pytest.approx(0.69, abs=0.01)
    others = [variant for variant in study.best["drawings"] if variant != FULL]
    assert all(study.difference("drawings", variant, FULL).high < 0 for variant in others)
