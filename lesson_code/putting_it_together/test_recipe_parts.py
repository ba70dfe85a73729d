"""The benchmark that lesson 12 reads leaves out the steps that the lesson adds."""

import math

import nbformat

from course_utils.config import load_config
from course_utils.measure.provenance import describe_value
from course_utils.training import compare
from lesson_code.putting_it_together import study_parts
from tests.places import ROOT

LESSON = ROOT / "notebooks" / "12_putting_it_together.ipynb"
TAKEN = ("parameters", "imports", "steps")  # cells


def describe(steps):
    """Each step in words; a function by what it is called."""
    return {name: describe_value(arguments) for name, arguments in steps.items()}


def test_the_benchmark_has_the_lessons_steps_and_sizes(monkeypatch):
    config = load_config("quick", dataset="photos").replace(epochs=study_parts.EPOCHS)
    lesson = {"config": config, "compare": compare}
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: True)
    for cell in nbformat.read(LESSON, as_version=4).cells:
        if cell.id in TAKEN:
            exec(cell.source, lesson)
    for name in ("EPOCHS", "MOST_TRAIN", "MOST_VAL"):
        assert lesson[name] == getattr(study_parts, name)
    assert describe(lesson["steps"]) == describe(study_parts.make_steps(config))
    assert list(lesson["steps"]) == list(study_parts.make_steps(config))


def test_a_variant_lacks_its_step_and_nothing_else():
    config = load_config("quick", dataset="photos")
    variants = study_parts.make_variants(config)
    full = variants[study_parts.FULL]
    assert full["trainer"] == {"max_epochs": math.ceil(study_parts.EPOCHS / 2)} | {
        "precision": "bf16-mixed"
    }
    assert variants["without bf16"]["trainer"] == {"max_epochs": 1}
    assert full.keys() - variants["without pretrained start"].keys() == {"pretrained"}
    assert variants["with mixup"].keys() - full.keys() == {"batch_transform"}
    assert variants["with SGD in place of AdamW"].keys() == full.keys()


def test_each_seed_has_all_variants_in_another_order():
    jobs = list(study_parts.list_jobs(["a", "b", "c"], seeds=2, num_train=9))
    assert [job["variant"] for job in jobs] == ["a", "b", "c", "b", "c", "a"]
    assert [job["seed"] for job in jobs] == [0, 0, 0, 1, 1, 1]
