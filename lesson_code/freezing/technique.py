"""Freezing: only the last stage and the head are trained."""

import copy
import inspect
from functools import partial

import timm
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from course_utils.models.create import create_model
from course_utils.models.freeze import freeze_before, list_frozen
from course_utils.study_results import read_study
from course_utils.training.fit import quiet_trainer

SEAM = {"model_transform": partial(freeze_before, first_trained="layer4")}


def invariant(record):
    """No tensor before layer4 moves, BatchNorm's statistics included."""
    trained = ("layer4", "norm", "fc")  # only a transformer has a norm behind its last block
    assert all(name.startswith(trained) for name in record.moved)


def freeze_weights_only(model):
    for name in ("stem", "layer1", "layer2", "layer3"):
        getattr(model, name).requires_grad_(False)
    return model


FAULTS = []


# LoRA freezes everything but the adapters and the head for itself, BatchNorm's statistics too.
MASKED_FAULTS = [("model_transform", freeze_weights_only, ("lora",))]


def _make_batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    images = 2 * torch.randn(3, 16, 3, 32, 32, generator=generator) + 1
    return list(zip(images, torch.randint(0, 10, (3, 16), generator=generator), strict=True))


def _make_network() -> nn.Module:
    torch.manual_seed(0)
    return create_model("timm/resnet18", num_classes=10)


def _train(network: nn.Module, groups: list, lr: float) -> nn.Module:
    """A few steps on the batches, in train mode; returns the network."""
    optimizer = torch.optim.AdamW(groups, lr=lr)
    network.train()
    for images, targets in _make_batches():
        optimizer.zero_grad()
        F.cross_entropy(network(images), targets).backward()
        optimizer.step()
    return network


def _compare_logits(network: nn.Module, other: nn.Module) -> None:
    images = _make_batches()[0][0]
    with torch.no_grad():
        logits, expected = (model.eval()(images) for model in (network, other))
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)


def check_pytorch_card(card: dict) -> None:
    """`train_from` freezes what `freeze_before` does; named first, nothing is frozen."""
    for first_trained in ("conv1", "layer4", "fc"):
        start = _make_network()
        networks = [copy.deepcopy(start) for _ in range(2)]
        by_card = card["train_from"](networks[0], first_trained)
        by_course = freeze_before(networks[1], first_trained)
        for network in (by_card, by_course):
            _train(network, [p for p in network.parameters() if p.requires_grad], lr=1e-3)
        _compare_logits(by_card, by_course)
        for name in list_frozen(start, first_trained):
            before = start.get_submodule(name).state_dict()
            for key, value in by_card.get_submodule(name).state_dict().items():
                assert value.equal(before[key]), f"{name}.{key} has moved"
    (group,) = card["optimizer"].param_groups
    assert group["lr"] == _find_best_lr("last stage"), "its learning rate is not the study's"


def check_lightning_card(card: dict) -> None:
    """`FineTuning` trains as a plain loop does; its learning rates are the study's."""
    start = _make_network()
    frozen = [name for name, _ in start.named_children() if name not in ("layer4", "fc")]
    module = card["FineTuning"](copy.deepcopy(start), frozen=frozen)
    batches = DataLoader(_make_batches(), batch_size=None)
    quiet_trainer(max_epochs=1, accelerator="cpu").fit(module, batches)
    network = freeze_before(copy.deepcopy(start), "layer4")
    lr, head_lr = _find_best_lr("last stage"), _find_best_lr("linear probe")
    head = {"params": list(network.fc.parameters()), "lr": head_lr}
    expected = _train(network, [{"params": list(network.layer4.parameters())}, head], lr=lr)
    _compare_logits(module.model, expected)
    vit = card["FineTuning"](timm.create_model("test_vit"), frozen=["patch_embed"]).model
    assert not vit.pos_embed.requires_grad, "positions and class token are frozen, too"
    assert next(vit.blocks.parameters()).requires_grad
    defaults = inspect.signature(card["FineTuning"]).parameters
    found = defaults["lr"].default, defaults["head_lr"].default
    assert found == (lr, head_lr), "its learning rates are not the study's"


def _find_best_lr(variant: str) -> float:
    """The learning rate that the lesson's study found best on 500 photographs."""
    return float(read_study("freezing").best["photographs, 500"][variant].split()[1])
