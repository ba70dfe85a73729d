"""What lesson 05 defines, and its text against the study that it reads."""

import nbformat
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


# ---- The text of the lesson against the study that it reads.

SHORT, MIDDLE, LONG = (f"250 photographs, {epochs} epochs" for epochs in (8, 32, 128))
MORE = "1,000 photographs, 8 epochs"
NOTHING, FLIPS, BOTH = "nothing", "flips and shifts", "flips, shifts and mixup"
WITH_CUTMIX = "flips, shifts and CutMix"


@pytest.fixture(scope="module")
def study():
    return read_study("mixup")


@pytest.fixture(scope="module")
def points(study):
    """The size of a mean difference, as the text writes it."""

    def format_points(regime, variant, baseline):
        return f"{abs(100 * study.difference(regime, variant, baseline).mean):.1f}"

    return format_points


def judge(study, *names):
    return study.difference(*names).verdict(margin=study.margin)


def test_what_the_text_says_of_mixup_alone(study, points, text):
    assert judge(study, SHORT, "mixup", NOTHING) == "hurts"
    assert judge(study, MIDDLE, "mixup", NOTHING) == "inconclusive"
    assert judge(study, LONG, "mixup", NOTHING) == "hurts"
    assert judge(study, MIDDLE, "CutMix", NOTHING) == "inconclusive"
    for length in (SHORT, LONG):
        assert judge(study, length, "CutMix", NOTHING) == "hurts"
    short, long = (points(length, "mixup", NOTHING) for length in (SHORT, LONG))
    assert f"Alone, mixup costs {short} points in 8 epochs and {long} in 128, both barely" in text
    assert f"Mixup alone barely costs: {short} points in 8 epochs and {long} in 128." in text
    ends = {f"{100 * study.difference(x, 'mixup', NOTHING).high:.1f}" for x in (SHORT, LONG)}
    assert ends == {"-0.1"}
    assert "both barely: their intervals, uncorrected for many comparisons, end at −0.1." in text
    costs = [points(length, "CutMix", NOTHING) for length in (SHORT, LONG)]
    assert "CutMix costs {} points in 8 epochs and, barely, {} in 128;".format(*costs) in text
    assert study.difference(LONG, "CutMix", NOTHING).high > -0.001
    assert f"the study's mean of −{points(MIDDLE, 'CutMix', NOTHING)} points in 32 epochs" in text
    accuracies = [100 * study.values(x, NOTHING, "val_accuracy").mean() for x in (SHORT, LONG)]
    assert "without it is {:.1f} % and {:.1f} %".format(*accuracies) in text
    most = 100 * study.difference(MIDDLE, "mixup", NOTHING).high
    assert f"but they exclude a gain of more than {most:.1f} points" in text


def test_what_the_text_says_of_flips_and_shifts(study, points, text):
    assert judge(study, MIDDLE, FLIPS, NOTHING) == judge(study, LONG, FLIPS, NOTHING) == "helps"
    gain = points(LONG, FLIPS, NOTHING)
    assert judge(study, SHORT, FLIPS, NOTHING) == "inconclusive"
    assert f"Flips and shifts, undecided in 8 epochs, gain {gain} points in 128." in text
    assert f"flips and shifts, which gain {gain} points in 128 epochs" in text
    losses = [study.values(length, FLIPS, "train_loss").mean() for length in (MIDDLE, LONG)]
    words = f"is {losses[0]:.2g} nats in 32 epochs and {losses[1]:.2g} in 128"
    assert words in text
    assert study.values(LONG, NOTHING, "train_loss").mean() < losses[1]
    cost = points(LONG, "mixup", NOTHING)
    assert f"the loss is lower still, and mixup costs {cost} points in 128 epochs" in text


def test_what_the_text_says_of_mixing_on_top(study, points, text):
    verdicts = [judge(study, length, BOTH, FLIPS) for length in (SHORT, MIDDLE, LONG)]
    assert verdicts == ["hurts", "hurts", "helps"]
    short, middle, long = (points(length, BOTH, FLIPS) for length in (SHORT, MIDDLE, LONG))
    costs = f"mixup costs {short} points in 8 epochs and {middle} in 32, but it *gains* {long}"
    assert costs in text
    assert f"it costs {short} in 8 epochs and gains {long} in 128" in text
    for length in (SHORT, MIDDLE, LONG):
        assert judge(study, length, WITH_CUTMIX, FLIPS) == "hurts"
    assert f"whereas CutMix still costs {points(LONG, WITH_CUTMIX, FLIPS)}" in text


