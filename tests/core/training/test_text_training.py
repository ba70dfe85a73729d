"""Texts, and targets for each token, through the same seams as images."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.models.text_small import PADDING, TextSmall
from course_utils.training.fit import fit, quiet_trainer
from course_utils.training.lit_classifier import IGNORED, LitClassifier

SGD = partial(torch.optim.SGD, lr=0.1)
CLASSES = 5


class PredictsTokens(nn.Module):
    """Logits ``(N, T, C)`` of each token of a batch ``(N, T)``."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Embedding(CLASSES, 8), nn.Linear(8, CLASSES))

    def forward(self, tokens):
        return self.layers(tokens)


@pytest.fixture
def batches():
    """Tokens and targets ``(N, T)``; the second half of each batch is padding in part."""
    torch.manual_seed(1)
    made = []
    for length in (6, 3, 9):
        tokens, targets = torch.randint(1, CLASSES, (2, 4, length))
        targets[2:, length // 2 :] = IGNORED
        made.append((tokens, targets))
    return made


def train(model, batches, val=None, loss=F.cross_entropy):
    lit = LitClassifier(copy.deepcopy(model), CLASSES, make_optimizer=SGD, loss=loss)
    trainer = quiet_trainer(max_epochs=1, accelerator="cpu")
    loaders = [DataLoader(one, batch_size=None) for one in (batches, val or batches)]
    trainer.fit(lit, *loaders)
    return lit, trainer.callback_metrics


def test_token_targets_train_as_cross_entropy_with_ignore_index(batches):
    torch.manual_seed(0)
    model = PredictsTokens()
    lit, _ = train(model, batches)
    expected = copy.deepcopy(model)
    optimizer = SGD(expected.parameters())
    for tokens, targets in batches:
        loss = F.cross_entropy(expected(tokens).transpose(1, 2), targets, ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for found, wanted in zip(lit.model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(found, wanted)


def test_metrics_are_means_over_tokens_that_count(batches):
    torch.manual_seed(0)
    model = PredictsTokens()
    lit, metrics = train(model, batches)
    logits = torch.cat([lit.model(tokens).flatten(0, 1) for tokens, _ in batches])
    targets = torch.cat([targets.flatten() for _, targets in batches])
    counted = targets != IGNORED
    wanted = F.cross_entropy(logits, targets, ignore_index=IGNORED).item()
    assert metrics["val_loss"].item() == pytest.approx(wanted, abs=1e-6)
    right = (logits.argmax(1) == targets)[counted].float().mean().item()
    assert metrics["val_accuracy"].item() == pytest.approx(right, abs=1e-6)
    assert lit._examples == counted.sum()


def test_padding_that_is_added_changes_nothing(batches):
    torch.manual_seed(0)
    model = PredictsTokens()
    longer = [
        (F.pad(tokens, (0, 7), value=PADDING), F.pad(targets, (0, 7), value=IGNORED))
        for tokens, targets in batches
    ]
    one, other = (train(model, made, batches) for made in (batches, longer))
    for found, wanted in zip(one[0].model.parameters(), other[0].model.parameters(), strict=True):
        torch.testing.assert_close(found, wanted)
    assert one[1]["train_loss"] == pytest.approx(other[1]["train_loss"].item(), abs=1e-6)


def test_the_loss_seam_gets_the_tokens_that_count(batches):
    shapes = []

    def loss(logits, targets):
        shapes.append((tuple(logits.shape), tuple(targets.shape)))
        return F.cross_entropy(logits, targets, label_smoothing=0.1)

    train(PredictsTokens(), batches, loss=loss)
    counts = [int((targets != IGNORED).sum()) for _, targets in batches]
    assert shapes == [((count, CLASSES), (count,)) for count in counts]


def test_fit_trains_on_texts(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_RUNS_DIR", str(tmp_path))
    config = load_config("smoke", dataset="glosses").replace(num_train=100, num_val=100)
    data = load_data(config)
    make = partial(TextSmall, width=20, depth=1, heads=2)
    runs = [fit(config, data, seed=3, model=make) for _ in range(2)]
    assert runs[0].metrics["val_loss"] == runs[1].metrics["val_loss"]
    assert runs[0].settings["data"] == data.summarize()
    assert runs[0].settings["seams"].keys() == {"model"}


def test_text_small_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_RUNS_DIR", str(tmp_path))
    config = load_config("smoke", dataset="glosses").replace(model="text_small", num_train=60)
    data = load_data(config)
    assert 0 <= fit(config, data).metrics["val_accuracy"] <= 1
