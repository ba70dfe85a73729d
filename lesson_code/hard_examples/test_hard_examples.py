"""What lesson 17 plants and finds, and what it says of its study is what the study found."""

import json
import re
from functools import partial

import nbformat
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from course_tools.run.lessons import NOTEBOOKS
from course_tools.study.lesson_code import read_definitions
from course_utils.config import load_config
from course_utils.data.glosses import read_split
from course_utils.measure.paired import PairedDifference, paired_difference
from course_utils.results import STUDIES
from course_utils.study_results import read_study
from course_utils.training.fit import fit
from lesson_code.hard_examples import planted_labels
from lesson_code.hard_examples.planted_labels import (
    ClassLoss,
    Hunt,
    LogFound,
    SelectSmallest,
    extract_features,
    find_suspects,
    load,
    load_noisy,
    load_rare,
    make_head,
    read_features,
    search_suspects,
    spoil_labels,
    thin_out,
)

SHAPES = load_config("smoke", dataset="shapes").replace(num_train=120, num_val=60, batch_size=20)
GLOSSES = load_config("smoke", dataset="glosses").replace(
    num_train=80, num_val=60, batch_size=20, model="text_small"
)


def train(load_batches, *callbacks, config=SHAPES):
    trainer = {"callbacks": list(callbacks), "max_epochs": 2, "check_val_every_n_epoch": 2}
    return fit(
        config,
        load(config),
        model=partial(make_head, name=config.model, width=8),
        make_loader=load_batches,
        trainer=trainer,
        save=False,
    )


@pytest.fixture(scope="module")
def lesson():
    """The functions and classes of the notebook, without its trainings."""
    return read_definitions("17_hard_examples")


# ---- The features.


@pytest.mark.parametrize("config", [SHAPES, GLOSSES])
def test_a_head_answers_to_inputs_as_to_their_features(config):
    data, features = load(config), read_features(config)
    assert features.shape[0] == len(data.train)
    assert not features.requires_grad
    inputs, targets = next(iter(data.eval_loader(data.train)))
    head = make_head(data.num_classes, name=config.model)
    torch.testing.assert_close(head(inputs), head(features[: len(targets)]))
    assert extract_features(config.model, inputs) is extract_features(config.model, inputs.clone())


# ---- What is planted.


@pytest.mark.parametrize("config", [SHAPES, GLOSSES])
def test_so_many_labels_are_wrong_and_the_seed_decides_which(config):
    data = load(config)
    labels, wrong = spoil_labels(data, 0.25, seed=3)
    assert wrong.sum() == round(0.25 * len(data.train))
    np.testing.assert_array_equal(wrong, labels != data.train.targets)
    again, other = (spoil_labels(data, 0.25, seed)[1] for seed in (3, 4))
    assert (again == wrong).all()
    assert (other != wrong).any()
    assert not spoil_labels(data, 0.0, seed=3)[1].any()


def test_the_seed_decides_which_classes_are_rare():
    config = SHAPES.replace(num_train=200)
    data = load(config)
    sizes = [np.bincount(data.train.targets[thin_out(data, 0.1, seed)]) for seed in (0, 1)]
    most = np.bincount(data.train.targets).min()
    for found in sizes:
        assert found.max() == most
        assert found.min() == max(2, round(0.1 * most))
    assert sizes[0].tolist() != sizes[1].tolist()
    batches = load_rare(data, 0, config=config, ratio=0.1)
    np.testing.assert_array_equal(batches.counts, sizes[0])
    drawn = torch.cat([y for _ in range(20) for _, y in batches]).numpy()
    even = load_rare(data, 0, config=config, ratio=0.1, balanced=True)
    evenly = torch.cat([y for _ in range(20) for _, y in even]).numpy()
    expected = sizes[0] / sizes[0].sum()
    np.testing.assert_allclose(np.bincount(drawn) / len(drawn), expected, atol=0.05)
    np.testing.assert_allclose(np.bincount(evenly) / len(evenly), 1 / len(expected), atol=0.07)


