"""The loops of ``course measure`` on the pretend device, with networks of a few parameters."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torchvision.models import VisionTransformer

from course_tools.measure.command import list_rows
from course_tools.measure.row import Impossible
from course_tools.measure.scale import SMALL
from course_utils.measure import timing
from tests.pretend.device import OPERATIONS, register_device
from tests.pretend.module import NAME

register_device()


def make_convolutional():
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 10))


def make_transformer():
    return VisionTransformer(8, 4, 1, 2, 8, 16, num_classes=10)


TINY = replace(
    SMALL,
    make_convolutional=make_convolutional,
    make_transformer=make_transformer,
    pixels=8,
    batch_size=4,
    accumulated=4,
    micro_batches=(4, 2),
    photo_size=(24, 16),
    photos=16,
    loader_seconds=0.0,
)
ON_CPU = ("OpenCV, one thread", "DALI, all cores")  # rows that leave the device alone
COMPILE = nn.Module.compile


@pytest.mark.parametrize(
    "row",
    list_rows(TINY),
    ids=lambda row: f"{row.table}: {' '.join(map(str, row.settings.values()))}",
)
def test_a_row_is_measured(row, monkeypatch):
    monkeypatch.setattr(timing, "REPEATS", 1)
    monkeypatch.setattr(nn.Module, "compile", lambda self: COMPILE(self, backend="aot_eager"))
    before = OPERATIONS.total()
    try:
        values = row.measure(torch.device(NAME))
    except Impossible as reason:
        pytest.skip(str(reason))
    assert all(value > 0 for name, value in values.items() if name != "waiting")
    is_used = OPERATIONS.total() > before
    assert is_used != (row.settings.get("decoder") in ON_CPU)
