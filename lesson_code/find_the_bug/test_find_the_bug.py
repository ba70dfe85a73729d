"""Lesson 90: its measurements by hand, its starts, and its sentences against the stored curves."""

import math
import re
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_tools.study.lesson_code import read_definitions
from course_utils.measure.paired import paired_difference
from course_utils.models.text_small import PADDING
from course_utils.results import STUDIES, read_file
from lesson_code.find_the_bug import bench, drawing, study, study_cases
from lesson_code.find_the_bug.checks import read_script
from lesson_code.find_the_bug.language import next_token_loss
from lesson_code.find_the_bug.notes import Budget, watch
from tests.places import ROOT

NUMBERS = ["none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
MARGIN = 0.05


@pytest.fixture(scope="module")
def notebook():
    return nbformat.read(ROOT / "notebooks" / "90_find_the_bug.ipynb", as_version=4)


@pytest.fixture(scope="module")
def lesson():
    """The functions of the notebook, without its trainings."""
    return read_definitions("90_find_the_bug")


@pytest.fixture
def photos():
    """Four photographs of two pixels, in place of a bench."""
    images = torch.arange(8.0).view(4, 2)
    numbers = {tuple(image.tolist()): n for n, image in enumerate(images)}
    number_of = lambda batch: [numbers[tuple(image.tolist())] for image in batch]  # noqa: E731
    classes = torch.tensor([5, 6, 7, 8])
    return SimpleNamespace(images=images, number_of=number_of, classes=classes)


# ---- Measurements.


def test_data_measurements_count_photographs(lesson):
    notes = SimpleNamespace(
        trained=[0, 2, 2, 1],
        validated=[1, 3],
        targets=[torch.tensor([5, 7]), torch.tensor([7, 0])],
        classes=torch.tensor([5, 6, 7, 8]),
        available=4,
    )
    assert lesson["coverage"](notes) == 3 / 4
    assert lesson["target_agreement"](notes) == 3 / 4  # the last one is of class 6
    assert lesson["overlap"](notes) == 1
    notes.validated = [3]
    assert lesson["overlap"](notes) == 0


def test_measurements_of_losses_and_learning_rates(lesson):
    notes = SimpleNamespace(losses=[2.0] * 10 + [1.0] * 10, lrs=[0.1, 0.2])
    assert lesson["first_loss"](notes) == 2
    assert lesson["loss_ratio"](notes) == 0.5
    assert lesson["last_learning_rate"](notes) == 0.2
    notes.lrs = []
    assert math.isnan(lesson["last_learning_rate"](notes))


def test_only_frozen_parts_count_as_moved(lesson):
    model = nn.Sequential(nn.BatchNorm1d(2).requires_grad_(False), nn.BatchNorm1d(2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    notes = SimpleNamespace(model=model, before=before)
    model.eval()(torch.randn(4, 2))
    assert lesson["changed_entries"](notes) == 0
    model.train()(torch.randn(4, 2))
    assert lesson["changed_entries"](notes) == 3  # running mean, variance, and the batches' number
    notes.model = None  # a search that makes its own models
    assert lesson["changed_entries"](notes) == 0


def test_watch_notes_each_batch_once_and_ends(photos):
    plain = F.cross_entropy
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 3)))
    with watch(model, photos) as notes:
        F.cross_entropy(model(photos.images), torch.tensor([0, 1, 2, 0])).backward()
        with torch.no_grad():
            model(photos.images[:1])
    assert notes.trained == [0, 1, 2, 3]
    assert notes.validated == [0]
    assert len(notes.losses) == len(notes.targets) == 1
    assert F.cross_entropy is plain
    model(photos.images)
    assert notes.trained == [0, 1, 2, 3]


def test_a_script_has_three_measurements(photos, capsys):
    def script(model, batches):
        F.cross_entropy(model(batches), torch.tensor([0, 1, 2, 0]))

    def start(seed):
        return bench.Start(nn.Linear(2, 3), (nn.Linear(2, 3), photos.images), 1)

    take_one = Budget(photos, 0, 3)
    for number in (1, 2, 3, 1, 4):

        def measurement(notes, number=number):
            return len(notes.trained) + number

        measurement.__name__ = f"m{number}"
        take_one(script, start, measurement)
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines == ["m1: 5", "m2: 6", "m3: 7", "m1: 5"]
    assert last == "the budget of 3 is used: think about m1, m2, m3"


