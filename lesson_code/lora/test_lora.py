"""What lesson 03 defines: its layers with adapters, and the variants that train few parameters."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_tools.study.lesson_code import read_definitions
from course_utils.measure.memory import count_parameters
from course_utils.measure.paired import paired_difference
from course_utils.models.create import create_model
from course_utils.results import STUDIES, read_file

PATTERN = r"layer\d\..*(conv\d?|downsample\.0)"


@pytest.fixture(scope="module")
def lesson():
    """The functions and classes of the notebook, without its trainings."""
    return read_definitions("03_lora", ALPHA=8, PATTERN=PATTERN)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return create_model("convnet_small", num_classes=4, pretrained=True).eval()


@pytest.fixture
def images():
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def list_adapters(model, lesson):
    kinds = lesson["LoRALinear"], lesson["LoRAConv2d"]
    return [module for module in model.modules() if isinstance(module, kinds)]


def test_the_pattern_hits_the_stages_and_neither_stem_nor_head(lesson, network):
    model = lesson["add_lora"](network, PATTERN, 2, 8)
    names = [name for name, module in model.named_modules() if hasattr(module, "merge")]
    stages = ["layer1.0.conv", "layer2.0.conv", "layer3.0.conv", "layer4.0.conv1", "layer4.0.conv2"]
    assert names == stages


def test_a_pattern_without_a_match_is_an_error(lesson, network):
    with pytest.raises(ValueError, match="conv9"):
        lesson["add_lora"](network, "conv9", 2, 8)


def test_only_the_adapter_gets_a_gradient_and_first_only_b(lesson, network, images):
    model = lesson["add_lora"](network, PATTERN, 2, 8)
    F.cross_entropy(model(images), torch.tensor([0, 1, 2])).backward()
    adapters = list_adapters(model, lesson)
    assert len(adapters) == 5
    for layer in adapters:
        assert layer.base.weight.grad is None
        assert layer.A.grad.norm() == 0 < layer.B.grad.norm()


def test_an_adapter_has_r_times_d_plus_k_parameters(lesson, network):
    for layer in list_adapters(lesson["add_lora"](network, PATTERN, 3, 8), lesson):
        d, k = layer.base.weight.flatten(1).shape
        assert layer.A.numel() + layer.B.numel() == 3 * (d + k)


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
    "LoRA": (lambda lesson, model: lesson["with_lora"](model, 2), 2 * 7584),
    "DoRA": (lambda lesson, model: lesson["with_lora"](model, 2, use_dora=True), 2 * 7584 + 960),
    "BitFit": (lambda lesson, model: lesson["train_biases"](model), 992),
    "bottlenecks": (lambda lesson, model: lesson["add_bottlenecks"](model, 2), 4 * 704 + 704 + 8),
    "norms": (lambda lesson, model: lesson["with_lora_and_norms"](model, 2), 2 * 7584 + 2 * 992),
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


# ---- The text of the lesson against the results that it reads.


@pytest.fixture(scope="module")
def stored():
    return read_file(STUDIES / "lora/study.json")


@pytest.fixture(scope="module")
def best(stored):
    """The best learning rate of each data set and variant, by its mean accuracy."""
    found = {}
    for row in sorted(stored["rows"], key=lambda row: np.mean(row["val_accuracy"])):
        found[row["dataset"], row["variant"]] = row["lr"]
    return found


RANKS = [f"LoRA, rank {rank}" for rank in (1, 4, 16)]


def test_one_learning_rate_serves_all_ranks_if_the_update_is_divided(best):
    for dataset in ("photos", "shapes"):
        rates = [best[dataset, rank] for rank in RANKS]
        assert max(rates) <= 2 * min(rates)
    assert best["photos", "LoRA, rank 16, α not divided"] <= best["photos", RANKS[2]] / 4


def test_lora_needs_the_learning_rates_that_the_text_says(best):
    on_photos = {best["photos", rank] / best["photos", "full fine-tuning"] for rank in RANKS}
    assert on_photos == {4, 8}
    assert {best["shapes", rank] for rank in RANKS} == {best["shapes", "full fine-tuning"]}


def test_what_the_text_says_of_the_variants(stored):
    accuracies = {(x["dataset"], x["variant"]): x["val_accuracy"] for x in stored["variants"]}
    full = accuracies["photos", "full fine-tuning"]
    assert paired_difference(full, accuracies["photos", "BitFit"]).low > 0
    costs = {row["variant"]: row for row in stored["costs"]}
    saved = {name: row["saved_bytes"] for name, row in costs.items()}
    assert saved["DoRA, rank 4"] > saved["full fine-tuning"]
    assert 0.4 < saved["bottleneck adapters"] / saved["full fine-tuning"] < 0.5
    few = [name for name in costs if name not in ("linear probe", "full fine-tuning")]
    assert min(few, key=lambda name: costs[name]["trained"]) == "BitFit"


def test_reported_seeds_are_not_those_of_the_search(stored):
    assert not set(stored["seeds"]) & set(stored["search_seeds"])


def test_the_text_on_frozen_batch_norm_is_what_the_stored_trainings_say():
    """Part of LoRA's distance to full fine-tuning, on drawings, that each change closes."""
    mean = {}
    for name in ("study", "study_batch_norm"):
        for row in read_file(STUDIES / "lora" / f"{name}.json")["variants"]:
            if row["dataset"] == "shapes":
                mean[row["variant"]] = np.mean(row["val_accuracy"])
    distance = mean["full fine-tuning"] - mean["LoRA, rank 4"]
    closed = {name: (value - mean["LoRA, rank 4"]) / distance for name, value in mean.items()}
    assert closed["BatchNorm and head"] >= 1, "it closed the whole gap"
    assert 0.05 < closed["LoRA, rank 16"] < 0.2, "a higher rank closed about a tenth of it"
    assert closed["LoRA, rank 4, and BatchNorm"] < closed["BatchNorm and head"], "no gain from LoRA"
