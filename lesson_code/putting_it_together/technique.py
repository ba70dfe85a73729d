"""Putting it together: checks of the lesson's recipe cards, planted answers of its exercises."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.config import load_config
from course_utils.data.augment import flip_and_shift
from course_utils.models.airbench import whiten_stem
from course_utils.models.create import create_model
from course_utils.training.recipes import WhitenStem, from_scratch
from course_utils.training.schedules import warmup_cosine

PHOTOS = load_config("smoke", dataset="photos").replace(progress=False)


def train_again(card, recipe):
    """The script's training, with network, images, optimizer, schedule and loss of the course."""
    torch.manual_seed(card["seed"])
    generator = torch.Generator().manual_seed(card["seed"])
    net = recipe["model_transform"](create_model(recipe["config"].model, 10)).train()
    whiten_stem(net, card["images"][card["train"]][:5000])
    optimizer = recipe["make_optimizer"](net.named_parameters())
    schedule = recipe["make_schedule"](optimizer, card["epochs"] * card["steps"])
    train, size = card["train"], card["batch_size"]
    for _ in range(card["epochs"]):
        shuffled = train[torch.randperm(len(train), generator=generator)]
        for chosen in shuffled.split(size)[: card["steps"]]:
            images = card["images"][chosen].permute(0, 2, 3, 1)
            moved = flip_and_shift(images, generator, max_shift=2).permute(0, 3, 1, 2)
            with torch.autocast("cpu", torch.bfloat16):
                logits = net(moved)
            recipe["loss"](logits.float(), card["targets"][chosen]).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    return net, optimizer


def check_pytorch_card(card):
    """The script trains as `from_scratch` does, and never on validation images.

    Only the images that whiten the stem are others.
    """
    recipe = from_scratch(PHOTOS, card["epochs"], card["batch_size"])
    assert recipe["trainer"].keys() == {"precision", "callbacks"}
    assert recipe["trainer"]["precision"] == "bf16-mixed"
    [whiten] = recipe["trainer"]["callbacks"]
    assert isinstance(whiten, WhitenStem)  # with the images of its first batch
    assert not set(card["train"].tolist()) & set(card["val"].tolist())
    assert len(card["train"]) + len(card["val"]) == len(card["images"])
    batch = card["images"][card["train"]]
    torch.testing.assert_close(batch.mean((0, 2, 3)), torch.zeros(3), atol=1e-3, rtol=0)
    torch.testing.assert_close(batch.std((0, 2, 3)), torch.ones(3), atol=1e-3, rtol=0)

    net, optimizer = train_again(card, recipe)
    trained = card["net"].state_dict().values()  # in their order: the layers' names differ
    for ours, theirs in zip(net.state_dict().values(), trained, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    for ours, theirs in zip(optimizer.param_groups, card["optimizer"].param_groups, strict=True):
        settings = ours.keys() - {"params", "param_names"}
        assert {name: ours[name] for name in settings} == {name: theirs[name] for name in settings}
    saved = torch.load("net.pt", weights_only=True)
    torch.testing.assert_close(saved["net"], card["net"].state_dict())
    restored = card["images"] * saved["std"] + saved["mean"]  # what a new image is normalised with
    torch.testing.assert_close(restored, restored.round(), atol=1e-3, rtol=0)

    always_two = nn.Sequential(nn.Dropout(1.0), nn.Flatten(), nn.Linear(48, 3)).train()
    nn.init.zeros_(always_two[2].weight)
    always_two[2].bias.data = torch.tensor([0.0, 0.0, 1.0])
    targets = torch.arange(1200) % 3
    images = torch.zeros(1200, 3, 4, 4)
    assert math.isclose(card["measure_accuracy"](always_two, images, targets), 1 / 3)
    assert not always_two.training


def check_lightning_card(card):
    """Its learning rates are those of the lesson's warm-up and cosine."""
    model = nn.Linear(6, 4)
    lit = card["LitFullRecipe"](model, lr=0.5)
    batch = torch.randn(9, 6), torch.arange(9) % 4
    expected = F.cross_entropy(model(batch[0]), batch[1])
    torch.testing.assert_close(lit.training_step(batch, 0), expected)
    logged = {}
    lit.log = logged.__setitem__
    lit.validation_step(batch, 0)
    assert logged["val_acc"] == (model(batch[0]).argmax(1) == batch[1]).float().mean()
    for total in (3, 30, 47):
        lit._trainer = SimpleNamespace(estimated_stepping_batches=total)
        [adam], [about] = lit.configure_optimizers()
        assert about["interval"] == "step"
        other = torch.optim.AdamW(nn.Linear(6, 4).parameters(), lr=0.5)
        planned = warmup_cosine(other, total, warmup_steps=total // 10)
        for _ in range(total):
            assert math.isclose(adam.param_groups[0]["lr"], other.param_groups[0]["lr"])
            for optimizer, schedule in ((adam, about["scheduler"]), (other, planned)):
                optimizer.step()
                schedule.step()
    for unknown in (math.inf, -1):
        lit._trainer = SimpleNamespace(estimated_stepping_batches=unknown)
        with pytest.raises(AssertionError, match="give it max_steps"):
            lit.configure_optimizers()
    assert card["trainer"].precision == "bf16-mixed"
    assert card["trainer"].lightning_module.lr == 1e-4
    train, val = card["train"], card["val"]
    assert not set(train.indices) & set(val.indices)
    assert len(train) + len(val) == len(card["images"])
    assert card["trainer"].train_dataloader.dataset is train
    assert card["trainer"].val_dataloaders.dataset is val
    weights = nn.Conv2d(3, 8, 3)
    kept = card["LitFullRecipe"](weights).model.weight
    assert kept.is_contiguous(memory_format=torch.channels_last)