# ---- Scripts on text.


def test_the_librarys_loss_shifts_once_and_ignores_padding():
    tokens = torch.tensor([[7, 8, 9, 2], [5, 2, PADDING, PADDING]])
    logits = torch.randn(2, 4, 10, generator=torch.Generator().manual_seed(0))
    log_p = logits.log_softmax(dim=-1)
    pairs = [(0, 0, 8), (0, 1, 9), (0, 2, 2), (1, 0, 2)]
    expected = -sum(log_p[pair] for pair in pairs) / len(pairs)
    torch.testing.assert_close(next_token_loss(logits, tokens), expected)


def test_texts_and_networks_are_the_same_for_a_seed():
    made = study.make_bench()
    assert len(made.shuffle_texts(3)) == bench.MOST_TEXTS // bench.TEXTS
    one, two, other = (made.start_noor(seed) for seed in (1, 1, 2))
    assert all(map(torch.equal, one.arguments[1], two.arguments[1]))
    assert not torch.equal(one.arguments[1][0], other.arguments[1][0])
    weights = [nn.utils.parameters_to_vector(x.model.parameters()) for x in (one, two, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    dropouts = [m for m in made.make_adapted(0).modules() if isinstance(m, nn.Dropout)]
    assert {dropout.p for dropout in dropouts} == {0.3}
    assert set(made.starts) == set(study.PAIRS)


def test_the_study_finds_every_script_and_correction():
    functions = study.read_functions()
    assert all(callable(functions[name]) for pair in study.PAIRS.values() for name in pair)


# ---- Case files: what their script does.


def test_ranks_with_the_same_seed_draw_the_same_texts():
    texts = [np.arange(3, 3 + n % 5 + 2) for n in range(50)]
    same, own = (study_cases.run_ranks(texts, texts, x, 1e-3, 0, 2) for x in (True, False))
    assert all(len(set(losses)) == 1 for losses in same["losses"])
    assert all(len(set(losses)) == 4 for losses in own["losses"])
    assert same["mean_norm"] == pytest.approx([norms[0] for norms in same["norms"]], rel=1e-5)
    assert own["mean_norm"][0] < max(own["norms"][0])
    assert study_cases.run_ranks(texts, texts, True, 1e-3, 0, 2, repeat=True) == same


def test_a_job_reads_on_or_from_the_beginning():
    texts = [np.arange(3, 3 + n % 5 + 2) for n in range(200)]
    runs = {
        fault: study_cases.run_jobs(texts, texts[:4], fault, 0, 2, jobs=2)
        for fault in (None, "data", "state")
    }
    assert runs["data"]["seen"] == [0, 0, 1, 1]
    assert runs[None]["seen"] == runs["state"]["seen"] == [0] * 4
    assert runs["data"]["lr"] == runs[None]["lr"] == runs["state"]["lr"]
    assert runs["data"]["losses"][:2] == runs[None]["losses"][:2]
    assert runs["state"]["moved"][2] > runs[None]["moved"][2]


def test_a_shuffle_buffer_mixes_neighbours_only():
    drawn = list(study_cases.draw_from_buffer(range(300), np.random.default_rng(0)))
    assert sorted(drawn) == list(range(300)) != drawn
    assert all(number - place <= study_cases.BUFFER for place, number in enumerate(drawn))


# ---- Sentences of the notebook, built again from what is stored.


def read_cases():
    return read_file(STUDIES / "find_the_bug/study_cases.json")["cases"]


def read_curves():
    return read_file(STUDIES / "find_the_bug/study.json")["curves"]


def compare_ends(runs, row):
    """The end of a curve, faulty minus corrected."""
    return paired_difference([run[1][row][-1] for run in runs], [run[0][row][-1] for run in runs])


def sort_scripts():
    """The names of the scripts that train, by what their fault does to the training loss."""
    found: dict[str, list[str]] = {"hurts": [], "helps": [], "equivalent": [], "inconclusive": []}
    for name, runs in read_curves().items():
        if runs[0][0][0]:
            word = compare_ends(runs, 0).verdict(more_is_better=False, margin=MARGIN)
            found[word].append(name.split()[1])
    return found


def list_names(names):
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def write_sentences():
    """Parts of the text, by where they stand."""
    cases, kinds = read_cases(), sort_scripts()
    ranks, resume, stream = cases["ranks"], cases["resume"], cases["stream"]
    count = {word: NUMBERS[len(names)] for word, names in kinds.items()}
    gaps = [compare_ends(runs, 0).mean for runs in read_curves().values() if runs[0][0][0]]
    first = (
        f"In {count['hurts']} of the eleven scripts the faulty training loss ends clearly higher, "
        f"by up to {max(gaps):.1f} nats, although one interval only just excludes 0. "
        f"In {count['helps']} it ends clearly *lower*, by up to {-min(gaps):.1f} nats, "
        f"so that the faulty script looks better than the corrected one. "
        f"In {count['equivalent']} the whole interval lies within ±0.05."
    )
    best = {name: min(loss for _, loss in sweep) for name, sweep in ranks["sweep"].items()}
    ends = {name: np.mean(values) for name, values in ranks["ends"].items()}
    job, earlier = "the same seed", "a seed for each rank"
    gap = {name: measure_gap(run) for name, run in ranks["curves"].items()}
    case1 = (
        "B falls with curve 1: at the end the validation loss is "
        f"{gap[job]:.2f} above the training loss in the job and {gap[earlier]:.2f} in the earlier "
        "one, and memorising would widen this gap in the job. A falls with curve 2: the best of "
        f"three learning rates brings the job to {best[job]:.2f}, and the earlier one to "
        f"{best[earlier]:.2f}. C falls with curve 3, because the mean has the norm of each of the "
        "four gradients, and with one of them missing it would be a quarter shorter. There is "
        "more in it: the norms were taken before the all-reduce, and the mean is as long as each "
        "of the four only if the gradients are the same, as they are for the same texts. "
        "D is left. Every device draws its texts with the same seed, so "
        "of the 32 texts of a step only eight are different. With a seed of its own for each "
        f"device, the validation loss ends at {ends[earlier]:.2f} instead of "
        f"{ends[job]:.2f} (means over three seeds). Weights need the same seed on all "
        "devices, and random texts need one that depends on the rank, as in "
        '<a href="https://github.com/karpathy/nanoGPT/blob/master/train.py">nanoGPT</a>. A '
        "<code>DistributedSampler</code> shares out one order, for which all ranks need the same "
        'seed again. See <a href="09_ddp.ipynb">lesson 09</a>.'
    )
    faulty, right = "texts from the beginning", "texts go on"
    train = {name: np.mean(values) for name, values in resume["train_ends"].items()}
    val = {name: np.mean(values) for name, values in resume["ends"].items()}
    case2 = (
        "A and B fall with curve 2. The learning rate follows one cosine through all jobs, and no "
        "step after a restart is longer than the one before, whereas in the run that has lost "
        f"AdamW's state it is {measure_jump():.0f} times as long. C falls with curve 3: if "
        "validation texts were trained on, the validation loss would fall with the training "
        "loss, and it does the opposite. D is left, and the right panel measures it: from the "
        "second job on, all texts "
        "of a batch have been seen before. The checkpoint holds everything but the place in the "
        f"data. Over three seeds, the training loss of the last job is {train[faulty]:.2f} instead "
        f"of {train[right]:.2f}, and the validation loss ends at {val[faulty]:.2f} instead of "
        f"{val[right]:.2f}. Store the place, too, for instance with <code>StatefulDataLoader</code>"
        " of torchdata, or leave out what was read, with <code>skip_first_batches</code> of "
        "accelerate."
    )
    share = {name: 100 * np.mean(values) for name, values in stream["ends"].items()}
    top = 100 * np.median(read_best())
    case3 = (
        "B falls with curve 1: there are about ten peaks in an epoch, at equal distances, and one "
        "damaged batch would make one. A falls with curve 2: if the learning rate were the cause, "
        "a tenth of it should give a loss that falls. The peaks go, as A predicts. But for most "
        "of the first epoch the loss is higher than that of guessing, it climbs, and it drops at "
        "the boundary. So the learning rate sets the size of the peaks and is not the whole cause. "
        "D falls with curve 3: while a kind is read, the network "
        f"recognises up to {top:.0f} % of its validation texts (median of the kinds), so its "
        "labels can be learned, and it forgets them soon after. C is left, because the rows light "
        "up one after the other. The ten kinds stand in ten files, and the loader shuffles through "
        f"a buffer of {study_cases.BUFFER} texts, whereas a file has {study_cases.KIND_TEXTS}. So "
        "most batches hold one or two kinds. Shuffled as a whole, the same texts lead to an "
        f"accuracy of {share['all shuffled']:.0f} % instead of {share['files one by one']:.0f} % "
        "(means over three seeds). Store the texts in a random order, read many files at once, or "
        "take a buffer that is larger than a file."
    )
    clear = [name for name in kinds["hurts"] if name != "Dana"]
    dana = compare_ends(read_curves()["7 Dana"], 0)
    verdict = (
        f"The training loss ends clearly higher for {list_names(clear)}, borderline for Dana "
        f"({dana.mean:+.2f}, with an interval from {dana.low:+.3f}), and clearly "
        f"lower for {list_names(kinds['helps'])}. It is equivalent, within ±0.05, for "
        f"{list_names(kinds['equivalent'])}. So the first thing that everybody looks at tells "
        f"{count['hurts']} of eleven faults, and only beside the corrected twin, which a project "
        "does not have. Of the reported numbers "
        f"{NUMBERS[count_open_reports()]} are inconclusive even over ten seeds. Noor's fault "
        "even lowers the validation loss of real tokens, and both of her trainings overfit. The "
        "measurements of the table below need no second training, because the right value is known "
        "beforehand."
    )
    if kinds["inconclusive"]:
        undecided = list_names(kinds["inconclusive"])
        first += f" For {count['inconclusive']} script the ten seeds do not decide."
        verdict += f" Ten seeds do not decide the loss of {undecided}, and its measurement does."
    olu, hugo = read_curves()["3 Olu"], read_curves()["10 Hugo"]
    twice, once = (np.mean([pair[n][0][-1] for pair in olu]) for n in (0, 1))
    half = f"{compare_ends(hugo, 1).mean:.2f}".replace("-", "−")
    return {
        "olu": f"In the study the training loss ends at {twice:.2f} instead of {once:.2f}.",
        "hugo": f"The study's {half} points of accuracy are the price of half the data",
        "first": first,
        "case1": case1,
        "case2": case2,
        "case3": case3,
        "verdict": verdict,
        "uma": f"{100 * stream['curves']['files one by one']['end']:.0f}",
    }


def count_open_reports():
    """How many authors report a number that ten seeds cannot tell from the right one."""
    words = []
    for name, runs in read_curves().items():
        is_loss = name.split()[0] in drawing.REPORT_LOSS
        found = compare_ends(runs, 1)
        words.append(found.verdict(not is_loss, MARGIN if is_loss else 1))
    return words.count("inconclusive")


def measure_gap(run):
    """Validation loss at the end minus the mean training loss of the last ten steps."""
    return run["val"][-1][1] - np.mean(run["losses"][-10:])


def measure_jump():
    """How much longer the step after a restart is than the one before, without AdamW's state."""
    resume = read_cases()["resume"]
    moved, steps = resume["curves"]["AdamW's state is lost"]["moved"], resume["job_steps"]
    return np.median([moved[job * steps] / moved[job * steps - 1] for job in (1, 2, 3)])


def read_best():
    """The highest accuracy of each kind in Uma's run (10,)."""
    rows = np.array(read_cases()["stream"]["curves"]["files one by one"]["accuracy"])
    return rows[:, 1:].max(axis=0)


def test_the_text_says_what_is_stored(notebook):
    text = "\n".join(cell.source for cell in notebook.cells)
    for place, sentences in write_sentences().items():
        assert sentences in text, place


def test_one_interval_only_just_excludes_0():
    found = [compare_ends(runs, 0) for runs in read_curves().values() if runs[0][0][0]]
    lows = sorted(gap.low for gap in found if gap.low > 0)
    assert lows[0] < 0.01 < 0.1 < lows[2]


def test_the_text_has_the_accuracies_of_pias_table(notebook):
    (cell,) = [cell for cell in notebook.cells if cell.id == "pia-table"]
    *five, merged = map(float, re.findall(r"\d+\.\d", cell.outputs[0]["data"]["text/plain"]))
    assert len(five) == 5
    expected = f"the five have {np.mean(five):.1f} % on average and the merged network has {merged}"
    assert expected in "\n".join(cell.source for cell in notebook.cells)


def test_case_1_is_as_the_text_says():
    ranks = read_cases()["ranks"]
    (job, earlier), (sweep, other) = ranks["curves"].values(), ranks["sweep"].values()
    assert all(one[1] > two[1] for one, two in zip(sweep, other, strict=True))
    assert np.ptp(job["norms"], axis=1).max() == 0
    assert np.ptp(earlier["norms"], axis=1).min() > 0
    assert job["mean_norm"] == pytest.approx([norms[0] for norms in job["norms"]], rel=1e-3)
    assert measure_gap(job) == pytest.approx(measure_gap(earlier), abs=0.05)


def test_case_2_is_as_the_text_says():
    resume = read_cases()["resume"]
    timo, whole, lost = resume["curves"].values()
    assert timo["lr"] == whole["lr"] == lost["lr"]
    for step in resume["job_steps"] * np.arange(1, 4):
        assert timo["moved"][step] < timo["moved"][step - 1]
        assert np.mean(timo["losses"][step : step + 5]) < np.mean(timo["losses"][step - 5 : step])
    assert set(timo["seen"][resume["job_steps"] :]) == {1}
    assert set(whole["seen"]) == {0}
    assert timo["val"][-1][1] > whole["val"][-1][1]


def test_case_3_is_as_the_text_says():
    stream = read_cases()["stream"]
    uma = np.array(stream["curves"]["files one by one"]["losses"])
    for epoch in uma.reshape(stream["epochs"], -1):
        peaks = [max(part) for part in np.array_split(epoch[3:], 9)]
        assert min(peaks) > 1.5, "a peak in every ninth of an epoch"
    assert min(uma) < 0.1
    (lr, high), (lower, low) = stream["sweep"]
    assert lower == pytest.approx(lr / 10)
    count = stream["epoch_steps"]
    first, second = low[:count], low[count:]
    assert np.mean(first[-10:]) > np.mean(first[:10]) + 0.5, "the loss rises through epoch 1"
    assert np.mean(second[:5]) < np.mean(first[-5:]) - 0.5, "and drops as the next one begins"
    assert np.mean(np.array(first) > math.log(10)) > 0.75, "for most of it, guessing is better"
    assert np.ptp(low) < np.ptp(high) / 2, "the peaks go"


def test_stored_curves_are_those_of_the_scripts():
    stored = read_file(STUDIES / "find_the_bug/study.json")
    assert stored["seeds"] == list(study.SEEDS)
    assert list(stored["curves"]) == list(study.PAIRS)
    for name, runs in stored["curves"].items():
        assert len(runs) == len(stored["seeds"]), name
        for faulty, corrected in runs:
            assert [len(curve) for curve in faulty] == [len(curve) for curve in corrected], name
            assert bool(faulty[0]) == (name not in ("5 Ben", "13 Jun"))


def test_noors_fault_lowers_the_validation_loss_of_trainings_that_overfit():
    runs = read_curves()["2 Noor"]
    assert compare_ends(runs, 1).high < 0
    for pair in runs:
        assert all(run[1][-1] > min(run[1]) + 0.1 for run in pair)


def test_the_first_figure_is_of_what_the_question_counts(notebook):
    (source,) = [cell.source for cell in notebook.cells if cell.id == "bug-002"]
    assert "eleven" in source.lower()
    assert len([runs for runs in read_curves().values() if runs[0][0][0]]) == 11


def test_the_long_script_is_as_long_as_the_issue_says():
    assert 70 <= len(read_script().splitlines()) <= 80