# ---- What is found.


def test_suspects_are_those_of_cleanlab(lesson):
    stored = json.loads((STUDIES / "hard_examples/cleanlab_reference.json").read_text())
    for case in stored["cases"]:
        labels, probabilities = np.array(case["labels"]), np.array(case["probabilities"])
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        for find in (find_suspects, lesson["find_label_suspects"]):
            found = np.flatnonzero(find(labels, probabilities))
            assert found.tolist() == case["confident_learning"]


def test_each_fix_does_what_its_name_says(monkeypatch):
    data, right = load(SHAPES), load(SHAPES).train.targets
    labels, wrong = spoil_labels(data, 0.25, seed=0)
    suspects = wrong.copy()
    suspects[np.flatnonzero(~wrong)[:5]] = True
    predicted = (right + 1) % data.num_classes
    search = planted_labels.Suspects(labels, wrong, suspects, predicted, wrong, {"a": 1.0})
    monkeypatch.setattr(planted_labels, "search_suspects", lambda *_: search)

    def read(fix):
        return load_noisy(data, 0, hunt=Hunt(SHAPES), share=0.25, fix=fix)

    np.testing.assert_array_equal(read("keep").targets, labels)
    np.testing.assert_array_equal(read("right labels").targets, right)
    np.testing.assert_array_equal(read("drop the wrong").targets, right[~wrong])
    dropped = read("drop suspects")
    np.testing.assert_array_equal(dropped.targets, right[~suspects])
    torch.testing.assert_close(dropped.features, read_features(SHAPES)[torch.tensor(~suspects)])
    assert dropped.found == {"a": 1.0}
    expected = np.where(suspects, predicted, right)
    np.testing.assert_array_equal(read("relabel suspects").targets, expected)
    assert len(read("drop at random").targets) == (~suspects).sum()


def test_a_search_is_scored_and_changes_nothing_of_the_training():
    hunt = Hunt(GLOSSES, folds=2, epochs=1)
    load_batches = partial(load_noisy, hunt=hunt, share=0.25)

    def search_and_keep(data, seed):
        search_suspects(hunt, 0.25, seed)
        return load_batches(data, seed)

    plain, searched = (train(x, config=GLOSSES) for x in (load_batches, search_and_keep))
    torch.testing.assert_close(
        searched.model.state_dict(), plain.model.state_dict(), rtol=0, atol=0
    )
    dropped = train(partial(load_batches, fix="drop suspects"), LogFound(), config=GLOSSES)
    search = search_suspects(hunt, 0.25, 0)
    found = {name: dropped.metrics[name] for name in search.scores}
    assert found == pytest.approx(search.scores, abs=1e-6)
    assert found["precision"] == pytest.approx(search.wrong[search.suspects].mean(), abs=1e-6)


# ---- What the losses do.


def test_the_kept_share_falls_during_the_warm_up():
    shares = []

    class Watch(SelectSmallest):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
            shares.append(pl_module.loss.keywords["share"])

    keep = partial(load_noisy, hunt=Hunt(SHAPES), share=0.0)
    train(keep, Watch(share=0.8, warmup=0.5))  # twelve steps
    np.testing.assert_allclose(shares[:7], [1 - 0.2 * step / 6 for step in range(7)])
    assert shares[7:] == [0.8] * 5
    shares.clear()
    train(keep, Watch(share=0.8, warmup=0.0))
    assert shares == [0.8] * 12


