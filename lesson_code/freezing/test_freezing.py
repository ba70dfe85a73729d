"""What lesson 02 defines, and what it says of its study in words is what the study found."""

import copy
import itertools

import nbformat
import numpy as np
import pytest
import torch

from course_tools.run.lessons import NOTEBOOKS
from course_tools.study.lesson_code import read_definitions
from course_utils.measure.paired import paired_difference
from course_utils.measure.statistics import adjust_holm
from course_utils.models.create import create_model
from course_utils.study_results import read_study

FULL, LAST, PROBE, SCRATCH = "full fine-tuning", "last stage", "linear probe", "from scratch"
LAYER_WISE = "layer-wise learning rates"
LABELS = {"photographs": (125, 500, 2000), "definitions": (125, 500, 2000), "drawings": (125, 500)}


@pytest.fixture(scope="module")
def lesson():
    """The functions and classes of the notebook, without its trainings."""
    return read_definitions("02_freezing")


@pytest.fixture
def network():
    torch.manual_seed(0)
    return create_model("convnet_small", num_classes=4, pretrained=True)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 3, 32, 32, generator=generator), torch.arange(8) % 4


def test_a_frozen_prefix_stays_as_it_is_in_training_mode_too(lesson, network, batch):
    start = copy.deepcopy(network.state_dict())
    frozen = lesson["FrozenPrefix"](network, "layer4")
    lesson["train_a_step"](frozen, batch)
    moved = lesson["find_moved"](network, start)
    assert moved
    assert all(name.startswith(("layer4", "fc")) for name in moved)


def test_without_gradients_alone_the_statistics_move(lesson, network, batch):
    start = copy.deepcopy(network.state_dict())
    lesson["train_a_step"](lesson["forbid_gradients"](network, "fc"), batch)
    moved = lesson["find_moved"](network, start) - {"fc.weight", "fc.bias"}
    assert moved
    assert all(name.endswith(("running_mean", "running_var", "tracked")) for name in moved)


def test_a_child_that_does_not_exist_is_an_error(lesson, network):
    with pytest.raises(ValueError, match="layer9"):
        lesson["forbid_gradients"](network, "layer9")
