"""The text of lesson 11 against its two stored studies, and the module that resizes."""

from dataclasses import replace

import nbformat
import numpy as np
import pytest
import torch

from course_tools.run.lessons import NOTEBOOKS
from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.measure.paired import paired_difference
from course_utils.measured import read_measured
from course_utils.results import STUDIES, read_file
from course_utils.study_results import read_study
from course_utils.training.fit import fit
from lesson_code.dali import resizing
from lesson_code.dali.jpegs import QUALITY, draw_scenes, read_jpeg, write_jpegs

FEWEST_ROUNDS = 8  # fewer are a trial, about which the text says nothing
GPU_ROWS = (0, False), (15, False), (15, True)  # workers, pinned
SHORT, LONG, HALF = "files, 2 epochs", "files, 8 epochs", "half size"
AS_TRAINED, NEVER, SMALL = "resized as in training", "never enlarged", "small files"


@pytest.fixture(scope="module")
def text():
    notebook = nbformat.read(NOTEBOOKS / "11_dali.ipynb", as_version=4)
    return " ".join(" ".join(cell.source for cell in notebook.cells).split())


# ---- What is resized.


@pytest.fixture(scope="module")
def photographs():
    config = load_config("smoke", dataset="photos").replace(num_train=60, num_val=60)
    return load_data(config)


def test_training_images_are_those_of_the_lessons_large_files(photographs, tmp_path):
    """But for the edge, where JPEG mixes the photograph with the wall around it."""
    files = write_jpegs(draw_scenes(photographs.train), tmp_path)
    middles = np.stack([read_jpeg(path)[64:192, 64:192] for path in files.paths])
    expected = resizing.resize_to(middles, 32, "area").astype(int)
    found = resizing.read_large_files(photographs.train.images)
    assert np.abs(found - expected)[:, 1:-1, 1:-1].max() <= 1
    small = resizing.read_small_files(photographs.train.images)
    assert 0 < np.abs(small.astype(int) - found).mean() < 4


@pytest.mark.parametrize("name", resizing.WAYS)
def test_each_way_keeps_the_shape_and_nearly_the_pixels(photographs, name):
    resize, images = resizing.WAYS[name], photographs.val.images
    if resize is None:
        return
    found = resize(images)
    assert (found.shape, found.dtype) == (images.shape, np.uint8)
    gap = np.abs(found.astype(int) - images).mean()
    assert 0 < gap < (14 if name.startswith("half") else 4)
    for other, way in resizing.WAYS.items():
        if other != name and way is not None:
            assert not np.array_equal(way(images), found), other


def test_the_loader_has_the_resized_images(photographs):
    def paint(images):
        return np.zeros_like(images)

    images, targets = next(iter(resizing.load_resized(photographs, 0, paint)))
    assert len(images.unique()) == 3  # a level of each channel
    plain = next(iter(photographs.train_loader(0)))[1]
    assert torch.equal(targets, plain)


def test_validation_sees_what_is_judged_and_logs_the_others(photographs):
    config = load_config("smoke", dataset="photos").replace(model="convnet_small", epochs=1)
    ways = ("half_nearest", "never_enlarged")

    def train(judged, data=photographs):
        trainer = {"callbacks": [resizing.ValidateResized(judged, ways)]}
        return fit(config, data, pretrained=True, save=False, trainer=trainer).metrics

    nearest, plain = train(ways[0]), train(ways[1])
    assert nearest["val_accuracy"] == nearest["accuracy_half_nearest"]
    assert nearest["accuracy_never_enlarged"] == plain["val_accuracy"]
    assert nearest["val_loss"] != plain["val_loss"]
    images = resizing.WAYS["half_nearest"](photographs.val.images)
    ready = replace(photographs, val=replace(photographs.val, images=images))
    assert train("never_enlarged", ready)["val_loss"] == pytest.approx(nearest["val_loss"])


# ---- The stored rounds: throughput.


@pytest.fixture(scope="module")
def stored():
    return read_file(STUDIES / "dali/study_speed.json")


def read_rounds(stored, name):
    """Values of each round, by loader."""
    found = {}
    for row in sorted(stored["rows"], key=lambda row: row["round"]):
        found.setdefault(row["loader"], []).append(row[name])
    return {loader: np.array(values) for loader, values in found.items()}


@pytest.fixture(scope="module")
def compare_loaders(stored):
    """The ratio of two loaders over the rounds, in logarithms."""
    if len({row["round"] for row in stored["rows"]}) < FEWEST_ROUNDS:
        pytest.skip("the stored rounds are a trial")

    def compare(loader, other, name="images_per_s"):
        rounds = read_rounds(stored, name)
        return paired_difference(np.log(rounds[other]), np.log(rounds[loader]))

    return compare


