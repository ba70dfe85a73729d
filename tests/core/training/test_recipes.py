from dataclasses import replace

import numpy as np
import pytest
import torch

from course_utils.data.image_data import Images
from course_utils.models.airbench import whiten_stem
from course_utils.models.create import create_model
from course_utils.training.fit import fit
from course_utils.training.recipes import (
    channels_last,
    from_scratch,
    rise_and_fall,
)


def test_channels_last_moves_the_numbers_and_keeps_them():
    torch.manual_seed(0)
    model = create_model("vgg_tiny", num_classes=3).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    moved = channels_last(model)
    assert all(torch.equal(before[name], tensor) for name, tensor in moved.state_dict().items())
    assert moved[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_the_recipe_from_scratch_trains_in_bf16(tiny_config, tiny_data):
    recipe = from_scratch(tiny_config, epochs=1, batch_size=32)
    plain = fit(data=tiny_data, **recipe | {"trainer": {"precision": "32-true"}})
    assert fit(data=tiny_data, **recipe).saved_bytes < plain.saved_bytes


def test_the_recipe_from_scratch_trains_by_its_schedule(tiny_config, tiny_data):
    recipe = from_scratch(tiny_config, epochs=8, batch_size=32)  # 8 epochs of 3 batches
    recipe["trainer"] = {"precision": "32-true"}  # bf16 is slow where it has to be imitated
    rates = []

    def record(optimizer, total_steps):
        schedule = recipe["make_schedule"](optimizer, total_steps)
        optimizer.register_step_pre_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
        return schedule

    run = fit(data=tiny_data, **recipe | {"make_schedule": record})
    assert len(run.history) == 8
    peak = rates.index(max(rates))
    highest = 0.75 * 32 / 512
    assert rates[0] == pytest.approx(highest / 5)
    assert max(rates) == pytest.approx(highest, rel=0.1)  # the peak lies between two steps
    assert rates[:peak] == sorted(rates[:peak])  # rises, then falls
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert (peak + 1) / len(rates) == pytest.approx(0.23, abs=0.03)
    assert rates[-1] == pytest.approx(highest / 5 / 1e4)


def test_the_first_batch_whitens_the_stem_and_training_leaves_it_so(tiny_config, tiny_data):
    recipe = from_scratch(tiny_config, epochs=2, batch_size=32)
    images, _ = next(iter(recipe["make_loader"](tiny_data, tiny_config.first_seed)))
    expected = whiten_stem(create_model("airbench94_half", tiny_data.num_classes), images)
    trained = fit(data=tiny_data, **recipe).model
    torch.testing.assert_close(trained.stem.conv.weight, expected.stem.conv.weight)
    assert trained.stem.conv.bias.abs().max() > 0  # the bias is trained


def test_the_loader_shifts_by_two_pixels_at_most_and_flips(tiny_config, tiny_data):
    columns = np.arange(32, dtype=np.uint8)[None, None, :, None].repeat(200, 0)  # value: its column
    images = Images(np.broadcast_to(columns, (200, 32, 32, 3)).copy(), np.zeros(200, np.int64))
    ramps = replace(tiny_data, train=images, mean=(0.0,) * 3, std=(1.0,) * 3)
    loader = from_scratch(tiny_config, epochs=1, batch_size=500)["make_loader"](ramps, seed=0)
    batch, _ = next(iter(loader))
    assert len(batch) == 200
    seen = (255 * batch[:, 0, 0, 16]).round().int().unique().tolist()
    assert seen == [13, 14, 15, 16, 17, 18]  # 16 and, mirrored, 15: each up to 2 further


@pytest.mark.parametrize(
    ("batch_size", "learning_rate"), [(512, 0.75), (256, 0.375), (64, 0.09375)]
)
def test_the_learning_rate_follows_the_batch(tiny_config, batch_size, learning_rate):
    recipe = from_scratch(tiny_config, epochs=1, batch_size=batch_size)
    assert recipe["make_optimizer"].keywords["lr"] == learning_rate
    assert recipe["make_loader"].keywords["batch_size"] == batch_size


def test_rise_and_fall_keeps_the_ratio_of_parameter_groups():
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    groups = [{"params": [parameters[0]], "lr": 1.5}, {"params": [parameters[1]], "lr": 96.0}]
    optimizer = torch.optim.SGD(groups)
    schedule = rise_and_fall(optimizer, total_steps=100)
    seen = []
    for _ in range(100):
        seen.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        schedule.step()
    assert all(other == pytest.approx(64 * one) for one, other in seen)
    assert max(one for one, _ in seen) == pytest.approx(1.5)
