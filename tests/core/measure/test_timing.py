from types import SimpleNamespace

import lightning as L
import numpy as np
import pytest
import torch
from torch import nn

from course_utils.measure.memory import count_parameters
from course_utils.measure.timing import Throughput, loading_rate, measure_step, time_calls


def test_count_parameters():
    model = nn.Linear(10, 5)
    model.bias.requires_grad_(False)
    assert count_parameters(model) == 55
    assert count_parameters(model, trainable=True) == 50


def test_loading_rate_counts_the_epochs_after_the_first(monkeypatch):
    now, epochs = [0.0], []

    def batches():
        for size in (3, 2):
            now[0] += 0.5 if epochs[1:] else 100.0  # seconds; the first epoch is slow
            yield torch.zeros(size, 1), torch.zeros(size)

    class Loader:
        def __iter__(self):
            epochs.append(1)
            return batches()

    monkeypatch.setattr("course_utils.measure.timing.time.perf_counter", lambda: now[0])
    assert loading_rate(Loader(), seconds=2.5) == pytest.approx(15 / 3)
    assert len(epochs) == 4  # one to warm up, and three whole ones of a second each


class _Clock:
    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


@pytest.mark.parametrize(("warmup", "images", "time_s"), [(3, 50, 5.0), (1, 70, 7.0), (8, 0, 0.0)])
def test_throughput_excludes_warm_up_and_validation(monkeypatch, warmup, images, time_s):
    """Two epochs of four batches of ten images; a step takes 1 s, a validation 100 s."""
    clock = _Clock()
    monkeypatch.setattr("course_utils.measure.timing.time", clock)

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 1)

        def training_step(self, batch):
            clock.now += 1
            return self.layer(batch[0]).sum()

        def validation_step(self, batch):
            clock.now += 100

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    from course_utils.training.fit import quiet_trainer

    batches = [(torch.zeros(10, 1), torch.zeros(10))] * 4
    loader = torch.utils.data.DataLoader(batches, batch_size=None)
    throughput = Throughput(warmup_steps=warmup)
    quiet_trainer(max_epochs=2, accelerator="cpu", callbacks=[throughput]).fit(
        Module(), loader, loader
    )
    assert throughput.examples == images
    assert throughput.time_s == pytest.approx(time_s)
    assert throughput.examples_per_s == (pytest.approx(10) if images else None)
    assert np.isfinite(throughput.time_s)


def test_throughput_counts_the_images_of_all_processes():
    """Each of two processes trains on batches of ten; warm-up is one step."""
    throughput = Throughput(warmup_steps=1)
    module = SimpleNamespace(device=torch.device("cpu"))
    for step in range(3):
        loop = SimpleNamespace(total_batch_idx=step)
        trainer = SimpleNamespace(
            fit_loop=loop, world_size=2, is_last_batch=step == 2, global_step=step, max_steps=-1
        )
        throughput.on_train_batch_end(trainer, module, None, (None, torch.zeros(10)), step)
    assert throughput.examples == 2 * 2 * 10


def test_a_step_is_measured_on_a_copy():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5))
    before = {name: x.clone() for name, x in model.state_dict().items()}
    images, targets = torch.randn(4, 3, 2, 2), torch.arange(4)
    cost = measure_step(model, images, targets)
    assert cost.time_ms > 0
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_a_step_saves_less_where_less_is_trained():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 50), nn.ReLU(), nn.Linear(50, 5))
    batch = torch.randn(4, 3, 2, 2), torch.arange(4)
    whole = measure_step(model, *batch).saved_bytes
    model[1].requires_grad_(False)
    assert measure_step(model, *batch).saved_bytes < whole


def test_the_time_of_a_step_leaves_out_the_first_and_holds_all_of_training(monkeypatch):
    """The first forward pass takes 100 s, later ones 1 s, a backward pass 2 s and a step 4 s."""
    clock, modes = _Clock(), []
    monkeypatch.setattr("course_utils.measure.timing.time", clock)

    class Timed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(12, 5)

        def forward(self, images):
            modes.append(self.training)
            clock.now += 100 if len(modes) == 1 else 1
            logits = self.layer(images.flatten(1))
            logits.register_hook(lambda gradient: setattr(clock, "now", clock.now + 2))
            return logits

    class Optimizer(torch.optim.SGD):
        def step(self):
            clock.now += 4
            super().step()

    monkeypatch.setattr(torch.optim, "AdamW", Optimizer)
    model = Timed().eval()
    assert measure_step(model, torch.randn(4, 3, 2, 2), torch.arange(4)).time_ms == 7000
    assert all(modes)
    assert not model.training


def test_time_calls_is_the_median_without_the_first(monkeypatch):
    clock, durations = _Clock(), iter([100, 3, 1, 9, 2, 4])
    monkeypatch.setattr("course_utils.measure.timing.time", clock)
    found = time_calls(
        lambda: setattr(clock, "now", clock.now + next(durations)), torch.device("cpu")
    )
    assert found == 1000 * 3
    assert next(durations, None) is None