def test_each_round_has_all_loaders(stored):
    pairs = {(row["round"], row["loader"]) for row in stored["rows"]}
    loaders = {row["loader"] for row in stored["rows"]}
    assert len(loaders) == 8
    assert len(pairs) == len(stored["rows"]) == 8 * len({row["round"] for row in stored["rows"]})
    assert (stored["epochs"], stored["batch_size"]) == (2, 64)


LESS_WORK = "they need less processor time for each image, whereas two workers need more"
FASTEST = (
    "The fastest real loader needs no new library, because it reads small files and augments whole"
)
SLOWEST = "which of the two is faster is inconclusive"
BEATEN = "and both beat two workers (A)"


def test_which_loaders_need_less_processor_time(compare_loaders, text):
    """If this fails: change the sentence in the First result, and the one in the Experiment."""
    assert LESS_WORK in text
    assert "Two workers do not save processor time" in text
    for loader in ("small files", "DALI"):
        assert compare_loaders(loader, "image by image", "processor_ms").high < 0, loader
    workers = compare_loaders("two workers", "image by image", "processor_ms")
    assert workers.low > 0
    assert f"they need {np.exp(workers.mean):.2f} times as much" in text


def test_which_loader_is_the_fastest(compare_loaders, stored, text):
    """If this fails: change the sentences in the First result and in the Verdict."""
    assert FASTEST in text
    rounds = read_rounds(stored, "images_per_s")
    for loader in set(rounds) - {"small files, batched", "one batch repeated"}:
        assert compare_loaders("small files, batched", loader).low > 0, loader
    assert SLOWEST in text
    assert BEATEN in text
    for loader in ("small files", "DALI"):
        assert compare_loaders(loader, "two workers").low > 0, loader
    assert compare_loaders("DALI", "small files").verdict(margin=np.log(1.05)) == "inconclusive"
    one_worker = compare_loaders("one worker", "image by image")
    assert "and one worker does not help" in text
    assert one_worker.high < np.log(1.05)


def test_the_verdict_answers_which_loader_is_the_fastest(compare_loaders, text):
    def write_interval(loader, other):
        found = compare_loaders(loader, other)
        return f"{np.exp(found.low):.2f} to {np.exp(found.high):.2f}"

    ratios = [
        f"{np.exp(compare_loaders(loader, 'image by image').mean):.2f}"
        for loader in ("DALI", "small files")
    ]
    assert ratios[0] == ratios[1]
    assert f"train {ratios[0]} times as many images per second as image by image" in text
    assert f"have {ratios[0]} times the throughput of image by image" in text
    assert f"B against C is inconclusive ({write_interval('DALI', 'small files')})" in text
    workers = write_interval("two workers", "image by image")
    assert f"inconclusive against image by image ({workers})" in text


def test_what_throughput_gains_by_less_work_and_by_busier_cores(stored, text):
    speeds, work = (read_rounds(stored, name) for name in ("images_per_s", "processor_ms"))
    busy = {loader: speeds[loader] * work[loader] / 1000 for loader in speeds}
    names = ("image by image", "small files", "two workers", "DALI")
    base, small, workers, dali = (f"{busy[name].mean():.1f}" for name in names)
    expected = f"{base} image by image, {small} with small files, {workers} with two workers and "
    assert f"{expected}{dali} with DALI" in text

    def divide(values, loader):
        return np.exp(np.log(values[loader] / values["image by image"]).mean())

    less = {loader: f"{1 / divide(work, loader):.2f}" for loader in ("small files", "DALI")}
    busier = {loader: f"{divide(busy, loader):.2f}" for loader in less}
    said = f"a factor of {less['small files']} by less processor time for each image, and "
    assert f"{said}{busier['small files']} by busier cores" in text
    assert f"gains {less['DALI']} and {busier['DALI']}" in text


# ---- The stored rows of a GPU.


def test_the_text_says_what_was_measured_on_a_gpu(text):
    copies, decoding, loader = map(read_measured, ("copies", "decoding", "loader"))
    device = "NVIDIA H200"
    fast, slow = (copies.loc[device, name]["GB/s"] for name in ("pinned", "pageable"))
    assert f"from pinned memory at {fast} GB per second, and from ordinary memory at {slow}" in text
    gpu, cpu = (
        decoding.loc[device, name]["images/s"]
        for name in ("torchvision on the GPU (nvJPEG)", "OpenCV, one thread")
    )
    assert f"GPU decodes {gpu} photographs per second, and OpenCV {cpu} with one thread" in text
    waiting = loader.loc[device]["waiting (%)"].astype(float)
    none, most, pinned = (f"{waiting[key]:.0f} %" for key in GPU_ROWS)
    assert f"stall is {none} of the time without workers and {most} with 15. Pinned" in text
    assert f"the stall's share to {pinned}, because the rest of a step" in text
    speed = loader.loc[device]["images/s"].str.replace(",", "").astype(float)
    rest = (100 - waiting) / speed  # of the time for an image
    assert speed[GPU_ROWS[2]] > speed[GPU_ROWS[1]]
    assert rest[GPU_ROWS[2]] < rest[GPU_ROWS[1]]