def test_what_the_text_says_of_more_photographs(study, points, text):
    assert judge(study, MORE, BOTH, FLIPS) == "hurts"
    assert f"mixup costs {points(MORE, BOTH, FLIPS)} points with 1,000 photographs." in text
    costs = [points(regime, BOTH, FLIPS) for regime in (MIDDLE, SHORT)]
    assert "it costs {} at about as many steps and {} at as many epochs".format(*costs) in text
    for regime in (MIDDLE, SHORT):
        cost = study.difference(regime, BOTH, FLIPS)
        assert study.difference(MORE, BOTH, FLIPS).high < cost.low, "the intervals are apart"
    (alone,) = {points(regime, "mixup", NOTHING) for regime in (SHORT, MORE)}
    assert f"mixup costs {alone} points in 8 epochs with 250 and with 1,000, and" in text


def test_what_the_text_says_of_the_calibration(study, text):
    metric = "val_calibration_error"
    pairs = (NOTHING, "mixup"), (FLIPS, BOTH)
    for baseline, variant in pairs:
        found = study.difference(LONG, variant, baseline, metric)
        assert found.verdict(more_is_better=False, margin=0.01) == "helps"
    errors = [f"{100 * study.values(LONG, x, metric).mean():.1f}" for pair in pairs for x in pair]
    words = "from {} to {} points, and added to flips and shifts from {} to {}."
    assert words.format(*errors) in text
    for baseline, variant in pairs:
        assert study.difference(LONG, variant, baseline, "val_loss").high < 0
        assert study.difference(SHORT, variant, baseline, "val_loss").low > 0
        assert study.difference(SHORT, variant, baseline, metric).mean > 0
    for worse in (metric, "val_loss"):
        assert study.difference(LONG, FLIPS, NOTHING, worse).low > 0


def test_what_the_text_says_of_fine_tuning(study, points, text):
    costs = []
    for name in ("mixup", "CutMix"):
        assert judge(study, "fine-tuning", name, FLIPS) == "hurts"
        costs.append(points("fine-tuning", name, FLIPS))
    assert "mixup costs {} points and CutMix {}.".format(*costs) in text
    assert f"a brief fine-tuning of a pretrained network, it costs {costs[0]} points." in text
    assert f"you fine-tune briefly (it costs {costs[0]} points here)" in text
    loss = study.values("fine-tuning", FLIPS, "train_loss").mean()
    assert f"Their training loss ends at {loss:.2f} nats" in text


def test_what_the_text_says_of_the_learning_rates(study, text):
    searched = {
        (x.regime, x.variant, x.trial): 100 * x.metrics["val_accuracy"]
        for x in study.trainings
        if x.seed in study.search_seeds
    }
    mixed, plain = (searched[MIDDLE, variant, "lr 0.004"] for variant in ("mixup", NOTHING))
    assert f"mixup would be {mixed - plain:.1f} points ahead of nothing in 32 epochs" in text
    assert f"on this seed ({mixed:.2f} against {plain:.2f} %)" in text
    trials = ("lr 0.002", "lr 0.004")
    best = [max(searched[MIDDLE, x, trial] for trial in trials) for x in ("mixup", NOTHING)]
    assert abs(best[0] - best[1]) < 0.5
    costs = {
        x: searched[MORE, x, trials[0]] - searched[MORE, x, trials[1]] for x in ("mixup", NOTHING)
    }
    assert f"no flips the high learning rate costs mixup {costs['mixup']:.1f} points" in text
    assert costs[NOTHING] < 0
    chosen = [trial for regime in study.best for trial in study.best[regime].values()]
    lower = sum(trial in ("lr 0.002", "lr 0.0005") for trial in chosen)
    assert lower > 0.6 * len(chosen)
