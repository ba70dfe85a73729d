"""What lesson 14 defines is what its study ran, and what it says of the study is what was found."""

import math

import nbformat
import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW

from course_tools.run.lessons import NOTEBOOKS
from course_tools.study.lesson_code import read_definitions
from course_utils.data.load import load_data
from course_utils.study_results import read_study
from lesson_code.finders.suggestions import BETA, STEPS, find_valley, smooth_losses

LIGHTNING, STEEPEST = "Lightning's suggestion", "steepest slope"
VALLEY, TENTH, SEARCHED = "valley", "a tenth of the lowest", "searched"
PHOTOS, TEXTS = "photographs, 8 epochs", "definitions"
SPAN = {epochs: f"photographs, {epochs} epochs" for epochs in (2, 8, 20)}


@pytest.fixture(scope="module")
def lesson():
    """The functions and classes of the notebook, without its trainings."""
    return read_definitions("14_finders")


# ---- What the lesson defines.


def make_curve(seed):
    """Learning rates and noisy losses that fall and rise again, (STEPS,) each."""
    generator, place = np.random.default_rng(seed), np.linspace(0, 1, STEPS)
    losses = 2.3 - 2 * np.exp(-(((place - 0.75) / 0.12) ** 2)) + 5 * np.clip(place - 0.85, 0, 1)
    return np.geomspace(1e-7, 10, STEPS), losses + 0.1 * generator.standard_normal(STEPS)


@pytest.mark.parametrize("seed", range(5))
def test_the_readings_are_those_of_the_study(lesson, seed):
    learning_rates, losses = make_curve(seed)
    np.testing.assert_allclose(lesson["smooth"](losses), smooth_losses(losses))
    rates, smoothed = lesson["trim_curve"](learning_rates, losses)
    np.testing.assert_array_equal(rates, learning_rates[10:-5])
    assert lesson["read_valley"](rates, smoothed) == rates[find_valley(smoothed)]
    assert lesson["read_lowest"](rates, smoothed) == rates[smoothed.argmin()] / 10
    over_log = np.gradient(smoothed, np.log(rates)).argmin()
    assert abs(np.log(lesson["read_steepest"](rates, smoothed) / rates[over_log])) < 0.2
    over_lr = np.gradient(smoothed, rates).argmin()
    assert lesson["read_lightning"](rates, smoothed) == rates[over_lr]


def test_a_range_test_gives_everything_back_and_ends_early(lesson):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(40)]
    optimizer = SGD(model.parameters(), lr=0.5)
    losses = lesson["run_range_test"](model, optimizer, batches, np.geomspace(1e-3, 1e5, 40))
    assert 10 < len(losses) < 40
    assert not model.training
    assert optimizer.param_groups[0]["lr"] == 0.5
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


@pytest.mark.parametrize("best", [1e-4, 0.02, 0.9])
def test_a_sweep_ends_with_lower_accuracies_on_both_sides(lesson, best):
    found = lesson["sweep_both_ways"](lambda lr: -abs(math.log(lr / best)), 0.01)
    rates, accuracies = list(found), list(found.values())
    assert rates == sorted(rates)
    place = int(np.argmax(accuracies))
    assert 0 < place < len(rates) - 1
    assert abs(math.log(rates[place] / best)) <= math.log(3) / 2 + 1e-9


# ---- The text of the lesson against the study that it reads.


@pytest.fixture(scope="module")
def study():
    return read_study("finders")


@pytest.fixture(scope="module")
def read_text():
    """The source of a cell of the notebook, by its id, in one line."""
    notebook = nbformat.read(NOTEBOOKS / "14_finders.ipynb", as_version=4)
    cells = {cell.id: " ".join(cell.source.split()) for cell in notebook.cells}
    return cells.__getitem__


@pytest.fixture(scope="module")
def find_cost(study):
    """What a suggestion costs against the search, in points, as a text; a cost is positive."""

    def find(regime, finder, digits=1, interval=False):
        found = study.difference(regime, finder, SEARCHED)
        mean, low, high = (-100 * x for x in (found.mean, found.high, found.low))
        text = f"{mean:.{digits}f}"
        return f"{text} points ({low:.{digits}f} to {high:.{digits}f})" if interval else text

    return find


@pytest.fixture(scope="module")
def read_lrs(study):
    """The learning rates (S,) that a finder suggested."""
    return lambda regime, finder: 10 ** study.values(regime, finder, f"lr {finder}")


@pytest.fixture(scope="module")
def read_searched(study):
    return lambda regime: float(study.best[regime][SEARCHED].removeprefix("lr "))


def judge(study, regime, finder):
    return study.difference(regime, finder, SEARCHED).verdict(margin=study.margin)


def test_what_the_study_is_said_to_have_trained(study, read_text):
    assert len(study.seeds) == 10
    for name, regime in study.regimes.items():
        assert regime.config.num_train == 250
        tried = {x.trial for x in study.trainings if (x.regime, x.variant) == (name, SEARCHED)}
        assert len(tried) == 5
    assert "250 photographs for eight" in read_text("question")
    assert "A search tries five learning rates" in read_text("question")
    steps = len(load_data(study.regimes[SPAN[2]].config).train_loader())
    assert steps == 15
    assert "the trainings have 30 to 300 steps" in read_text("verdict-card")
    assert max(steps * regime.config.epochs for regime in study.regimes.values()) == 300
    assert BETA == 0.98
    assert "moving-average) with $\\beta=0.98$" in read_text("idea-read")