def test_losses_know_the_classes_and_accuracies_are_by_class(lesson):
    config = SHAPES.replace(num_train=200)
    data, load_batches = load(config), partial(load_rare, config=config, ratio=0.1)
    counts = torch.bincount(torch.as_tensor(data.train.targets[thin_out(data, 0.1, 0)]))
    targets = torch.as_tensor(data.val.targets)
    for kind in ("mean", "class weights", "logit adjustment"):
        run = train(load_batches, ClassLoss(kind), config=config)
        shares = run.callback(ClassLoss).shares
        logits = torch.cat([run.model(x) for x, _ in data.eval_loader()]).detach()
        torch.testing.assert_close(shares, counts / counts.sum())
        adjusted = (logits - shares.log()).argmax(dim=1) == targets
        assert run.metrics["adjusted"] == pytest.approx(adjusted.float().mean().item(), abs=1e-5)
        rare = torch.isin(targets, counts.argsort(stable=True)[:3])
        expected = (logits.argmax(dim=1) == targets)[rare].float().mean().item()
        assert run.metrics["rare"] == pytest.approx(expected, abs=1e-5)
    found = [
        adjust(logits, targets, shares)
        for adjust in (planted_labels.adjust_logits, lesson["adjusted_loss"])
    ]
    torch.testing.assert_close(*found)
    assert found[0] > F.cross_entropy(logits, targets)  # validation has other shares


# ---- The text of the lesson against the study that it reads.

TEXTS, BRIEF, PHOTOS, CLEAN, RARE = (
    "definitions, memorised",
    "definitions, brief",
    "photographs, memorised",
    "definitions, none wrong",
    "rare classes",
)


def read(regime, variant, metric="val_accuracy"):
    """The metric at each seed, in percent."""
    return 100 * read_study("hard_examples").values(regime, variant, metric)


def judge(regime, variant, baseline="keep") -> PairedDifference:
    """What a variant gains, in points."""
    return paired_difference(read(regime, baseline), read(regime, variant))


def write(found: PairedDifference, sign: str = "") -> str:
    """The mean with its interval."""
    return f"{found.mean:{sign}.1f} points ({found.low:{sign}.1f} to {found.high:{sign}.1f})"


def score(regime, metric) -> str:
    """A score of the search for suspects, in percent, on the mean of the seeds."""
    return f"{read(regime, 'drop suspects', metric).mean():.0f} %"


def find_differences() -> dict[str, PairedDifference]:
    """What the lesson speaks about, by a name each."""
    keep = read(TEXTS, "keep")
    return {
        "drop": judge(TEXTS, "drop suspects"),
        "random": judge(TEXTS, "drop at random"),
        "relabel": judge(TEXTS, "relabel suspects"),
        "relabel against drop": judge(TEXTS, "relabel suspects", "drop suspects"),
        "oracle": judge(TEXTS, "drop the wrong"),
        "right": judge(TEXTS, "right labels"),
        "brief drop": judge(BRIEF, "drop suspects"),
        "brief relabel": judge(BRIEF, "relabel suspects"),
        "brief oracle": judge(BRIEF, "drop the wrong"),
        "shorter": paired_difference(keep, read(BRIEF, "keep")),
        "drop against shorter": paired_difference(
            read(BRIEF, "keep"), read(TEXTS, "drop suspects")
        ),
        "photo drop": judge(PHOTOS, "drop suspects"),
        "photo relabel": judge(PHOTOS, "relabel suspects"),
        "photo relabel against drop": judge(PHOTOS, "relabel suspects", "drop suspects"),
        "photo oracle": judge(PHOTOS, "drop the wrong"),
        "hardest": judge(TEXTS, "hardest half"),
        "at once": judge(TEXTS, "smallest at once"),
        "warm-up": judge(TEXTS, "smallest after warmup"),
        "warm-up against at once": judge(TEXTS, "smallest after warmup", "smallest at once"),
        "warm-up against drop": judge(TEXTS, "smallest after warmup", "drop suspects"),
        "clean drop": judge(CLEAN, "drop suspects"),
        "clean hardest": judge(CLEAN, "hardest half"),
        "clean warm-up": judge(CLEAN, "smallest after warmup"),
        "focal": judge(RARE, "focal loss", "mean"),
        "sampling": judge(RARE, "class-balanced sampling", "mean"),
        "weights": judge(RARE, "class weights", "mean"),
        "adjustment": judge(RARE, "logit adjustment", "mean"),
        "adjustment against weights": judge(RARE, "logit adjustment", "class weights"),
        "at prediction": paired_difference(read(RARE, "mean"), read(RARE, "mean", "adjusted")),
        "in training against at prediction": paired_difference(
            read(RARE, "mean", "adjusted"), read(RARE, "logit adjustment")
        ),
    }