# ---- The stored study: resizing.


@pytest.fixture(scope="module")
def study():
    return read_study("dali")


def judge_resizing(study, way):
    values = [study.values(SHORT, AS_TRAINED, x) for x in ("val_accuracy", f"accuracy_{way}")]
    return paired_difference(*values)


def read_matrix(study):
    """Mean accuracies in percent, a row for each way of training."""
    ways = ("area", "antialiased", "nearest")
    rows = [[study.values(HALF, x, f"accuracy_half_{y}").mean() for y in ways] for x in ways]
    return 100 * np.array(rows)


def write_sentences():
    """What the lesson says of the study of resizing."""
    study = read_study("dali")
    ways = ("linear", "antialiased", "never_enlarged")
    lost = {way: -100 * judge_resizing(study, way).mean for way in ways}
    longer = -100 * study.difference(LONG, NEVER).mean
    small = 100 * study.difference(SHORT, SMALL).mean
    matrix = read_matrix(study)
    area, _, nearest = matrix.diagonal()[:, None] - matrix  # what other ways lose
    lost_half = (matrix.diagonal()[:, None] - matrix)[~np.eye(3, dtype=bool)]
    own = np.ptp(matrix.diagonal())
    half = -100 * study.difference(HALF, "area, other validation").mean
    edges = study.difference(SHORT, SMALL)
    edges = f"{100 * edges.low:+.1f} to {100 * edges.high:+.1f} points".replace("-", "−")
    of_all = [*lost.values(), longer]
    return {
        "area": f"loses {area[1]:.2f} points if torchvision reduces the validation images",
        "other": f"Other ways cost it {lost_half.min():.1f} to {lost_half.max():.1f} points",
        "worst": f"the nearest pixel loses {nearest[1]:.1f}",
        "own": f"the three networks with their own ways are {own:.1f} points apart",
        "torch": f"{lost['antialiased']:.1f} points with torchvision's default",
        "alone": f"of the validation images alone cost {lost['antialiased']:.1f} points",
        "never": f"{lost['never_enlarged']:.1f} if they were never enlarged",
        "longer": f"never enlarged ({longer:.1f} after 8 epochs on 500 photographs)",
        "linear": f"{lost['linear']:.1f} with OpenCV's own default",
        "small": f"change the accuracy by {small:+.1f} points".replace("-", "−"),
        "edges": f"(quality {QUALITY}, {edges})",
        "verdict": f"cost {half:.2f} points, although the weights are the same",
        "range": f"{min(of_all):.1f} and {max(of_all):.1f} points",
    }


NAMES = ("area", "other", "worst", "own", "torch", "alone", "never", "linear", "small", "edges")
NAMES += ("longer", "verdict", "range")


@pytest.mark.parametrize("name", NAMES)
def test_the_text_says_what_other_validation_images_cost(name, text):
    assert write_sentences()[name] in text


def test_every_loss_is_decided_and_small_files_are_equivalent(study, text):
    for way in ("linear", "antialiased", "never_enlarged"):
        assert judge_resizing(study, way).verdict() == "hurts", way
    assert study.difference(LONG, NEVER).verdict() == "hurts"
    other = study.difference(HALF, "area, other validation")
    assert other.verdict() == "hurts"
    assert "the study's whole interval is below −1 point" in text
    assert other.high < -0.01
    assert study.difference(SHORT, SMALL).verdict() == "equivalent"
    assert "which is *equivalent*" in text


def test_each_network_is_best_with_its_own_way(study, text):
    matrix = read_matrix(study)
    assert (matrix.argmax(axis=1) == np.arange(3)).all()
    assert "Each network is best with its own way" in text
    assert np.ptp(matrix.diagonal()) < (matrix.diagonal() - matrix.min(axis=1)).min()


def test_the_same_weights_were_validated_in_all_ways(study):
    never = study.values(SHORT, AS_TRAINED, "accuracy_never_enlarged")
    np.testing.assert_array_equal(never, study.values(SHORT, NEVER))
    other = study.values(HALF, "area", "accuracy_half_antialiased")
    np.testing.assert_array_equal(other, study.values(HALF, "area, other validation"))
