"""What data/README.md states is what its description and the stored results say."""

import numpy as np

from course_utils.data.photos import describe_photos
from course_utils.files import ROOT
from course_utils.models.backbone import describe_backbone
from course_utils.results import RESULTS, read_file
from course_utils.study_results import read_study
from scripts.search_text_backbone import CANDIDATES


def test_the_readme_states_what_the_description_says():
    text = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    about = describe_photos()
    for split, value in about["psnr_db"].items():
        assert f"{value} dB" in text, split
    assert f"seed {about['seed']}" in text


def test_the_readme_states_how_many_photographs_and_definitions_there_are():
    text = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    photos = describe_photos()
    per_class, classes = photos["tiles"], len(photos["classes"])
    train, test = (per_class[split] * classes for split in ("train", "test"))
    assert f"`photos/` | {train + test:,} photographs" in text
    assert f"The lessons use {train + test:,} photographs" in text
    assert f"{train:,} of them are the pool" in text
    assert f"The other {test:,} are the test split" in text
    assert f"{per_class['train']} and {per_class['test']} photographs each" in text
    glosses = read_file(ROOT / "data" / "text" / "glosses.json")
    entries, long_enough, kept = glosses["definitions"].values()
    assert f"its {entries:,} entries" in text
    assert f"which leaves {long_enough:,}" in text
    assert f"`text/` | {kept:,} definitions" in text
    assert kept == sum(split["count"] for split in glosses["splits"].values())


def test_the_readme_states_what_the_benchmark_measured():
    text = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    found = read_file(RESULTS / "photos_format_2cores.json")
    low, high = found["interval_points"]
    assert low < 0 < high, "trainings differ by the format: say so in the README"
    assert f"is {found['difference_points']:+.2f} points" in text
    assert f"a 95 % interval of {low:+.2f} to {high:+.2f}" in text
    places = {"files": "the pixels of the archive", "sheets": "those of the sheets"}
    for variant, place in places.items():
        assert f"{np.mean(found['accuracy'][variant]):.1f} % on {place}" in text


def test_the_readme_shows_every_text_network_that_was_tried():
    text = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    rows = read_file(RESULTS / "text_backbone_search.json")["rows"]
    assert {row["name"] for row in rows} == set(CANDIDATES)
    for row in rows:
        several = len(row["candidate"]["poolings"]) > 1
        name = f"{row['name']}, {row['pooling']}" if several else row["name"]
        columns = [name, f"{row['parameters'] / 1e6:.2f}", f"{row['processor_s'] / 60:.1f}"]
        columns += [f"{100 * np.mean(found):.1f}" for found in row["accuracies"].values()]
        assert "| " + " | ".join(columns) + " |" in text


def test_what_the_readme_says_of_the_text_networks():
    rows = read_file(RESULTS / "text_backbone_search.json")["rows"]
    found = {
        (row["name"], row["pooling"]): 100 * np.mean([*row["accuracies"].values()], axis=1)
        for row in rows
    }
    chosen = found["as chosen, one epoch", "mean"]

    def gains(name, pooling="mean"):
        change = found[name, pooling] - chosen
        return round(change.min()), round(change.max())

    assert (found["hidden tokens", "mean"] < found["from scratch", "mean"]).all()
    assert gains("as chosen, 4 epochs") == (6, 19)
    assert gains("as chosen, one epoch", "max") == (-1, 0)
    assert gains("as chosen, one epoch", "last token") == (-7, -2)
    assert gains("2 blocks of width 176") == (2, 5)
    assert all(gains(f"vocabulary of {size}")[1] <= 0 for size in ("2,048", "8,192"))
    assert gains("another last layer for the tokens") == (0, 4)
    parameters = {row["name"]: row["parameters"] for row in rows}
    base = parameters["as chosen, one epoch"]
    assert round(100 * parameters["2 blocks of width 176"] / base) == 112
    assert round(100 * parameters["another last layer for the tokens"] / base) == 140


def test_the_readme_states_how_large_the_text_network_is():
    text = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    about = describe_backbone("text_small")
    assert f"{about['parameters']:,} parameters below its head" in text
    assert f"{about['recipe']['epochs']} epochs" in text


def test_the_readme_states_what_the_text_weights_bring():
    text = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    study = read_study("freezing")
    variants = ("from scratch", "linear probe", "last stage", "full fine-tuning")
    regimes = [name for name in study.regimes if name.startswith("definitions, ")]
    for name in regimes:
        regime = study.regimes[name]
        means = [f"{100 * study.values(name, variant).mean():.1f}" for variant in variants]
        gain = study.difference(name, "full fine-tuning", "from scratch")
        interval = f"{100 * gain.mean:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
        columns = [f"{regime.config.num_train:,}", str(regime.config.epochs), *means, interval]
        assert "| " + " | ".join(columns) + " |" in text
    few, some, many = regimes
    assert study.difference(few, "last stage").verdict() == "helps"
    assert abs(study.difference(few, "linear probe").mean) < study.margin
    for regime in (some, many):
        assert study.difference(regime, "last stage").verdict() == "hurts"
