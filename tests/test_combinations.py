"""Every pair of techniques trains together, and each still does what it does alone.

A technique is one argument of `fit` and one invariant, stated in the function that checks it. Two
techniques in one seam are chained. The last test plants a fault in each technique and sees its
invariant fail.
"""

import itertools
import math
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch import Callback
from peft import LoraConfig, get_peft_model
from torch.optim import SGD
from torch.utils.checkpoint import checkpoint
from torchvision.transforms import v2

from course_utils.data.dali import DaliLoader, has_dali
from course_utils.data.jpegs import write_jpegs
from course_utils.models.freeze import freeze_before
from course_utils.training.fit import fit
from course_utils.training.schedules import warmup_cosine

CLASSES = 10
SMOOTHING = 0.2
PEAK, LOW = 0.1, 0.01
BATCHES = 6
WINDOW = 2  # micro-batches in an optimizer step, with accumulation
WATCHED = "layer4.0"  # a block that every technique trains


def lora_without_freezing(model):
    settings = {"r": 2, "target_modules": r"layer4\..*conv\d", "modules_to_save": ["fc"]}
    return get_peft_model(model, LoraConfig(**settings))


def add_lora(model):
    return lora_without_freezing(freeze_before(model, "fc"))


def checkpoint_blocks(model):
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    inner.set_grad_checkpointing()
    return model


class ReadByDali:
    """The data seam: the training images as JPEG files, read by DALI; keeps what it delivers."""

    def __init__(self, data, seed):
        self.folder = tempfile.TemporaryDirectory()
        files = write_jpegs(data.train, Path(self.folder.name))
        self.loader = DaliLoader(files, data.mean, data.std, data.batch_size, seed=seed)
        self.delivered = []

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        for batch in self.loader:
            self.delivered.append(batch)
            yield batch


TECHNIQUES = {
    "mixup": {"batch_transform": v2.MixUp(alpha=1.0, num_classes=CLASSES)},
    "CutMix": {"batch_transform": v2.CutMix(alpha=1.0, num_classes=CLASSES)},
    "label smoothing": {"loss": partial(F.cross_entropy, label_smoothing=SMOOTHING)},
    "warm-up cosine": {"make_schedule": partial(warmup_cosine, warmup_steps=1, min_lr=LOW)},
    "freezing": {"model_transform": partial(freeze_before, first_trained="layer4")},
    "LoRA": {"model_transform": add_lora},
    "bf16": {"trainer": {"precision": "bf16-mixed"}},
    "accumulation": {"trainer": {"accumulate_grad_batches": WINDOW}},
    "checkpointing": {"model_transform": checkpoint_blocks},
}
if has_dali():
    TECHNIQUES["DALI"] = {"make_loader": ReadByDali}


