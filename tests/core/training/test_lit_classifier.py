import ast
import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from course_utils.measure.calibration import calibration_error
from course_utils.training.fit import quiet_trainer
from course_utils.training.lit_classifier import LitClassifier
from course_utils.training.torchrun import torchrun

SGD = partial(torch.optim.SGD, lr=0.1)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


@pytest.fixture
def batches():
    torch.manual_seed(1)
    return [(torch.randn(6, 3, 2, 2), torch.randint(0, 3, (6,))) for _ in range(8)]


def train(model, batches, val=None, epochs=1, **options):
    seams = ("loss", "batch_transform", "make_schedule")
    filled = {name: options.pop(name) for name in seams if name in options}
    make_optimizer = options.pop("make_optimizer", SGD)
    lit = LitClassifier(copy.deepcopy(model), 3, make_optimizer=make_optimizer, **filled)
    trainer = quiet_trainer(max_epochs=epochs, accelerator="cpu", **options)
    val_loader = None if val is None else DataLoader(val, batch_size=None)
    trainer.fit(lit, DataLoader(batches, batch_size=None), val_loader)
    return lit, trainer


def same_weights(a, b):
    return all(
        torch.equal(p, q)
        for p, q in zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize(
    "null",
    [
        {"batch_transform": lambda images, targets: (images, targets)},
        {"loss": partial(F.cross_entropy, label_smoothing=0.0)},
        {
            "make_schedule": lambda optimizer, total_steps: torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda step: 1
            )
        },
        {"accumulate_grad_batches": 1},
        {"precision": "32-true"},
        {"gradient_clip_val": 1e6},
    ],
    ids=["batch", "loss", "schedule", "accumulation", "precision", "clipping"],
)
def test_a_seam_that_changes_nothing_is_the_baseline_bit_for_bit(model, batches, null):
    baseline, _ = train(model, batches)
    changed, _ = train(model, batches, **null)
    assert same_weights(baseline.model, changed.model)


def test_soft_targets_of_one_class_train_as_hard_ones(model, batches):
    """Another kernel computes their loss, so the weights are equal up to rounding."""
    baseline, _ = train(model, batches)
    soft, _ = train(model, batches, batch_transform=lambda x, y: (x, F.one_hot(y, 3).float()))
    pairs = zip(baseline.model.parameters(), soft.model.parameters(), strict=True)
    for hard_parameter, soft_parameter in pairs:
        torch.testing.assert_close(hard_parameter, soft_parameter, atol=1e-6, rtol=0)


class CallsTwice(torch.optim.SGD):
    """As SAM does: two forward and backward passes for each step."""

    def step(self, closure=None):
        with torch.enable_grad():
            closure()
        return super().step(closure)


def test_an_optimizer_that_calls_its_closure_twice_sees_one_mixed_batch(model, batches):
    """The batch seam acts once per batch, not once per forward pass."""
    mixed, used = [], []

    def mix(images, targets):
        lam = torch.rand(1)
        mixed.append(lam * images)
        return mixed[-1], targets

    class Watched(LitClassifier):
        def forward(self, images):
            if self.training:
                used.append(images)
            return super().forward(images)

    lit = Watched(copy.deepcopy(model), 3, make_optimizer=partial(CallsTwice, lr=0.1))
    lit.batch_transform = mix
    trainer = quiet_trainer(max_epochs=1, accelerator="cpu")
    trainer.fit(lit, DataLoader(batches, batch_size=None))
    assert len(mixed) == len(batches)
    assert len(used) == 2 * len(batches)
    for first, second, expected in zip(used[::2], used[1::2], mixed, strict=True):
        assert torch.equal(first, expected)
        assert torch.equal(second, expected)


def test_epoch_metrics_count_each_image_once_whatever_the_optimizer_does(model, batches):
    """With a learning rate of 0, both optimizers see the same losses."""
    _, once = train(model, batches, make_optimizer=partial(torch.optim.SGD, lr=0.0))
    lit, twice = train(model, batches, make_optimizer=partial(CallsTwice, lr=0.0))
    assert lit._examples == sum(len(targets) for _, targets in batches)
    for metric in ("train_loss", "train_accuracy"):
        assert twice.callback_metrics[metric] == once.callback_metrics[metric]


