"""What lesson 05 defines, and its text against the study that it reads."""

import nbformat
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.transforms import v2

from course_tools.study.lesson_code import read_definitions
from course_utils.files import ROOT
from course_utils.study_results import read_study
from lesson_code.mixup import study as declared


@pytest.fixture(scope="module")
def lesson():
    """The functions and classes of the notebook, without its trainings."""
    return read_definitions("05_mixup")


@pytest.fixture(scope="module")
def text():
    """All that the notebook says, with single spaces."""
    notebook = nbformat.read(ROOT / "notebooks" / "05_mixup.ipynb", as_version=4)
    cells = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return " ".join("\n".join(cells).split())


@pytest.fixture
def batch():
    """Images (6, 3, 4, 4), classes of which neighbours differ, and a permutation."""
    torch.manual_seed(0)
    return torch.randn(6, 3, 4, 4), torch.arange(6) % 5, torch.randperm(6)


def test_lam_1_changes_nothing_and_lam_0_gives_the_partners(lesson, batch):
    images, targets, permutation = batch
    same, hard = lesson["mix"](images, targets, 1.0, permutation, 5)
    assert torch.equal(same, images)
    assert torch.equal(hard, F.one_hot(targets, 5).float())
    partners, others = lesson["mix"](images, targets, 0.0, permutation, 5)
    assert torch.equal(partners, images[permutation])
    assert torch.equal(others, hard[permutation])


def test_an_image_mixed_with_itself_stays(lesson, batch):
    images, targets, _ = batch
    same, soft = lesson["mix"](images, targets, 0.3, torch.arange(6), 5)
    torch.testing.assert_close(same, images)
    torch.testing.assert_close(soft, F.one_hot(targets, 5).float())


def test_a_large_alpha_mixes_halves(lesson, batch):
    images, targets, _ = batch
    _, soft = lesson["random_mix"](images, targets, 1e6, 5)
    assert ((soft - 0.5).abs() < 0.01).sum(dim=1).max() == 2
    torch.testing.assert_close(soft.sum(dim=1), torch.ones(6))


def test_a_hook_that_mixes_is_removed_and_at_the_head_mixes_logits(lesson, batch):
    images, targets, permutation = batch
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    logits = network(images)
    found = lesson["manifold_loss"](network, images, targets, "1", 0.7, permutation, 5)
    _, soft = lesson["mix"](images, targets, 0.7, permutation, 5)
    expected = F.cross_entropy(0.7 * logits + 0.3 * logits[permutation], soft)
    torch.testing.assert_close(found, expected)
    assert torch.equal(network(images), logits)


def test_mixed_texts_are_those_of_mixed_embeddings(lesson):
    torch.manual_seed(0)
    embedding, head = nn.Embedding(9, 4), nn.Linear(4, 3)
    tokens, targets = torch.tensor([[1, 2], [3, 4]]), torch.tensor([0, 2])
    partners = torch.tensor([1, 0])
    found = lesson["mix_texts"](embedding, head, tokens, targets, 1.0, partners, 3)
    expected = F.cross_entropy(head(embedding(tokens).mean(dim=1)), targets)
    torch.testing.assert_close(found, expected)


def test_the_study_compares_what_differs_in_mixing_and_augmentation_alone():
    for name, regime in declared.STUDY.regimes.items():
        for trial in regime.variants["flips and shifts"]:
            tried = [variant[trial] for variant in regime.variants.values()]
            other = {"batch_transform", "make_loader"}
            for options in tried:
                same = {key: str(x) for key, x in options.items() if key not in other}
                assert same == {key: str(x) for key, x in tried[0].items() if key not in other}
        for variant, trials in regime.variants.items():
            (options, *_) = trials.values()
            kind = v2.CutMix if "CutMix" in variant else v2.MixUp
            mixed = options["batch_transform"] is not None
            assert mixed == ("ixup" in variant or "Mix" in variant)
            assert not mixed or isinstance(options["batch_transform"], kind)
            augmented = options["make_loader"].__name__ == "train_loader"
            assert augmented == ("flips" in variant or name == "fine-tuning")