class Record:
    """What a training was given and what it did, seam by seam."""

    def __init__(self, config, data, techniques):
        self.batches = {name: [] for name in techniques}  # of a technique: (before, after)
        self.losses, self.rates, self.gradients, self.forwards = [], [], [], Counter()
        slots = [(name, *slot) for name, found in techniques.items() for slot in found.items()]
        losses = [value for _, slot, value in slots if slot == "loss"]
        schedules = [value for _, slot, value in slots if slot == "make_schedule"]
        assert len(losses) <= 1 >= len(schedules)
        self.models = [value for _, slot, value in slots if slot == "model_transform"]
        self.transforms = {name: value for name, slot, value in slots if slot == "batch_transform"}
        self.trainer = {"accelerator": "cpu"}
        self.data = data
        self.loaders = [value for _, slot, value in slots if slot == "make_loader"]
        for _, slot, value in slots:
            self.trainer |= value if slot == "trainer" else {}
        self.inner_loss = losses[0] if losses else F.cross_entropy
        self.run = fit(
            config,
            data,
            make_optimizer=self.make_optimizer,
            make_schedule=schedules[0] if schedules else None,
            loss=self.note_loss,
            batch_transform=self.change_batch if self.transforms else None,
            model_transform=self.change_model,
            trainer=self.trainer,
            make_loader=self.make_loader,
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

    @property
    def steps(self):
        """How many optimizer steps there should be."""
        return math.ceil(BATCHES / self.trainer.get("accumulate_grad_batches", 1))

    def make_loader(self, data, seed):
        [make] = self.loaders or [type(data).train_loader]
        self.loader = make(data, seed)
        return self.loader

    def make_optimizer(self, parameters):
        optimizer = SGD(parameters, lr=PEAK)
        optimizer.register_step_post_hook(self.note_step)
        return optimizer

    def note_step(self, optimizer, *_):
        self.rates.append(optimizer.param_groups[0]["lr"])
        self.gradients.append(self.head_bias.grad.clone())

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

    def note_forward(self, module, inputs):
        self.forwards[torch.is_grad_enabled()] += 1  # not in validation

    def change_model(self, model):
        for transform in self.models:
            model = transform(model)
        self.before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        heads = [p for name, p in model.named_parameters() if "fc." in name and p.requires_grad]
        [self.head_bias] = [p for p in heads if p.ndim == 1]
        [watched] = [m for n, m in model.named_modules() if n.endswith(WATCHED)]
        watched.register_forward_pre_hook(self.note_forward)
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
        expected = -(smooth * logits.float().log_softmax(dim=1)).sum(dim=1).mean()
        torch.testing.assert_close(loss, expected, atol=1e-5, rtol=0)


def check_schedule(record):
    """The rates are those planned: half of the peak, the peak, a cosine to the minimum."""
    after = record.steps - 2
    cosine = [(1 + math.cos(math.pi * step / after)) / 2 for step in range(after + 1)]
    assert record.rates == pytest.approx([PEAK / 2] + [LOW + (PEAK - LOW) * c for c in cosine])


def check_freezing(record):
    """No tensor before layer4 moves, BatchNorm's statistics included."""
    assert all(name.startswith(("layer4", "fc")) for name in record.moved)


def check_lora(record):
    """Adapters and the head move, and nothing else does."""
    assert all(".lora_" in name or name.startswith("fc") for name in record.moved)
    assert any(".lora_" in name for name in record.moved)


def check_bf16(record):
    """Activations are bf16; the loss, the weights and their gradients stay fp32."""
    assert {logits.dtype for logits, _, _ in record.losses} == {torch.bfloat16}
    assert {loss.dtype for _, _, loss in record.losses} == {torch.float32}
    assert {p.dtype for p in record.run.model.parameters()} == {torch.float32}
    assert {gradient.dtype for gradient in record.gradients} == {torch.float32}


def check_accumulation(record):
    """A step's gradient is the mean over its window of those of the micro-batches."""
    assert len(record.gradients) == BATCHES // WINDOW
    for number, gradient in enumerate(record.gradients):
        window = record.losses[number * WINDOW : (number + 1) * WINDOW]
        torch.testing.assert_close(gradient, differentiate(record, window), atol=2e-3, rtol=0.02)


def check_checkpointing(record):
    """A block runs twice for each micro-batch, and what is trained in it gets gradients."""
    assert record.forwards[True] == 2 * BATCHES
    assert any(name.startswith("layer4") for name in record.moved)


def check_dali(record):
    """The first that changes a batch, or the loss, gets DALI's batches: every image once."""
    images, targets = (list(part) for part in zip(*record.loader.delivered, strict=True))
    assert sorted(torch.cat(targets).tolist()) == sorted(record.data.train.targets)
    different = {image.sum().item() for batch in images for image in batch}
    assert len(different) == len(record.data.train)
    for name in list(record.transforms)[:1]:
        for batch, ((before, _), _) in zip(images, record.batches[name], strict=True):
            assert torch.equal(batch, before)
    if not record.transforms:
        for batch, (_, used, _) in zip(targets, record.losses, strict=True):
            assert torch.equal(batch, used)


INVARIANTS = {
    "mixup": check_mixup,
    "CutMix": check_cutmix,
    "label smoothing": check_smoothing,
    "warm-up cosine": check_schedule,
    "freezing": check_freezing,
    "LoRA": check_lora,
    "bf16": check_bf16,
    "accumulation": check_accumulation,
    "checkpointing": check_checkpointing,
    "DALI": check_dali,
}


def differentiate(record, window):
    """The gradient of the head's bias that the mean of these losses has, from the logits."""
    total = torch.zeros(CLASSES)
    for logits, targets, _ in window:
        logits = logits.float().requires_grad_()
        (record.inner_loss(logits, targets) / len(window)).backward()
        total += logits.grad.sum(dim=0)
    return total


def check_same_weights(record, other):
    """Both end with the same parameters, bit for bit (not the same statistics of BatchNorm)."""
    pairs = zip(record.run.model.parameters(), other.run.model.parameters(), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs)


def check_all(record, names):
    """What holds for every training, and the invariant of each technique."""
    assert len(record.rates) == record.steps
    assert len(record.losses) == BATCHES
    assert any(name.startswith("fc") for name in record.moved)
    for _, targets, loss in record.losses:
        assert loss.isfinite()
        if targets.ndim > 1:
            torch.testing.assert_close(targets.sum(dim=1), torch.ones(len(targets)))
    for name in names:
        INVARIANTS[name](record)
    with torch.no_grad():
        logits = record.run.model(record.val_images)
    plain = F.cross_entropy(logits, record.val_targets).item()
    exact = record.trainer.get("precision", "32-true") == "32-true"
    assert record.run.metrics["val_loss"] == pytest.approx(plain, abs=1e-4 if exact else 0.05)


@pytest.fixture(scope="module")
def few(tiny_config, tiny_data):
    return tiny_data.take_train(BATCHES * tiny_config.batch_size)


PAIRS = list(itertools.combinations(TECHNIQUES, 2))


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_pair_trains_and_each_keeps_its_invariant(pair, tiny_config, few):
    record = Record(tiny_config, few, {name: TECHNIQUES[name] for name in pair})
    check_all(record, pair)
    if "checkpointing" in pair:
        [partner] = {*pair} - {"checkpointing"}
        check_same_weights(record, Record(tiny_config, few, {partner: TECHNIQUES[partner]}))


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
    planned = warmup_cosine(optimizer, total_steps, warmup_steps=1, min_lr=LOW)
    planned.step()
    return planned


def freeze_weights_only(model):
    for name in ("conv1", "bn1", "layer1", "layer2", "layer3"):
        getattr(model, name).requires_grad_(False)
    return model


def freeze_then_reenter(model):
    """Reentrant, a block behind frozen ones gets no gradient."""
    freeze_before(model, "layer4")
    [block] = model.layer4
    inner = block.forward
    block.forward = lambda x: checkpoint(inner, x, use_reentrant=True)
    return model


def checkpoint_nothing(model):
    model.grad_checkpointing = False
    return model


class ZeroInside(Callback):
    """Gradients zeroed before each micro-batch, as if it were a step of its own."""

    def on_before_backward(self, trainer, pl_module, loss):
        pl_module.zero_grad()


class NoMean(Callback):
    """The losses of a window added, not averaged."""

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        for parameter in pl_module.parameters():
            parameter.grad = None if parameter.grad is None else WINDOW * parameter.grad


class RepeatABatch(ReadByDali):
    """In place of the last one: what a pipeline does that fills up its last batch."""

    def __iter__(self):
        batches = list(super().__iter__())
        self.delivered[-1] = batches[0]
        yield from self.delivered


FAULTS = [
    ("mixup", "batch_transform", permute_images_only),
    ("mixup", "batch_transform", swap_lam),
    ("CutMix", "batch_transform", paste_by_drawn_area),
    ("label smoothing", "loss", smooth_over_others),
    ("label smoothing", "loss", softmax_first),
    ("warm-up cosine", "make_schedule", end_at_zero),
    ("warm-up cosine", "make_schedule", warm_up_off_by_one),
    ("freezing", "model_transform", freeze_weights_only),
    ("LoRA", "model_transform", lora_without_freezing),
    ("bf16", "trainer", {"precision": "bf16-true"}),
    ("bf16", "trainer", {"precision": "32-true"}),
    ("accumulation", "trainer", {"accumulate_grad_batches": WINDOW, "callbacks": ZeroInside()}),
    ("accumulation", "trainer", {"accumulate_grad_batches": WINDOW, "callbacks": NoMean()}),
    ("accumulation", "trainer", {"accumulate_grad_batches": WINDOW + 1}),
    ("checkpointing", "model_transform", freeze_then_reenter),
    ("checkpointing", "model_transform", checkpoint_nothing),
]
if has_dali():
    FAULTS.append(("DALI", "make_loader", RepeatABatch))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(("name", "slot", "fault"), FAULTS)
def test_invariant_fails_for_a_planted_fault(name, slot, fault, tiny_config, few):
    record = Record(tiny_config, few, {name: {slot: fault}})
    with pytest.raises(AssertionError):
        INVARIANTS[name](record)


def test_a_second_pass_that_is_another_one_changes_the_weights(tiny_config, few):
    def drift(model):
        [block] = model.layer4
        inner, factors = block.forward, itertools.cycle((1.0, 1.01))
        run = lambda x: inner(next(factors) * x)  # noqa: E731
        block.forward = lambda x: checkpoint(run, x, use_reentrant=False)
        return model

    plain = Record(tiny_config, few, {})
    check_same_weights(Record(tiny_config, few, {}), plain)
    faulty = Record(tiny_config, few, {"checkpointing": {"model_transform": drift}})
    with pytest.raises(AssertionError):
        check_same_weights(faulty, plain)
