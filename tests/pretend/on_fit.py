"""`fit` on the pretend device: with every technique, and with mistakes that show only there."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map_only

pytest.register_assert_rewrite("lesson_code", "tests.combinations")  # before they are imported

from course_utils.data.load import load_data  # noqa: E402
from course_utils.training.fit import fit  # noqa: E402
from tests.combinations.record import BATCHES, Record, check_training  # noqa: E402
from tests.combinations.test_combinations import (  # noqa: E402
    ROWS,
    SEAMS,
    TECHNIQUES,
    TEXT_ROWS,
    find_row_with,
)
from tests.pretend.accelerator import register_accelerator  # noqa: E402
from tests.pretend.device import OPERATIONS  # noqa: E402
from tests.pretend.module import NAME  # noqa: E402

register_accelerator()
# Under autocast a GPU rounds the logarithms of probabilities to 16 bits, where the CPU does not, so
# invariants that compute a loss again hold in a training without it.
EXACT = ROWS["all but mixed_precision"]
TOGETHER = {tuple(names): None for names in (EXACT, *map(find_row_with, SEAMS))}


@pytest.fixture(scope="module")
def few(tiny_config, tiny_data):
    return tiny_data.take_train(BATCHES * tiny_config.batch_size)


@pytest.mark.parametrize("names", TOGETHER, ids=" ".join)
def test_techniques_train_together(names, tiny_config, few):
    before = OPERATIONS["aten::convolution_backward"]
    record = Record(tiny_config, few, {name: SEAMS[name] for name in names}, accelerator=NAME)
    assert OPERATIONS["aten::convolution_backward"] >= before + BATCHES
    assert {gradient.device.type for gradient in record.gradients} == {NAME}
    vars(record).update(tree_map_only(torch.Tensor, torch.Tensor.cpu, vars(record)))
    check_training(record)
    for name in names if "mixed_precision" not in names else ["mixed_precision"]:
        TECHNIQUES[name].invariant(record)


def test_techniques_train_together_on_texts(tiny_config):
    config = tiny_config.replace(dataset="glosses")
    names = [name for name in TEXT_ROWS["all"] if name != "mixed_precision"]
    before = OPERATIONS["aten::gelu_backward"]
    record = Record(
        config, load_data(config), {name: SEAMS[name] for name in names}, accelerator=NAME
    )
    assert OPERATIONS["aten::gelu_backward"] >= before + BATCHES
    assert {gradient.device.type for gradient in record.gradients} == {NAME}
    vars(record).update(tree_map_only(torch.Tensor, torch.Tensor.cpu, vars(record)))
    check_training(record)
    for name in names:
        TECHNIQUES[name].invariant(record)


def test_every_technique_trains():
    assert {name for names in TOGETHER for name in names} == SEAMS.keys()


def add_noise(images, targets):
    return images + torch.randn(images.shape), targets


def add_noise_of_generator(images, targets):
    noise = torch.randn(images.shape, device=images.device, generator=torch.Generator())
    return images + noise, targets


def weight_by_numpy(logits, targets):
    weight = logits.detach().argmax(dim=1).numpy().mean().item()
    return weight * F.cross_entropy(logits, targets)


MISTAKES = {
    "a tensor of the CPU": (
        {"batch_transform": add_noise},
        "Expected all tensors to be on the same",
    ),
    "numpy": ({"loss": weight_by_numpy}, "can't convert pretend:0 device type tensor to numpy"),
    "a generator of the CPU": (
        {"batch_transform": add_noise_of_generator},
        "Expected a 'pretend' device type for generator but found 'cpu'",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_seam_is_caught(mistake, tiny_config, few):
    seam, message = MISTAKES[mistake]
    fit(tiny_config, few, trainer={"accelerator": "cpu"}, **seam)  # where it shows nothing
    with pytest.raises((RuntimeError, TypeError), match=message):
        fit(tiny_config, few, trainer={"accelerator": NAME}, **seam)