SAID = {  # cell: its numbers; m: a mean, v: a verdict, + with signs, s: a score, r: of rare classes
    "first-read-md": [
        "drop",
        "relabel",
        "oracle",
        "+random",
        "+brief drop",
        "v:brief drop",
        "m:shorter",
        "adjustment",
        "+focal",
        "v:focal",
    ],
    "retrain-md": [
        "s:TEXTS:recall",
        "s:TEXTS:precision",
        "s:TEXTS:relabelled_right",
        "s:CLEAN:suspects",
    ],
    "retrain-read": [
        "photo drop",
        "s:PHOTOS:suspects",
        "+photo relabel against drop",
        "photo oracle",
        "photo relabel",
    ],
    "select-read": [
        "warm-up",
        "+at once",
        "v:at once",
        "warm-up against at once",
        "v:hardest",
        "v:clean warm-up",
        "v:clean drop",
    ],
    "rare-read": [
        "r:mean:rare",
        "r:mean:frequent",
        "r:logit adjustment:rare",
        "r:logit adjustment:frequent",
        "adjustment against weights",
    ],
    "verdict-card": [
        "m:drop",
        "m:oracle",
        "s:TEXTS:precision",
        "m:relabel",
        "+relabel against drop",
        "shorter",
        "v:brief drop",
        "m:brief drop",
        "m:adjustment",
        "r:mean:frequent",
        "r:logit adjustment:frequent",
    ],
    "prior-md": ["+at prediction"],
    "prior-read": ["+in training against at prediction", "v:in training against at prediction"],
    "recap": ["m:drop", "m:oracle", "m:shorter", "m:adjustment"],
}


def write_number(key: str) -> str:
    """What a cell of the lesson says, by its key in `SAID`."""
    kind, _, name = key.partition(":")
    if kind == "s":
        regime, metric = name.split(":")
        return score({"TEXTS": TEXTS, "PHOTOS": PHOTOS, "CLEAN": CLEAN}[regime], metric)
    if kind == "r":
        variant, metric = name.split(":")
        return f"{read(RARE, variant, metric).mean():.0f}"
    found = find_differences()[(name or key).removeprefix("+")]
    if kind == "v":
        return f"*{found.verdict(margin=1)}*"
    return f"{found.mean:.1f}" if kind == "m" else write(found, "+" if key[0] == "+" else "")


@pytest.fixture(scope="module")
def read_text():
    """The source of a cell of the notebook, by its id, in one line."""
    notebook = nbformat.read(NOTEBOOKS / "17_hard_examples.ipynb", as_version=4)
    cells = {cell.id: " ".join(cell.source.split()).replace("−", "-") for cell in notebook.cells}
    return cells.__getitem__


@pytest.mark.parametrize("cell", SAID)
def test_the_lesson_says_what_was_measured(cell, read_text):
    for key in SAID[cell]:
        assert write_number(key) in read_text(cell)


def test_the_verdicts_are_those_that_the_lesson_names():
    found = {name: x.verdict(margin=1) for name, x in find_differences().items()}
    helps = ("drop", "relabel", "oracle", "right", "shorter", "photo drop", "photo relabel")
    helps += ("photo oracle", "warm-up", "warm-up against at once", "sampling", "weights")
    helps += ("adjustment", "adjustment against weights", "at prediction")
    assert {found[name] for name in helps} == {"helps"}
    assert found["in training against at prediction"] == "helps"
    assert {found[name] for name in ("relabel against drop", "photo relabel against drop")} == {
        "hurts"
    }
    open_ones = ("random", "brief drop", "hardest", "at once", "warm-up against drop")
    assert {found[name] for name in open_ones} == {"inconclusive"}
    equal = ("clean drop", "clean hardest", "clean warm-up", "focal")
    assert {found[name] for name in equal} == {"equivalent"}


