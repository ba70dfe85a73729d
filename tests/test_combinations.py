"""Every pair of techniques trains together, and each still does what it does alone.

A technique is one argument of `fit` and one invariant, stated in the function that checks it. Two
techniques in one seam are chained. The last test plants a fault in each technique and sees its
invariant fail.
"""

import itertools
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch.optim import SGD
from torchvision.transforms import v2

from course_utils.freezing import freeze_before
from course_utils.schedules import warmup_cosine
from course_utils.training import fit

CLASSES = 10
SMOOTHING = 0.2
PEAK, LOW = 0.1, 0.01
STEPS = 3  # one of warm-up, the peak, the last one


def lora_without_freezing(model):
    settings = {"r": 2, "target_modules": r"layer4\..*conv\d", "modules_to_save": ["fc"]}
    return get_peft_model(model, LoraConfig(**settings))


def add_lora(model):
    return lora_without_freezing(freeze_before(model, "fc"))


TECHNIQUES = {
    "mixup": {"batch_transform": v2.MixUp(alpha=1.0, num_classes=CLASSES)},
    "CutMix": {"batch_transform": v2.CutMix(alpha=1.0, num_classes=CLASSES)},
    "label smoothing": {"loss": partial(F.cross_entropy, label_smoothing=SMOOTHING)},
    "warm-up cosine": {"schedule": partial(warmup_cosine, warmup_steps=1, min_lr=LOW)},
    "freezing": {"model_transform": partial(freeze_before, first_trained="layer4")},
    "LoRA": {"model_transform": add_lora},
}


class Record:
    """What a training was given and what it did, seam by seam."""

    def __init__(self, config, data, techniques):
        self.batches = {name: [] for name in techniques}  # of a technique: (before, after)
        self.losses, self.rates = [], []
        slots = [(name, *slot) for name, found in techniques.items() for slot in found.items()]
        losses = [value for _, slot, value in slots if slot == "loss"] or [F.cross_entropy]
        schedules = [value for _, slot, value in slots if slot == "schedule"] or [None]
        self.models = [value for _, slot, value in slots if slot == "model_transform"]
        self.transforms = {name: value for name, slot, value in slots if slot == "batch_transform"}
        self.inner_loss = losses[0]
        self.run = fit(
            config,
            data,
            optimizer=self.make_optimizer,
            schedule=schedules[0],
            loss=self.note_loss,
            batch_transform=self.change_batch if self.transforms else None,
            model_transform=self.change_model,
        )
        self.after = self.run.model.state_dict()
        self.moved = {
            name.removeprefix("base_model.model.")
            for name, tensor in self.before.items()
            if not torch.equal(tensor, self.after[name])
        }
        self.val_images, self.val_targets = (
            torch.cat(part) for part in zip(*data.eval_loader(), strict=True)
        )

    def make_optimizer(self, parameters):
        optimizer = SGD(parameters, lr=PEAK)
        note = self.rates.append
        optimizer.register_step_pre_hook(lambda found, *_: note(found.param_groups[0]["lr"]))
        return optimizer

    def note_loss(self, logits, targets):
        loss = self.inner_loss(logits, targets)
        self.losses.append((logits.detach(), targets, loss.detach()))
        return loss

    def change_batch(self, images, targets):
        for name, transform in self.transforms.items():
            hard = targets.ndim == 1
            before = images, F.one_hot(targets, CLASSES).float() if hard else targets
            images, targets = transform(images, targets)
            self.batches[name].append((before, (images, targets)))
        return images, targets

    def change_model(self, model):
        for transform in self.models:
            model = transform(model)
        self.before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        return model


def check_mixup(record):
    """Images and targets are mixed with the same neighbours by the same λ."""
    for (images, targets), (mixed, soft) in record.batches["mixup"]:
        rolled, rolled_targets = images.roll(1, 0), targets.roll(1, 0)
        lam = ((mixed - rolled) * (images - rolled)).sum() / (images - rolled).square().sum()
        torch.testing.assert_close(mixed, lam * images + (1 - lam) * rolled, atol=1e-4, rtol=0)
        expected = lam * targets + (1 - lam) * rolled_targets
        torch.testing.assert_close(soft, expected, atol=1e-4, rtol=0)
    assert "train_accuracy" not in record.run.metrics


def check_cutmix(record):
    """Every pixel is an image's or its neighbour's, and the targets have their shares."""
    for (images, targets), (cut, soft) in record.batches["CutMix"]:
        kept = (cut == images).all(dim=1)
        pasted = (cut == images.roll(1, 0)).all(dim=1)
        assert (kept | pasted).all()
        lam = kept.float().mean()
        expected = lam * targets + (1 - lam) * targets.roll(1, 0)
        torch.testing.assert_close(soft, expected, atol=1e-4, rtol=0)
    assert "train_accuracy" not in record.run.metrics