def test_what_the_suggestions_cost(study, read_text, find_cost, read_lrs, read_searched):
    text = read_text("first-read-md")
    assert f"Lightning's suggestion costs **{find_cost(PHOTOS, LIGHTNING, interval=True)}**" in text
    assert f"On definitions it costs {find_cost(TEXTS, LIGHTNING, interval=True)}" in text
    rates = read_lrs(PHOTOS, LIGHTNING)
    assert f"It lies between {rates.min():.0e} and {rates.max():.0e}" in text
    assert abs(study.values(PHOTOS, LIGHTNING).mean() - 0.1) < 0.01  # chance
    valley = find_cost(PHOTOS, VALLEY, interval=True)
    assert f"costs {valley} there, and {find_cost(TEXTS, VALLEY, interval=True)} on def" in text
    assert read_searched(TEXTS) == AdamW([nn.Parameter(torch.zeros(1))]).defaults["lr"] == 0.001
    assert "the search found AdamW's own default, 0.001" in text
    steepest = find_cost(PHOTOS, STEEPEST, interval=True)
    assert f"three times above the searched learning rate and costs {steepest}" in text
    for finder, factor in ((VALLEY, 1 / 5), (STEEPEST, 3)):
        typical = np.exp(np.log(read_lrs(PHOTOS, finder)).mean())
        assert abs(math.log(typical / read_searched(PHOTOS) / factor)) < 0.2
    gain = study.difference(PHOTOS, TENTH, SEARCHED)
    assert judge(study, PHOTOS, TENTH) == "helps"
    assert gain.mean < study.margin  # too small to matter
    assert TENTH not in study.best[TEXTS]  # not trained there
    found = f"it is {100 * gain.mean:.1f} points better than the search ({100 * gain.low:.1f} to "
    assert f"{found}{100 * gain.high:.1f})" in text
    assert all(judge(study, PHOTOS, finder) == "hurts" for finder in (LIGHTNING, STEEPEST, VALLEY))
    title = "suggestion is far too low, and a tenth of the lowest is near the search"
    assert title in read_text("first-figure")
    for regime in (PHOTOS, TEXTS):
        assert np.median(read_lrs(regime, LIGHTNING)) < read_searched(regime) / 1000
    tenth = read_lrs(PHOTOS, TENTH) / read_searched(PHOTOS)
    assert 0.5 < tenth.min() < tenth.max() < 1.5


def test_how_far_the_suggestions_scatter(read_text, read_lrs):
    factors = [
        read_lrs(PHOTOS, finder).max() / read_lrs(PHOTOS, finder).min()
        for finder in (LIGHTNING, STEEPEST, VALLEY, TENTH)
    ]
    others = f"{factors[1]:.1f}, {factors[2]:.1f} and {factors[3]:.1f}"
    text = read_text("range-read")
    assert f"differs by a factor of {factors[0]:.0f} between seeds" in text
    assert f"the others by factors of {others}" in text


def test_what_the_length_of_a_training_changes(study, read_text, find_cost, read_searched):
    short = SPAN[2]
    assert f"valley costs even {find_cost(short, VALLEY, interval=True)}" in read_text("cost-read")
    assert read_searched(short) == 0.03
    assert read_searched(PHOTOS) == 0.01
    longest = SPAN[20]
    assert read_searched(longest) == 0.003
    assert judge(study, short, STEEPEST) == "inconclusive"
    text = read_text("span-read")
    costs = f"{find_cost(short, VALLEY)} points to {find_cost(PHOTOS, VALLEY)}"
    end = f"to {find_cost(longest, VALLEY, interval=True)}".replace(" points", "")
    assert f"The cost of valley falls from {costs}, and with twenty epochs {end}" in text
    assert judge(study, longest, VALLEY) == "inconclusive"
    assert "too high and costs about 8 points" in text
    for regime in (PHOTOS, longest):
        assert round(-100 * study.difference(regime, STEEPEST, SEARCHED).mean) == 8
        assert judge(study, regime, STEEPEST) == "hurts"
    for regime in SPAN.values():
        assert abs(study.values(regime, LIGHTNING).mean() - 0.1) < 0.015  # chance
    np.testing.assert_array_equal(  # the same range tests
        study.values(short, VALLEY, "lr valley"), study.values(PHOTOS, VALLEY, "lr valley")
    )


def test_what_verdict_and_recap_say(study, read_text, find_cost):
    text = read_text("verdict-card")
    photos = [find_cost(PHOTOS, finder) for finder in (LIGHTNING, VALLEY)]
    texts = [find_cost(TEXTS, finder) for finder in (LIGHTNING, VALLEY)]
    assert f"costs {photos[0]} points in eight epochs" in text
    assert f"fastai's valley {photos[1]}. On definitions" in text
    assert f"they cost {texts[0]} and {texts[1]} points" in text
    assert f"A tenth of the lowest costs {find_cost(SPAN[2], TENTH)} points in two epochs" in text
    text = read_text("recap")
    assert f"it cost {photos[0]} points on photographs and {texts[0]} on definitions" in text
    assert f"fastai's valley cost {photos[1]} and {texts[1]}" in text