def test_baseline_equals_a_plain_loop(model, batches):
    lit, _ = train(model, batches)
    plain = copy.deepcopy(model).train()
    optimizer = SGD(plain.parameters())
    for images, targets in batches:
        optimizer.zero_grad()
        F.cross_entropy(plain(images), targets).backward()
        optimizer.step()
    assert same_weights(plain, lit.model)


def test_each_slot_is_used(model, batches):
    baseline, _ = train(model, batches)
    for change in (
        {"batch_transform": lambda images, targets: (-images, targets)},
        {"loss": partial(F.cross_entropy, label_smoothing=0.3)},
        {"make_optimizer": partial(torch.optim.SGD, lr=0.01)},
        {
            "make_schedule": lambda opt, n: torch.optim.lr_scheduler.LambdaLR(
                opt, lambda s: 1 - s / n
            )
        },
    ):
        changed, _ = train(model, batches, **change)
        assert not same_weights(baseline.model, changed.model), change


@pytest.mark.parametrize(
    ("accumulate", "epochs", "steps"), [(1, 1, 8), (1, 3, 24), (2, 1, 4), (3, 2, 6)]
)
def test_schedule_steps_once_per_optimizer_step_and_knows_how_many(
    model, batches, accumulate, epochs, steps
):
    planned, used = [], []

    class Recorder(torch.optim.SGD):
        def step(self, closure=None):
            used.append(self.param_groups[0]["lr"])
            return super().step(closure)

    def schedule(optimizer, total_steps):
        planned.append(total_steps)
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    train(
        model,
        batches,
        epochs=epochs,
        make_optimizer=partial(Recorder, lr=1.0),
        make_schedule=schedule,
        accumulate_grad_batches=accumulate,
    )
    assert planned == [steps]
    assert used == pytest.approx([1 / (1 + step) for step in range(steps)])


def test_the_training_loss_is_summed_in_fp32_under_bf16(model, batches):
    losses = []

    def note(logits, targets):
        losses.append(F.cross_entropy(logits, targets))
        return losses[-1]

    _, trainer = train(model, 4 * batches, loss=note, precision="bf16-true")
    assert losses[0].dtype == torch.bfloat16
    mean = sum(loss.item() for loss in losses) / len(losses)
    assert trainer.callback_metrics["train_loss"].item() == pytest.approx(mean, rel=1e-5)


def test_validation_is_measured_in_fp32_under_bf16(model, batches):
    """Logits keep their 16 bits; what is computed from them, loss and probabilities, does not."""
    lit, trainer = train(model, batches, val=batches, precision="bf16-true")
    lit.model.eval()
    with torch.no_grad():
        logits = torch.cat([lit.model(images.bfloat16()) for images, _ in batches])
    targets = torch.cat([targets for _, targets in batches])
    assert logits.dtype == torch.bfloat16
    loss = F.cross_entropy(logits.float(), targets).item()
    assert trainer.callback_metrics["val_loss"].item() == pytest.approx(loss, rel=1e-5)
    error = calibration_error(logits, targets)
    assert trainer.callback_metrics["val_calibration_error"].item() == pytest.approx(error)


def test_logits_inside_0_and_1_are_not_taken_for_probabilities(model, batches):
    lit, trainer = train(nn.Sequential(model, nn.Sigmoid()), batches, val=batches)
    with torch.no_grad():
        logits = torch.cat([lit.model.eval()(images) for images, _ in batches])
    error = calibration_error(logits, torch.cat([targets for _, targets in batches]))
    assert trainer.callback_metrics["val_calibration_error"].item() == pytest.approx(error)


