import torch

from course_utils.models.create import create_model
from course_utils.training.fit import fit
from course_utils.training.recipes import channels_last, from_scratch


def test_channels_last_moves_the_numbers_and_keeps_them():
    torch.manual_seed(0)
    model = create_model("vgg_tiny", num_classes=3).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    moved = channels_last(model)
    assert all(torch.equal(before[name], tensor) for name, tensor in moved.state_dict().items())
    assert moved[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_the_recipe_from_scratch_trains_in_bf16_by_its_schedule(tiny_config, tiny_data):
    recipe = from_scratch(tiny_config, epochs=8)
    rates = []

    def record(optimizer, total_steps):
        schedule = recipe["make_schedule"](optimizer, total_steps)
        optimizer.register_step_pre_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
        return schedule

    run = fit(data=tiny_data, **recipe | {"make_schedule": record})
    assert len(run.history) == 8
    peak = rates.index(max(rates))
    assert 0 < peak < 7
    assert rates[peak] <= 0.1
    assert rates[:peak] == sorted(rates[:peak])  # rises, then falls
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    plain = fit(data=tiny_data, **recipe | {"trainer": {"precision": "32-true"}})
    assert run.saved_bytes < plain.saved_bytes
