"""LoRA: adapters in the convolutions of the last stage, and a new head."""

import copy
from pathlib import Path

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

from course_utils.models.freeze import freeze_before


def lora_without_freezing(model):
    settings = {"r": 2, "target_modules": r"layer4\.(.*conv\d|q|v)", "modules_to_save": ["fc"]}
    return get_peft_model(model, LoraConfig(**settings))


def add_lora(model):
    return lora_without_freezing(freeze_before(model, "fc"))


SEAM = {"model_transform": add_lora}


def invariant(record):
    """Adapters and the head move, and nothing else does."""
    assert all(".lora_" in name or name.startswith("fc") for name in record.moved)
    assert any(".lora_" in name for name in record.moved)


FAULTS = [("model_transform", lora_without_freezing)]


def make_tiny():
    """A convolution, a linear layer and a head, and a batch of images."""
    layers = (
        nn.Conv2d(3, 5, 3, stride=2, padding=1),
        nn.Flatten(),
        nn.Linear(80, 6),
        nn.Linear(6, 4),
    )
    return nn.Sequential(*layers), torch.randn(7, 3, 8, 8)


def adapt_by_peft(model, pairs, **settings):
    """peft's adapters on a copy of ``model``, with A and B of ``pairs`` (name to two matrices)."""
    library = get_peft_model(copy.deepcopy(model), LoraConfig(**settings))
    for name, (a, b) in pairs.items():
        layer = library.base_model.model.get_submodule(name)
        down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        down.data.copy_(a.view_as(down))
        up.data.copy_(b.view_as(up))
    return library


def check_pytorch_card(card):
    """Its layer is peft's, starts as the old layer, trains A and B alone, and merges once."""
    base, x = nn.Linear(6, 5), torch.randn(4, 6)
    original = copy.deepcopy(base)
    layer = card["LoRALinear"](base, rank=2, alpha=6)
    torch.testing.assert_close(layer(x), original(x))
    trained = {name: tuple(p.shape) for name, p in layer.named_parameters() if p.requires_grad}
    assert trained == {"A": (2, 6), "B": (5, 2)}
    assert layer.A.abs().sum() > 0
    nn.init.normal_(layer.B)
    settings = {"r": 2, "lora_alpha": 6, "target_modules": ["0"]}
    library = adapt_by_peft(
        nn.Sequential(original), {"0": (layer.A.data, layer.B.data)}, **settings
    )
    expected = library(x)
    torch.testing.assert_close(layer(x), expected, atol=1e-4, rtol=1e-4)
    merged = layer.merge()
    assert type(merged) is nn.Linear
    torch.testing.assert_close(merged(x), expected, atol=1e-4, rtol=1e-4)

    default = card["LoRALinear"](nn.Linear(4, 3))
    assert default.scale == 8 / 8
    assert default.A.shape == (8, 4)
    head = {"1.weight", "1.bias"}
    adapters = {f"0.{name}.{part}" for name in card["names"] for part in "AB"}
    assert card["names"]
    assert card["trained"].keys() == head | adapters, "the head as a whole, A and B of all others"
    (group,) = card["optimizer"].param_groups
    assert len(group["params"]) == len(card["trained"])
    assert torch.load("adapter.pt").keys() == card["trained"].keys()
    assert not any(isinstance(x, card["LoRALinear"]) for x in card["model"].modules()), "merged"


def check_lightning_card(card):
    """Its module is peft's model, and its optimizer has the trained parameters alone."""
    model, images = make_tiny()
    settings = {"r": 2, "lora_alpha": 6, "target_modules": ["0", "2"], "modules_to_save": ["3"]}
    lit = card["LitLoRA"](copy.deepcopy(model), lr=0.25, **settings)
    pairs = {
        name: (torch.randn(2, k), torch.randn(d, 2)) for name, d, k in (("0", 5, 27), ("2", 6, 80))
    }
    for name, (a, b) in pairs.items():
        layer = lit.model.base_model.model.get_submodule(name)
        layer.lora_A["default"].weight.data.copy_(a.view_as(layer.lora_A["default"].weight))
        layer.lora_B["default"].weight.data.copy_(b.view_as(layer.lora_B["default"].weight))
    library = adapt_by_peft(model, pairs, **settings)
    targets = torch.randint(4, (7,))
    expected = F.cross_entropy(library(images), targets)
    torch.testing.assert_close(lit.training_step((images, targets), 0), expected)
    (group,) = lit.configure_optimizers().param_groups
    assert group["lr"] == 0.25
    trained = {id(p) for p in lit.parameters() if p.requires_grad}
    assert {id(p) for p in group["params"]} == trained
    assert sum(p.numel() for p in group["params"]) == 2 * (5 + 27 + 6 + 80) + 4 * 7

    config = card["lit"].model.peft_config["default"]
    assert (config.r, config.lora_alpha) == (8, 8)
    assert card["lit"].lr == 1e-3
    file = Path("adapter") / "adapter_model.safetensors"
    assert file.stat().st_size < 0.5 * sum(p.nbytes for p in card["vit"].parameters())
    trained = card["lit"].model.eval()
    batch = torch.randn(2, *card["data"][0][0].shape)
    with torch.no_grad():
        expected = trained(batch)
        base = copy.deepcopy(trained).unload()  # the network without adapters
        loaded = PeftModel.from_pretrained(base, "adapter").eval()
        torch.testing.assert_close(loaded(batch), expected)
