"""The finders of the study against Lightning's own, and fastai's valley by hand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.tuner import Tuner
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader

from course_utils.training import LitClassifier, quiet_trainer
from lesson_code.finders.suggestions import (
    find_suggestions,
    find_valley,
    place_as_fastai,
    place_as_lightning,
    run_range_test,
)


def make_sgd(parameters):
    return SGD(parameters, lr=0.1, momentum=0.9)


@pytest.fixture(scope="module")
def batches():
    torch.manual_seed(0)
    inputs = torch.randn(100, 16, 6)
    return [(x, x[:, :3].argmax(dim=1)) for x in inputs]


@pytest.fixture
def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def measure(network, batches, learning_rates, ahead):
    def compute_loss(network, inputs, targets):
        return F.cross_entropy(network(inputs), targets)

    return run_range_test(network, make_sgd, batches, learning_rates, ahead, compute_loss)


def test_it_is_lightnings_range_test_and_suggestion(network, batches):
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    found = measure(network, batches, place_as_lightning(), ahead=1)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name])
    lit = LitClassifier(network, 3, make_optimizer=make_sgd)
    tuner = Tuner(quiet_trainer(max_epochs=1, accelerator="cpu", barebones=False))
    theirs = tuner.lr_find(lit, DataLoader(batches, batch_size=None), update_attr=False)
    np.testing.assert_allclose(found[0], theirs.results["lr"], rtol=1e-6)
    np.testing.assert_allclose(found[1], theirs.results["loss"], rtol=1e-4)
    suggested = find_suggestions(found, found)["Lightning's suggestion"]
    np.testing.assert_allclose(suggested, theirs.suggestion(), rtol=1e-6)


def test_fastais_suggestions(network, batches):
    rates, losses = measure(network, batches, place_as_fastai(), ahead=0)
    assert rates[0] == 1e-7
    assert losses[0] > 0.5
    found = find_suggestions((rates, losses), (rates, losses))
    lowest = rates[10:-5][losses[10:-5].argmin()]
    np.testing.assert_allclose(found["a tenth of the lowest"], lowest / 10)
    assert rates[10] <= found["valley"] < lowest


def test_the_valley_is_the_longest_falling_subsequence():
    # falls from index 2 to 11: ten points end at 11, so fastai's start is 1
    losses = np.array([3.0, 3.1, 3.2, 2.9, 2.6, 2.3, 2.0, 1.7, 1.4, 1.1, 0.8, 0.5, 2.0, 4.0])
    assert find_valley(losses) == 1 + 3 + 1
    assert find_valley(np.arange(5.0)) == 0


def test_a_diverging_loss_ends_the_test(batches):
    network = nn.Linear(6, 3)
    learning_rates = np.geomspace(1e-3, 1e6, 100)
    rates, losses = measure(network, batches, learning_rates, ahead=0)
    assert len(rates) == len(losses) < 100
    assert np.isfinite(losses).all()
