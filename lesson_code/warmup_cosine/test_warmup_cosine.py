"""What lesson 04 defines, and its text against the study and the map that it reads."""

from functools import partial

import nbformat
import numpy as np
import pandas as pd
import pytest

from course_tools.study.lesson_code import read_definitions
from course_utils.files import ROOT
from course_utils.measure.paired import paired_difference
from course_utils.results import STUDIES, read_file
from course_utils.study_results import read_study
from lesson_code.warmup_cosine import study as declared

TOTAL = 40


@pytest.fixture(scope="module")
def lesson():
    """The functions and classes of the notebook, without its trainings."""
    return read_definitions("04_warmup_cosine")


@pytest.fixture(scope="module")
def text():
    """All that the notebook says, with single spaces."""
    notebook = nbformat.read(ROOT / "notebooks" / "04_warmup_cosine.ipynb", as_version=4)
    cells = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return " ".join("\n".join(cells).split())


def read_plan(lesson, maker, steps=TOTAL):
    return lesson["read_learning_rates"](maker, steps, peak_lr=0.3)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("warmup_then_cosine", {"warmup_steps": 6}),
        ("warmup_stable_decay", {"warmup_steps": 6, "decay_steps": 8}),
        ("warmup_stable_decay", {"warmup_steps": 1, "decay_steps": 1}),
    ],
)
def test_no_step_is_taken_at_a_learning_rate_of_0(lesson, name, options):
    rates = read_plan(lesson, partial(lesson[name], **options))
    assert rates.min() > 0
    assert rates.max() == pytest.approx(0.3)


def test_a_decay_of_one_step_is_a_constant_learning_rate(lesson):
    maker = partial(lesson["warmup_stable_decay"], warmup_steps=6, decay_steps=1)
    assert set(read_plan(lesson, maker)[6:]) == {0.3}


def test_two_lengths_share_the_stable_phase(lesson):
    maker = partial(lesson["warmup_stable_decay"], warmup_steps=10, decay_steps=20)
    short, long = (read_plan(lesson, maker, steps) for steps in (100, 160))
    assert (short[:81] == long[:81]).all()
    assert short[81] < long[81]