def check_smoothing(record):
    """The training loss is that of targets of which a share is spread over all C classes."""
    for logits, targets, loss in record.losses:
        hard = F.one_hot(targets, CLASSES).float() if targets.ndim == 1 else targets
        smooth = (1 - SMOOTHING) * hard + SMOOTHING / CLASSES
        expected = -(smooth * logits.log_softmax(dim=1)).sum(dim=1).mean()
        torch.testing.assert_close(loss, expected, atol=1e-5, rtol=0)


def check_schedule(record):
    """The rates are those planned: half of the peak, the peak, the minimum at the last step."""
    assert record.rates == pytest.approx([PEAK / 2, PEAK, LOW])


def check_freezing(record):
    """No tensor before layer4 moves, BatchNorm's statistics included."""
    assert all(name.startswith(("layer4", "fc")) for name in record.moved)


def check_lora(record):
    """Adapters and the head move, and nothing else does."""
    assert all(".lora_" in name or name.startswith("fc") for name in record.moved)
    assert any(".lora_" in name for name in record.moved)


INVARIANTS = {
    "mixup": check_mixup,
    "CutMix": check_cutmix,
    "label smoothing": check_smoothing,
    "warm-up cosine": check_schedule,
    "freezing": check_freezing,
    "LoRA": check_lora,
}


def check_all(record, names):
    """What holds for every training, then the invariant of each technique."""
    assert len(record.rates) == len(record.losses) == STEPS
    assert any(name.startswith("fc") for name in record.moved)
    for _, targets, loss in record.losses:
        assert loss.isfinite()
        if targets.ndim > 1:
            torch.testing.assert_close(targets.sum(dim=1), torch.ones(len(targets)))
    with torch.no_grad():
        logits = record.run.model(record.val_images)
    plain = F.cross_entropy(logits, record.val_targets).item()
    assert record.run.metrics["val_loss"] == pytest.approx(plain, abs=1e-4)
    for name in names:
        INVARIANTS[name](record)


@pytest.fixture(scope="module")
def few(tiny_config, tiny_data):
    return tiny_data.take_train(STEPS * tiny_config.batch_size)


PAIRS = list(itertools.combinations(TECHNIQUES, 2))


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_pair_trains_and_each_keeps_its_invariant(pair, tiny_config, few):
    record = Record(tiny_config, few, {name: TECHNIQUES[name] for name in pair})
    check_all(record, pair)


def permute_images_only(images, targets):
    soft = F.one_hot(targets, CLASSES).float()
    return 0.7 * images + 0.3 * images.roll(1, 0), soft


def swap_lam(images, targets):
    soft = F.one_hot(targets, CLASSES).float()
    return 0.7 * images + 0.3 * images.roll(1, 0), 0.3 * soft + 0.7 * soft.roll(1, 0)


def paste_by_drawn_area(images, targets):
    cut = images.clone()
    cut[:, :, 24:48, :16] = images.roll(1, 0)[:, :, 24:48, :16]  # half of it lies outside
    lam = 1 - 24 * 16 / (32 * 32)
    soft = F.one_hot(targets, CLASSES).float()
    return cut, lam * soft + (1 - lam) * soft.roll(1, 0)


def smooth_over_others(logits, targets):
    hard = F.one_hot(targets, CLASSES).float()
    return F.cross_entropy(logits, (1 - SMOOTHING) * hard + SMOOTHING * (1 - hard) / (CLASSES - 1))


def softmax_first(logits, targets):
    return F.cross_entropy(logits.softmax(dim=1), targets, label_smoothing=SMOOTHING)


def end_at_zero(optimizer, total_steps):
    return warmup_cosine(optimizer, total_steps, warmup_steps=1)


def warm_up_off_by_one(optimizer, total_steps):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (0, 0.5, LOW / PEAK)[step % 3])


def freeze_weights_only(model):
    for name in ("conv1", "bn1", "layer1", "layer2", "layer3"):
        getattr(model, name).requires_grad_(False)
    return model


FAULTS = [
    ("mixup", "batch_transform", permute_images_only),
    ("mixup", "batch_transform", swap_lam),
    ("CutMix", "batch_transform", paste_by_drawn_area),
    ("label smoothing", "loss", smooth_over_others),
    ("label smoothing", "loss", softmax_first),
    ("warm-up cosine", "schedule", end_at_zero),
    ("warm-up cosine", "schedule", warm_up_off_by_one),
    ("freezing", "model_transform", freeze_weights_only),
    ("LoRA", "model_transform", lora_without_freezing),
]


@pytest.mark.parametrize(("name", "slot", "fault"), FAULTS)
def test_invariant_fails_for_a_planted_fault(name, slot, fault, tiny_config, few):
    record = Record(tiny_config, few, {name: {slot: fault}})
    with pytest.raises(AssertionError):
        check_all(record, [name])