def test_validation_ignores_the_loss_and_batch_seams(model, batches):
    images = torch.cat([images for images, _ in batches])
    targets = torch.cat([targets for _, targets in batches])
    lit, trainer = train(
        model,
        batches,
        val=batches,
        loss=lambda logits, targets: 100 + logits.sum(),
        batch_transform=lambda images, targets: (0 * images, targets),
    )
    with torch.no_grad():
        logits = lit.model.eval()(images)
    assert trainer.callback_metrics["val_loss"].item() == pytest.approx(
        F.cross_entropy(logits, targets).item(), rel=1e-4
    )
    accuracy = (logits.argmax(1) == targets).float().mean().item()
    assert trainer.callback_metrics["val_accuracy"].item() == pytest.approx(accuracy)


def test_validation_counts_images_not_batches(model, batches):
    uneven = [batches[0], tuple(part[:1] for part in batches[1])]
    lit, trainer = train(model, batches, val=uneven)
    images, targets = (torch.cat(parts) for parts in zip(*uneven, strict=True))
    with torch.no_grad():
        expected = F.cross_entropy(lit.model.eval()(images), targets).item()
    assert trainer.callback_metrics["val_loss"].item() == pytest.approx(expected, rel=1e-4)


def test_training_accuracy_is_logged_for_hard_targets_only(model, batches):
    _, hard = train(model, batches)
    _, soft = train(
        model,
        batches,
        batch_transform=lambda images, targets: (images, F.one_hot(targets, 3).float()),
    )
    assert "train_accuracy" in hard.callback_metrics
    assert "train_accuracy" not in soft.callback_metrics


def test_training_metrics_are_means_over_the_images_of_the_epoch(model, batches):
    uneven = [batches[0], tuple(part[:2] for part in batches[1])]
    still = partial(torch.optim.SGD, lr=0.0)
    lit, trainer = train(model, uneven, epochs=2, make_optimizer=still)
    lit.model.train()
    losses = [F.cross_entropy(lit.model(x), y, reduction="sum").item() for x, y in uneven]
    right = [(lit.model(x).argmax(1) == y).sum().item() for x, y in uneven]
    metrics = trainer.callback_metrics
    assert metrics["train_loss"].item() == pytest.approx(sum(losses) / 8, rel=1e-5)
    assert metrics["train_accuracy"].item() == pytest.approx(sum(right) / 8)


TWO_RANKS = """
import os, sys
import torch
from torch import nn
from torch.utils.data import DataLoader
from course_utils.training.fit import quiet_trainer
from course_utils.training.lit_classifier import LitClassifier

rank = int(os.environ["RANK"])
torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
torch.manual_seed(1 + rank)
batches = [(torch.randn(6, 3, 2, 2), torch.randint(0, 3, (6,))) for _ in range(4)]
lit = LitClassifier(model, 3, make_optimizer=lambda p: torch.optim.SGD(p, lr=0.0))
trainer = quiet_trainer(
    max_epochs=1, accelerator="cpu", devices=2, strategy="ddp", use_distributed_sampler=False
)
trainer.fit(lit, DataLoader(batches, batch_size=None), DataLoader(batches, batch_size=None))
print({name: round(value.item(), 5) for name, value in trainer.callback_metrics.items()})
"""


def test_metrics_are_those_of_all_processes(tmp_path):
    """The weights stay as they are, so training and validation see the same losses."""
    script = tmp_path / "job.py"
    script.write_text(TWO_RANKS)
    one, other = (ast.literal_eval(output.splitlines()[-1]) for output in torchrun(script).outputs)
    assert one == other
    assert one["train_loss"] == pytest.approx(one["val_loss"], abs=1e-4)
    assert one["train_accuracy"] == pytest.approx(one["val_accuracy"], abs=1e-4)


def test_the_optimizer_gets_the_trained_parameters_with_their_names(model, batches):
    """As `named_parameters` gives them, without those that are frozen."""
    model[1].requires_grad_(False)
    seen = []

    def make_optimizer(named_parameters):
        seen.extend(name for name, _ in named_parameters)
        return SGD(named_parameters)

    lit, _ = train(model, batches, make_optimizer=make_optimizer)
    assert seen == ["2.weight", "2.bias", "3.weight", "3.bias"]
    assert torch.equal(lit.model[1].weight, model[1].weight)
    assert not torch.equal(lit.model[3].weight, model[3].weight)