@pytest.mark.parametrize("steps", [60, 625, 128])
def test_the_study_trains_the_schedules_of_the_lesson(lesson, steps):
    parts = {"warmup_steps": steps // 10, "decay_steps": steps // 5}
    ours = read_plan(lesson, partial(lesson["warmup_stable_decay"], **parts), steps)
    theirs = read_plan(lesson, declared.warmup_stable_decay, steps)
    np.testing.assert_allclose(ours, theirs, atol=1e-9)
    maker = partial(lesson["warmup_then_cosine"], warmup_steps=steps // 10)
    theirs = read_plan(lesson, declared.warm_up_tenth, steps)
    np.testing.assert_allclose(read_plan(lesson, maker, steps), theirs, atol=1e-9)


@pytest.mark.parametrize("growth", [1, 2])
def test_restarts_fill_the_training_with_three_cycles(lesson, growth):
    rates = read_plan(lesson, partial(lesson["restarts"], growth=growth), 147)
    (starts,) = np.nonzero(np.diff(rates) > 0)
    assert (starts + 1).tolist() == ([49, 98] if growth == 1 else [21, 63])


# ---- The text of the lesson against the map that it shows.


@pytest.fixture(scope="module")
def on_map():
    """Accuracies in percent, of fine-tuning: schedule and peak to one value for each seed."""
    rows = pd.DataFrame(read_file(STUDIES / "warmup_cosine/study_map.json")["rows"])
    rows = rows[(rows["part"] == "map") & (rows["regime"] == "fine-tuning")].sort_values("seed")
    grouped = rows.groupby(["schedule", "peak_lr"])["accuracy"].apply(np.array)
    return {key: 100 * values for key, values in grouped.items()}


def test_what_the_text_says_of_the_map(on_map):
    gains = {
        peak: [
            on_map[name, peak].mean() - on_map["constant", peak].mean()
            for name in ("cosine", "warm-up and cosine", "one cycle")
        ]
        for peak in (5e-4, 2e-3, 8e-3, 3.2e-2)
    }
    assert max(gains[5e-4]) < 0
    assert [round(min(gains[2e-3])), round(max(gains[2e-3]))] == [3, 4]
    assert [round(min(gains[8e-3])), round(max(gains[8e-3]))] == [9, 12]
    assert gains[3.2e-2][0] < 0 < 9 < min(gains[3.2e-2][1:])
    best = {name: max(v.mean() for (n, _), v in on_map.items() if n == name) for name, _ in on_map}
    assert best["warm-up and cosine"] == on_map["warm-up and cosine", 2e-3].mean()
    pair = paired_difference(on_map["constant", 5e-4], on_map["warm-up and cosine", 2e-3])
    assert pair.low < 0 < pair.high < 2


# ---- The text of the lesson against its study.

SCRATCH, DEFINITIONS = "from scratch", "definitions"
WSD, WARM = "warmup-stable-decay", "warm-up and cosine"


@pytest.fixture(scope="module")
def study():
    return read_study("warmup_cosine")


@pytest.fixture(scope="module")
def points(study):
    """The mean difference of two variants of a regime, as the text writes it."""

    def format_points(regime, variant, baseline):
        return f"{100 * study.difference(regime, variant, baseline).mean:.1f}"

    return format_points


def judge(study, *names):
    return study.difference(*names).verdict(margin=study.margin)


def test_what_the_text_says_of_the_decay(study, points, text):
    decaying = [name for name in study.best[SCRATCH] if name != "constant"]
    gains = sorted((points(SCRATCH, name, "constant") for name in decaying), key=float)
    assert gains[0] == points(SCRATCH, "cosine", "constant")
    assert gains[-1] == points(SCRATCH, WSD, "constant")
    assert f"gains {gains[0]} to {gains[-1]} points over the constant learning rate" in text
    for name in decaying:
        assert study.difference(SCRATCH, name, "constant").low > 3 * study.margin
    assert judge(study, SCRATCH, "linear to zero", "cosine") == "equivalent"
    assert judge(study, SCRATCH, WSD, "cosine") == "helps"
    ahead = points(SCRATCH, WSD, "cosine")
    assert f"warmup-stable-decay is {ahead} points ahead of it" in text
    assert f"a cosine gains {gains[0]} points over the best constant learning rate" in text
    assert f"decays in its last fifth gains {gains[-1]}." in text


def test_what_the_text_says_of_the_warm_up(study, points, text):
    assert judge(study, DEFINITIONS, WARM, "cosine") == "equivalent"
    assert judge(study, DEFINITIONS, "warm-up and constant", "constant") == "equivalent"
    assert judge(study, DEFINITIONS, "cosine", "constant") == "equivalent"
    assert judge(study, "photographs", WARM, "cosine") == "equivalent"
    pairs = (WARM, "cosine"), ("cosine", "constant")
    added, decay = (points("high peak", *pair) for pair in pairs)
    assert [judge(study, "high peak", *pair) for pair in pairs] == ["helps", "helps"]
    assert f"the warm-up adds {added} points and the cosine {decay}." in text
    assert f"it adds {added} points, but a lower peak is the better fix" in text
    high = 100 * study.values("high peak", WARM).mean()
    good = [100 * study.values("photographs", name).mean() for name in study.best["photographs"]]
    words = f"end at {high:.1f} %, whereas every schedule with a good peak reaches"
    assert f"{words} {min(good):.1f} % or more" in text


def test_the_constant_learning_rate_was_best_at_the_lowest_peak_from_random_weights(study):
    tried = {float(x.trial.split()[1]) for x in study.trainings if x.regime == SCRATCH}
    assert float(study.best[SCRATCH]["constant"].split()[1]) == min(tried)
    assert float(study.best[SCRATCH][WSD].split()[1]) > min(tried)
