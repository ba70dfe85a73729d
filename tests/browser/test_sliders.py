"""Figures with sliders: what they show in a browser is what Python computes."""

import json
import re

import nbformat
import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.optim import SGD

from course_utils.measure import calibration_error
from course_utils.measure.paired import paired_difference
from course_utils.training.schedules import warmup_cosine
from lesson_code.sharding import pipeline
from tests.places import find_notebooks

MOVE = "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }"
PIXEL = """([column, row]) => [...document.querySelector('canvas').getContext('2d')
  .getImageData(column, row, 1, 1).data]"""
BOXES = """all => all.map((box) =>
  [box.x.baseVal.value, box.width.baseVal.value, box.getAttribute('fill')])"""
COLUMN, ROW = 3, 5  # of a pixel that CutMix does not change


def read_figures():
    """Of each lesson with such figures: their stored outputs, as HTML, in order."""
    found = {}
    for path in find_notebooks():
        for cell in nbformat.read(path, 4).cells:
            for output in cell.get("outputs", []):
                text = output.get("data", {}).get("text/html", "")
                if 'class="explore"' in text:
                    found.setdefault(path.stem, []).append(text)
    return found


FIGURES = read_figures()


@pytest.fixture(params=[(390, "light"), (1366, "dark")], ids=["phone", "dark screen"])
def show(request, browser):
    """Opens the figure of a lesson; afterwards the page has had no error."""
    width, colours = request.param
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=colours)
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda m: m.type == "error" and faults.append(m.text))
    page.on("request", lambda asked: faults.append(asked.url))

    def open_figure(lesson, number=0):
        page.set_content(f"<!doctype html><body>{FIGURES[lesson][number]}")
        assert page.locator("img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        return page

    yield open_figure
    page.close()
    assert not faults


def read_data(lesson, number=0):
    """What the figure draws."""
    return json.loads(re.search(r"draw\(root, (\{.*\})\);", FIGURES[lesson][number])[1])


def move(page, *values):
    """Moves the sliders; returns the sentence and the rows of the table."""
    inputs = page.locator("input[type=range]").all()
    for slider, value in zip(inputs, values, strict=True):
        slider.evaluate(MOVE, value)
    rows = [row.locator("td").all_inner_texts() for row in page.locator("tbody tr").all()]
    return page.locator(".explore p[aria-live]").inner_text(), rows


def test_the_schedules_are_those_of_pytorch(show):
    page = show("04_warmup_cosine")
    for warmup, minimum, decay in ((10, 0.0, 20), (30, 0.25, 50)):
        sentence, rows = move(page, warmup, minimum, decay)
        optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        schedule = warmup_cosine(optimizer, 100, warmup_steps=warmup, min_lr=minimum)
        cosine = []
        for _ in range(100):
            cosine.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        stable = [min((s + 1) / (warmup + 1), 1, (100 - s) / decay) for s in range(100)]
        for step, *shown in rows:
            expected = (cosine[int(step)], stable[int(step)])
            assert list(map(float, shown)) == pytest.approx(expected, abs=6e-4)
        means = [int(x) for x in re.findall(r"(\d+) %", sentence)]
        assert means == pytest.approx([100 * np.mean(cosine), 100 * np.mean(stable)], abs=0.51)


def test_the_mixture_and_its_distribution_are_those_of_the_formula(show):
    page, data = show("05_mixup"), read_data("05_mixup")
    for lam, alpha in ((0.25, 0.1), (0.8, 1.0), (0.5, 2.4)):
        sentence, [shown] = move(page, lam, alpha)
        inside = np.diff(stats.beta(alpha, alpha).cdf([0.1, 0.9]))[0]
        [share] = re.findall(r"(\d+) % of λ", sentence)
        assert int(share) == pytest.approx(100 * inside, abs=0.51)
        assert [float(text.split(": ")[1]) for text in shown] == pytest.approx([lam, 1 - lam])
        mixed = page.evaluate(PIXEL, [COLUMN, ROW])
        place = 3 * (ROW * data["side"] + COLUMN)
        first, second = (np.array(data[x][place : place + 3]) for x in ("first", "second"))
        assert mixed[:3] == pytest.approx(lam * first + (1 - lam) * second, abs=1)


def test_the_saw_tooth_has_the_peak_of_the_chosen_number_of_segments(show):
    page = show("10_gradient_checkpointing")
    data = read_data("10_gradient_checkpointing")
    for place, trace in list(enumerate(data["traces"]))[1:]:
        sentence, rows = move(page, place)
        assert sentence.startswith(f"With {trace['segments']} segments the peak is ")
        assert float(rows[1][1]) == pytest.approx(max(y for _, y in trace["points"]), abs=0.006)
        assert float(rows[1][2]) == trace["points"][-1][0]


def test_the_verdict_of_the_first_seeds_is_that_of_the_course(show):
    page, data = show("00_start_here"), read_data("00_start_here")
    verdicts = set()
    for place, comparison in enumerate(data["comparisons"]):
        for seeds in (2, 3, 7, 10):
            sentence, [row] = move(page, place, seeds)
            chosen = comparison["differences"][:seeds]
            found = paired_difference(np.zeros(seeds), chosen)
            verdict = found.verdict(margin=1)
            verdicts.add(verdict)
            assert row[3].partition(" ")[0] == verdict
            numbers = re.findall(r"[+−][\d.]+", f"{row[1]} {row[2]}")
            shown = [float(x.replace("−", "-")) for x in numbers]
            assert shown == pytest.approx([found.mean, found.low, found.high], abs=0.006)
            assert sentence == f"{comparison['name']}: the first {seeds} seeds say: {row[3]}."
    assert verdicts == {"helps", "hurts", "equivalent", "inconclusive"}


def test_the_replay_shows_who_is_first(show):
    page, data = show("12_putting_it_together"), read_data("12_putting_it_together")
    end = max(rival["curve"][-1][0] for rival in data["rivals"])
    for now in (0, 100, round(end / 2), 5 * round(end / 5) + 5):
        sentence, rows = move(page, now)
        now = page.locator("input").evaluate("input => input.valueAsNumber")
        passed = {
            rival["label"]: [y for x, y in rival["curve"] if x <= now] for rival in data["rivals"]
        }
        for label, accuracy, ended in rows:
            assert accuracy == (f"{passed[label][-1]:.1f}" if passed[label] else "–")
            curve = next(x["curve"] for x in data["rivals"] if x["label"] == label)
            assert ended == ("has ended" if len(passed[label]) == len(curve) else "")
        best = max((values[-1] for values in passed.values() if values), default=None)
        assert (f"{best:.1f} %" if best else "Nobody") in sentence


def test_the_shares_under_a_loss_scale_are_those_of_fp16(show):
    page, data = show("07_mixed_precision"), read_data("07_mixed_precision")
    counts = np.array(data["counts"])
    middles = 2.0 ** (data["first"] + np.arange(len(counts)) + 0.5)
    for power in (0, 9, 16, 31):
        sentence, [row] = move(page, power)
        stored = torch.tensor(middles * 2.0**power).half()
        limits = torch.finfo(torch.float16)
        zero, infinite = stored == 0, stored.isinf()
        fading = ~zero & (stored < limits.smallest_normal)
        kinds = (zero, fading, ~(zero | fading | infinite), infinite)
        expected = [100 * counts[kind.numpy()].sum() / counts.sum() for kind in kinds]
        assert list(map(float, row)) == pytest.approx(expected, abs=0.051)
        assert f"{row[0]} % of the gradients become 0" in sentence


def test_the_calculator_shows_what_fits(show):
    page, data = show("20_sharding"), read_data("20_sharding")
    for model, count in ((3, 3), (5, 6), (5, 0), (0, 12)):
        sentence, rows = move(page, model, count)
        sums = np.sum(data["gb"][model][count], axis=1)
        assert [float(x) for x in rows[-1][1:]] == pytest.approx(list(sums), abs=0.06)
        pairs = zip(data["ways"], sums, strict=True)
        fitting = [way for way, size in pairs if size <= data["limit"]]
        assert (", ".join(fitting) or "nothing fits") in sentence
        assert sentence.startswith(f"{data['models'][model]} parameters on ")


def test_the_temperature_moves_the_calibration_error_of_the_course(show):
    page, data = show("06_label_smoothing"), read_data("06_label_smoothing")
    logits, targets = torch.tensor(data["logits"]) / 100, torch.tensor(data["targets"])
    for temperature in (0.4, 1.0, 2.15, 5.0):
        sentence, rows = move(page, temperature)
        for row, t in zip(rows, (1.0, data["fitted"], temperature), strict=True):
            error = calibration_error(logits.double() / t, targets)
            assert float(row[1]) == pytest.approx(100 * error, abs=0.06)
            confidence, answers = (logits.double() / t).softmax(dim=1).max(dim=1)
            accepted = answers[confidence >= 0.9] == targets[confidence >= 0.9]
            assert int(row[2]) == len(accepted)
            if len(accepted):
                assert float(row[3]) == pytest.approx(
                    100 * accepted.double().mean().item(), abs=0.051
                )
            else:
                assert row[3] == "–"
        right = (answers == targets).double().mean()
        assert f"the mean confidence is {100 * confidence.mean():.1f} %, and " in sentence
        assert f"{100 * right:.1f} % of the answers are right" in sentence
        assert f"The calibration error is {rows[2][1]} points" in sentence
        points = torch.bincount((15 * confidence).int()) >= 20
        assert page.locator("svg g circle").count() == points.sum()


def test_the_ring_adds_in_its_first_half_and_passes_sums_on_in_its_second(show):
    page = show("09_ddp")
    for ranks in (2, 4, 8):
        added = np.ones((ranks, ranks), dtype=int)  # in each part of each rank
        for step in range(2 * ranks - 1):
            if step:  # each rank got a part from the one before it
                parts = [(rank - step) % ranks for rank in range(ranks)]
                sent = [added[rank - 1, part] for rank, part in enumerate(parts)]
                added[range(ranks), parts] = np.minimum(np.array(sent) + 1, ranks)
            sentence, rows = move(page, ranks, step)
            complete = max(0, step - ranks + 2)
            sent = [f"{step}/{ranks}", f"{2 * ranks - 2}/{ranks}"]
            assert [row[1] for row in rows] == [f"{complete}", *sent]
            assert sentence.startswith(f"After step {step} of {2 * ranks - 2} ")
            words = page.locator("svg g text").all_text_contents()
            arrived = f"→ {min(step + 1, ranks)}"
            assert [word for word in words if "→" in word] == [arrived] * (ranks if step else 0)
            assert [int(word.strip("→ ")) for word in words] == added.flatten().tolist()
    assert move(page, 2, 14)[0].startswith("After step 2 of 2 ")
    assert page.locator("output").last.inner_text() == "2"


def test_the_loader_takes_the_time_of_the_formula(show):
    page = show("11_dali")
    cases = {  # workers, to prepare, step: time of 12 batches in ms
        (0, 6, 4): 12 * (6 + 4),
        (1, 6, 4): 12 * 6 + 4,
        (2, 6, 4): 6 + 12 * 4,
        (1, 30, 1): 12 * 30 + 1,
        (3, 30, 2): 4 * 30 + 3 * 2,
        (4, 8, 10): 8 + 12 * 10,
    }
    for (workers, prepare, step), total in cases.items():
        sentence, rows = move(page, workers, prepare, step)
        assert [float(row[1]) for row in rows[:2]] == [prepare, total]
        of_batch = max(prepare / workers, step) if workers else prepare + step
        assert float(rows[2][1]) == pytest.approx(of_batch, abs=0.051)
        stall = f"a data stall of {100 * (1 - step / of_batch):.0f} %"
        assert (stall if of_batch > step else "waits only for the first batch") in sentence
        boxes = page.locator("svg g rect").evaluate_all(BOXES)
        assert len(boxes) == 24
        assert min(width for _, width, _ in boxes) > 0
    move(page, 1, 1, 10)  # the worker is two batches ahead, and waits
    boxes = page.locator("svg g rect").evaluate_all(BOXES)
    places = [x for x, _, colour in boxes if colour == boxes[0][2]]
    ends = [x for x, _, colour in boxes if colour != boxes[0][2]]
    unit = (ends[1] - ends[0]) / 10  # pixels of a ms
    begun = [(x - places[0]) / unit for x in places]
    assert begun == pytest.approx([0, 1, 2, *range(11, 92, 10)], abs=0.1)


def test_the_pipelines_have_the_bubble_of_the_simulation(show):
    page = show("20_sharding", 1)
    for name, stages, batches in (("AFAB", 4, 8), ("1F1B", 4, 8), ("1F1B", 7, 3), ("AFAB", 2, 1)):
        sentence, rows = move(page, ["AFAB", "1F1B"].index(name), stages, batches)
        orders = pipeline.make_orders(name, stages, batches)
        works = pipeline.simulate_pipeline(orders, [1.0] * stages, [2.0] * stages)
        stored = pipeline.count_stored(works)
        assert [int(row[1]) for row in rows] == stored
        shares = [100 * n / batches for n in stored]
        assert [int(row[2]) for row in rows] == pytest.approx(shares, abs=0.51)
        assert f"the bubble is {100 * pipeline.find_bubble(works):.0f} %" in sentence
        widths = page.locator("svg g rect").evaluate_all(
            "all => all.map(x => x.width.baseVal.value)"
        )
        assert len(widths) == len(works)
        assert max(widths) / min(widths) == pytest.approx(2, rel=0.1)  # but for the gaps
