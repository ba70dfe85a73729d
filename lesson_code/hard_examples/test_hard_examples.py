"""What lesson 17 plants and finds, and what it says of its study is what the study found."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_tools.study.lesson_code import read_definitions
from course_utils.config import load_config
from course_utils.results import STUDIES
from course_utils.training.fit import fit
from lesson_code.hard_examples import planted_labels
from lesson_code.hard_examples.planted_labels import (
    ClassLoss,
    Hunt,
    LogFound,
    SelectSmallest,
    find_suspects,
    load,
    load_noisy,
    load_rare,
    search_suspects,
    spoil_labels,
    thin_out,
)

SHAPES = load_config("smoke", dataset="shapes").replace(num_train=96, num_val=60, batch_size=16)
TEXTS = load_config("smoke", dataset="glosses").replace(
    num_train=80, num_val=60, batch_size=16, model="text_small"
)


def make_network(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, num_classes))


def train(*callbacks, config=SHAPES, **options):
    trainer = {"callbacks": list(callbacks), "max_epochs": 2, "check_val_every_n_epoch": 2}
    options = {"model": make_network, "trainer": trainer, "save": False} | options
    return fit(config, load(config), **options)


@pytest.fixture(scope="module")
def lesson():
    """The functions and classes of the notebook, without its trainings."""
    return read_definitions("17_hard_examples")


# ---- What is planted.


@pytest.mark.parametrize("config", [SHAPES, TEXTS])
def test_so_many_labels_are_wrong_and_the_seed_decides_which(config):
    data = load(config)
    spoiled, wrong = spoil_labels(data, 0.25, seed=3)
    assert wrong.sum() == round(0.25 * len(data.train))
    np.testing.assert_array_equal(wrong, spoiled.train.targets != data.train.targets)
    again, other = (spoil_labels(data, 0.25, seed)[1] for seed in (3, 4))
    assert (again == wrong).all()
    assert (other != wrong).any()
    assert not spoil_labels(data, 0.0, seed=3)[1].any()


def test_the_seed_decides_which_classes_are_rare():
    data = load(SHAPES.replace(num_train=200))
    sizes = [np.bincount(thin_out(data, 0.1, seed).train.targets) for seed in (0, 1)]
    most = np.bincount(data.train.targets).min()
    for found in sizes:
        assert found.max() == most
        assert found.min() == max(2, round(0.1 * most))
    assert sizes[0].tolist() != sizes[1].tolist()
    drawn = np.concatenate([y for _ in range(20) for _, y in load_rare(data, 0, ratio=0.1)])
    even = load_rare(data, 0, ratio=0.1, balanced=True)
    evenly = np.concatenate([y for _ in range(20) for _, y in even])
    expected = sizes[0] / sizes[0].sum()
    np.testing.assert_allclose(np.bincount(drawn) / len(drawn), expected, atol=0.05)
    np.testing.assert_allclose(np.bincount(evenly) / len(evenly), 1 / len(expected), atol=0.07)


# ---- What is found.


def test_suspects_are_those_of_cleanlab():
    stored = json.loads((STUDIES / "hard_examples/cleanlab_reference.json").read_text())
    for case in stored["cases"]:
        labels, probabilities = np.array(case["labels"]), np.array(case["probabilities"])
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        found = np.flatnonzero(find_suspects(labels, probabilities))
        assert found.tolist() == case["confident_learning"]


def test_each_fix_does_what_its_name_says(monkeypatch):
    data = load(SHAPES)
    spoiled, wrong = spoil_labels(data, 0.25, seed=0)
    right = data.train.targets
    suspects = wrong.copy()
    suspects[np.flatnonzero(~wrong)[:5]] = True
    search = planted_labels.Suspects(
        wrong, suspects, (right + 1) % data.num_classes, wrong, {"a": 1.0}
    )
    monkeypatch.setattr(planted_labels, "search_suspects", lambda *_: search)
    hunt = Hunt(SHAPES, epochs=1, lr=1e-3)

    def read(fix, hunt=None):
        loader = load_noisy(data, 0, share=0.25, fix=fix, hunt=hunt)
        return loader.batches.dataset.targets, loader.found

    np.testing.assert_array_equal(read("keep")[0], spoiled.train.targets)
    np.testing.assert_array_equal(read("right labels")[0], right)
    np.testing.assert_array_equal(read("drop the wrong")[0], right[~wrong])
    targets, found = read("drop suspects", hunt)
    np.testing.assert_array_equal(targets, right[~suspects])
    assert found == {"a": 1.0}
    expected = np.where(suspects, (right + 1) % data.num_classes, right)
    np.testing.assert_array_equal(read("relabel suspects", hunt)[0], expected)
    targets, _ = read("drop at random", hunt)
    assert len(targets) == (~suspects).sum()


def test_a_search_is_scored_and_changes_nothing_of_the_training():
    hunt = Hunt(TEXTS, epochs=1, lr=1e-3, folds=2)
    options = {"config": TEXTS, "model": None, "pretrained": True}
    plain = train(make_loader=lambda data, seed: load_noisy(data, seed, share=0.25), **options)
    searched = train(
        LogFound(),
        make_loader=lambda data, seed: load_noisy(data, seed, share=0.25, hunt=hunt),
        **options,
    )
    torch.testing.assert_close(
        searched.model.state_dict(), plain.model.state_dict(), rtol=0, atol=0
    )
    search = search_suspects(hunt, 0.25, 0)
    found = {name: searched.metrics[name] for name in search.scores}
    assert found == pytest.approx(search.scores, abs=1e-6)
    assert found["precision"] == pytest.approx(search.wrong[search.suspects].mean(), abs=1e-6)


# ---- What the losses do.


def test_the_kept_share_falls_during_the_warm_up():
    shares = []

    class Watch(SelectSmallest):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
            shares.append(pl_module.loss.keywords["share"])

    train(Watch(share=0.8, warmup=0.5))  # twelve steps
    np.testing.assert_allclose(shares[:7], [1 - 0.2 * step / 6 for step in range(7)])
    assert shares[7:] == [0.8] * 5
    shares.clear()
    train(Watch(share=0.8, warmup=0.0))
    assert shares == [0.8] * 12


def test_losses_know_the_classes_and_accuracies_are_by_class():
    config = SHAPES.replace(num_train=200)
    load_thin = lambda data, seed: load_rare(data, seed, ratio=0.1)  # noqa: E731
    for kind in ("mean", "class weights", "logit adjustment"):
        run = train(ClassLoss(kind), config=config, make_loader=load_thin)
        data, callback = load(config), run.callback(ClassLoss)
        logits = torch.cat([run.model(x) for x, _ in data.eval_loader()]).detach()
        targets = torch.as_tensor(data.val.targets)
        counts = torch.bincount(torch.as_tensor(thin_out(data, 0.1, 0).train.targets))
        torch.testing.assert_close(callback.shares, counts / counts.sum())
        adjusted = (logits - callback.shares.log()).argmax(dim=1) == targets
        assert run.metrics["adjusted"] == pytest.approx(adjusted.float().mean().item(), abs=1e-5)
        rare = torch.isin(targets, counts.argsort(stable=True)[:3])
        plain = logits.argmax(dim=1) == targets
        expected = plain[rare].float().mean().item()
        assert run.metrics["rare"] == pytest.approx(expected, abs=1e-5)
        if kind == "mean":
            uniform = torch.full((10,), 0.1)
            loss = planted_labels.adjust_logits(logits, targets, uniform[: data.num_classes])
            torch.testing.assert_close(loss, F.cross_entropy(logits, targets))
