"""The baseline: planted answers of the lesson's exercises, and what its cards compute."""

from functools import partial

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course_utils.config import load_config
from course_utils.training.fit import quiet_trainer
from course_utils.training.lit_classifier import LitClassifier

LR = load_config("quick", dataset="photos").peak_lr  # the course's default


def _make_batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(6, 8, 3, 8, 8, generator=generator)
    targets = torch.randint(0, 4, (6, 8), generator=generator)
    return list(zip(images, targets, strict=True))


def _make_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 4))


def _train_by_course(network: nn.Module, batches: list) -> nn.Module:
    lit = LitClassifier(network, 4, make_optimizer=partial(torch.optim.AdamW, lr=LR))
    quiet_trainer(max_epochs=1, accelerator="cpu").fit(lit, DataLoader(batches, batch_size=None))
    return lit.model


def _compare_weights(network: nn.Module, batches: list) -> None:
    expected = _train_by_course(_make_network(), batches).state_dict()
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-6)


def check_pytorch_card(card: dict) -> None:
    """The card's epoch is that of `LitClassifier`, from whatever mode the network is in."""
    batches = _make_batches()
    network = _make_network()
    optimizer = torch.optim.AdamW(network.parameters(), LR)
    card["train_one_epoch"](network.eval(), batches, optimizer, "cpu")
    _compare_weights(network, batches)
    right = []
    with torch.no_grad():
        for images, targets in batches:
            right += (network.eval()(images).argmax(dim=1) == targets).tolist()
    found = card["measure_accuracy"](network.train(), batches, "cpu")
    assert abs(found - sum(right) / len(right)) < 1e-6
    assert card["optimizer"].defaults["lr"] == LR


def check_lightning_card(card: dict) -> None:
    """The card's module trains as `LitClassifier` does, and logs the accuracy over all images."""
    batches = _make_batches()
    module = card["Classifier"](_make_network())
    trainer = quiet_trainer(max_epochs=1, accelerator="cpu")
    images, targets = (torch.cat(part) for part in zip(*batches, strict=True))
    trainer.fit(
        module,
        DataLoader(batches, batch_size=None),
        DataLoader(TensorDataset(images, targets), 20),
    )
    _compare_weights(module.model, batches)
    with torch.no_grad():
        logits = module.model.eval()(images)
    right = (logits.argmax(dim=1) == targets).float().mean().item()
    found = trainer.callback_metrics["val_accuracy"].item()
    assert abs(found - right) < 1e-6, f"accuracy {found}, expected {right}"