def test_what_the_figures_say(read_text):
    """Their titles, what is memorised, and that relabelling leaves fewer right labels."""
    right, new = (
        read(TEXTS, "drop suspects", metric) for metric in ("precision", "relabelled_right")
    )
    assert (100 - right.mean()) > new.mean()
    memorised, ended_before = (
        read(regime, "keep", "train_accuracy").mean() for regime in (TEXTS, BRIEF)
    )
    assert memorised > 90 > 80 > ended_before  # a fifth of the labels is wrong: most are memorised
    for variant in ("class-balanced sampling", "class weights", "logit adjustment"):
        assert judge_metric(variant, "rare").low > 0
        assert judge_metric(variant, "frequent").high < 0


def judge_metric(variant, metric):
    return paired_difference(read(RARE, "mean", metric), read(RARE, variant, metric))


def test_the_live_trainings_are_those_of_the_study(read_text):
    study = read_study("hard_examples")
    assert study.best[TEXTS]["keep"] == "lr 0.002"
    assert set(study.best[PHOTOS].values()) == {"lr 0.002"}
    assert "LR = 0.002 #" in read_text("parameters")
    config = load_config("quick", dataset="photos")
    live = config.replace(num_train=1000, epochs=5 * config.epochs, batch_size=100)
    assert study.regimes[PHOTOS].config == live.replace(first_seed=0, progress=False)
    assert "1,000 definitions" in read_text("question")
    assert study.regimes[TEXTS].config.num_train == 1000
    epochs = study.regimes[RARE].config.epochs
    assert f"{live.epochs} epochs instead of {epochs}." in read_text("rare-read")
    assert f"Its {study.regimes[BRIEF].config.epochs} epochs" in read_text("verdict-card")
    assert (
        judge(PHOTOS, "relabel suspects", "drop suspects").mean
        < judge(TEXTS, "relabel suspects", "drop suspects").mean
    )  # "further behind"


def test_the_definition_that_the_question_quotes_has_the_kind_that_it_says(read_text):
    quoted = r"each of one of ten kinds \(\*(.+)\*: (\w+)\)"
    definition, kind = re.search(quoted, read_text("question")).groups()
    assert (kind, definition) in read_split("train")
    assert load(GLOSSES).num_classes == 10


def test_the_text_below_the_live_search_says_what_its_stored_outputs_show(read_text):
    """Of the seed whose outputs the notebook holds; another one may order the losses otherwise."""
    cells = nbformat.read(NOTEBOOKS / "17_hard_examples.ipynb", as_version=4).cells
    printed, table = next(cell.outputs for cell in cells if cell.id == "hunt")
    rows = re.findall(r"^(\D+?) {2,}(\d+) +(\d+) +(\d+)$", table.data["text/plain"], re.MULTILINE)
    first, last, held_out = [[int(x) for x in numbers] for _, *numbers in rows]
    text = read_text("hunt-read")
    assert "the losses at the end are the worst guide among the worst 100 and 200" in text
    columns = list(zip(last, first, held_out, strict=True))
    assert all(end < min(others) for end, *others in columns[1:])
    assert "held-out losses are the best one only among the worst 200" in text
    assert [x > y for x, y in zip(held_out, first, strict=True)] == [False, False, True]
    suspects = int(re.match(r"(\d+) suspects", printed.text)[1])
    assert "finds about twice as many suspects as there are wrong labels" in text
    assert 1.8 < suspects / 200 < 2.3
