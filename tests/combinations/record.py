"""`Record`: one training with several techniques, and what their invariants read from it."""

import math
from collections import Counter
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch import Callback
from torch.nn.utils import get_total_norm
from torch.optim import SGD

from course_utils.data.text_data import TextData
from course_utils.models.text_small import TextSmall
from course_utils.training.fit import fit

CLASSES = 10
BATCHES = 6
PEAK_LR = 0.1
WATCHED = "layer4.0"  # a block that every technique trains
WATCHED_OF_TEXT = "layer4"
# Arguments of `fit` that hold one technique. Transforms are chained; the trainer's arguments are
# put together.
HOLD_ONE = ("make_loader", "loss", "make_optimizer", "make_schedule")
HANDLED = {"model_transform", "batch_transform", "trainer", *HOLD_ONE}


def collect(seams, slot):
    """What each technique gives to one argument of `fit`, in the order of the techniques."""
    return {name: seam[slot] for name, seam in seams.items() if slot in seam}


def take_one(seams, slot, default):
    found = collect(seams, slot)
    assert len(found) <= 1, f"{slot} takes one technique, not {', '.join(found)}"
    return next(iter(found.values()), default)


def merge_trainer_options(seams, accelerator):
    merged = {"accelerator": accelerator, "callbacks": []}
    for name, options in collect(seams, "trainer").items():
        others = {key: value for key, value in options.items() if key != "callbacks"}
        twice = merged.keys() & others.keys()
        assert not twice, f"{name} sets {twice} of the trainer, which is set already"
        callbacks = options.get("callbacks", [])
        merged["callbacks"] += callbacks if isinstance(callbacks, list) else [callbacks]
        merged |= others
    return merged


def make_text_network(num_classes):
    return TextSmall(num_classes, width=20, depth=4, heads=2)


def serve(data, seed):
    return data.train_loader(seed)


def soften(targets):
    """Targets as floats ``(N, C)``, whether they are classes ``(N,)`` or mixed already."""
    return F.one_hot(targets, CLASSES).float() if targets.ndim == 1 else targets


class Record:
    """What a training was given and what it did.

    ``seams``: of each technique, by name, its arguments of `fit`. The techniques of one argument
    are chained in this order.
    """

    def __init__(self, config, data, seams, accelerator="cpu"):
        unknown = {slot for seam in seams.values() for slot in seam} - HANDLED
        assert not unknown, f"Record does not pass {unknown} on to fit"
        self.data = data
        self.model_transforms = collect(seams, "model_transform")
        self.batch_transforms = collect(seams, "batch_transform")
        self.trainer = merge_trainer_options(seams, accelerator)
        self.loss = take_one(seams, "loss", F.cross_entropy)
        self.inner_make_loader = take_one(seams, "make_loader", serve)
        self.is_text = isinstance(data, TextData)
        self.inner_make_optimizer = take_one(seams, "make_optimizer", partial(SGD, lr=PEAK_LR))
        self.batches = {name: [] for name in self.batch_transforms}  # (before, after)
        self.losses = []  # (logits, targets, loss) of each micro-batch, in its first pass
        self.passes = []  # the head's bias in each training pass: an optimizer may ask for several
        self.learning_rates = []  # of each step
        # Of each step: the head's bias afterwards, its complete gradient, the norm of all
        # gradients together, and the gradient of the bias that the optimizer used. Where a step
        # has several gradients, these are of the last one, and `earlier` has the others.
        self.biases, self.gradients, self.norms, self.used = [], [], [], []
        self.taken = []  # (gradient of the bias, norm of all) of each gradient since the last step
        self.earlier = []  # of each step
        self.forwards = Counter()  # of the watched block, by whether gradients are on
        self.run = fit(
            config,
            data,
            model=make_text_network if self.is_text else None,
            make_optimizer=self.make_optimizer,
            make_schedule=take_one(seams, "make_schedule", None),
            loss=self.note_loss,
            batch_transform=self.change_batch if self.batch_transforms else None,
            model_transform=self.change_model,
            trainer=self.trainer | {"callbacks": [*self.trainer["callbacks"], NoteGradients(self)]},
            make_loader=self.make_loader,
        )
        after = self.run.model.state_dict()
        self.moved = {
            name.removeprefix("base_model.model.")
            for name, tensor in self.before.items()
            if not torch.equal(tensor, after[name])
        }

    def __deepcopy__(self, memo):
        return self  # weight averaging copies the module, with the functions that belong to this

    @property
    def steps(self):
        """How many optimizer steps there should be."""
        return math.ceil(BATCHES / self.trainer.get("accumulate_grad_batches", 1))

    def make_loader(self, data, seed):
        self.loader = self.inner_make_loader(data, seed)
        return self.loader

    def make_optimizer(self, parameters):
        optimizer = self.inner_make_optimizer(parameters)
        optimizer.register_step_post_hook(self.note_step)
        return optimizer

    def note_step(self, optimizer, *_):
        *earlier, (gradient, norm) = self.taken
        self.taken = []
        self.earlier.append(earlier)
        self.gradients.append(gradient)
        self.norms.append(norm)
        self.learning_rates.append(optimizer.param_groups[0]["lr"])
        self.used.append(self.head_bias.grad.clone())
        self.biases.append(self.head_bias.detach().clone())

    def note_loss(self, logits, targets):
        loss = self.loss(logits, targets)
        self.passes.append(self.head_bias.detach().clone())
        if self.begins_batch:
            self.losses.append((logits.detach(), targets, loss.detach()))
        self.begins_batch = False
        return loss

    def change_batch(self, inputs, targets):
        for name, transform in self.batch_transforms.items():
            before = inputs, soften(targets)
            inputs, targets = transform(inputs, targets)
            self.batches[name].append((before, (inputs, targets)))
        return inputs, targets

    def note_forward(self, module, inputs):
        self.forwards[torch.is_grad_enabled()] += 1  # not in validation

    def change_model(self, model):
        for transform in self.model_transforms.values():
            model = transform(model)
        self.before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        heads = [p for name, p in model.named_parameters() if "fc." in name and p.requires_grad]
        [self.head_bias] = [p for p in heads if p.ndim == 1]
        name_watched = WATCHED_OF_TEXT if self.is_text else WATCHED
        [watched] = [m for n, m in model.named_modules() if n.endswith(name_watched)]
        watched.register_forward_pre_hook(self.note_forward)
        return model


class NoteGradients(Callback):
    """Notes each complete gradient, before Lightning clips it, and where a batch begins."""

    def __init__(self, record):
        self.record = record

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.record.begins_batch = True

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        norm = get_total_norm(gradients).item()
        self.record.taken.append((self.record.head_bias.grad.clone(), norm))


def check_training(record):
    """What holds for every training, whatever the techniques."""
    assert len(record.learning_rates) == record.steps
    assert len(record.losses) == BATCHES
    assert len(record.passes) in (BATCHES, 2 * BATCHES)  # twice where the optimizer asks for it
    assert any(name.startswith("fc") for name in record.moved)
    for _, targets, loss in record.losses:
        assert loss.isfinite()
        if targets.ndim > 1:
            torch.testing.assert_close(targets.sum(dim=1), torch.ones(len(targets)))
    [(inputs, targets)] = record.data.eval_loader()
    with torch.no_grad():
        plain = F.cross_entropy(record.run.model(inputs), targets).item()
    exact = record.trainer.get("precision", "32-true") == "32-true"
    assert record.run.metrics["val_loss"] == pytest.approx(plain, abs=1e-4 if exact else 0.05)
