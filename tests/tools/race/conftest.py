"""Recipes as students hand them in: good, bad, and cheating."""

import textwrap

import pytest

HEAD = "import torch\nfrom torch import nn\n\n"
GOOD = """
def recipe(config):
    return {"config": config.replace(epochs=2)}
"""
MODULE = """
import lightning as L
import torch.nn.functional as F


class Linear(L.LightningModule):
    def __init__(self, num_classes):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, num_classes))

    def forward(self, images):
        return self.net(images)

    def training_step(self, batch, batch_idx):
        images, targets = batch
        return F.cross_entropy(self(images), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def recipe(config):
    return Linear
"""


@pytest.fixture
def hand_in(tmp_path):
    """Write a recipe's file: ``hand_in(source)`` or ``hand_in(source, name)``."""

    def write(source, name="recipe.py"):
        path = tmp_path / "class" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + textwrap.dedent(source), encoding="utf-8")
        return path

    return write
