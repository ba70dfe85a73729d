"""☆ experiments: what they leave behind. Wrong answers: `planted_experiments`."""

import os

import pytest

from course_utils.checking.experiment import run_experiment
from course_utils.data.image_data import ImageData
from course_utils.data.text_data import TextData
from course_utils.results import append_record


@pytest.mark.parametrize("runs", [None, "lesson"])
def test_an_experiment_leaves_no_record_in_the_lesson(monkeypatch, tmp_path, runs):
    if runs is None:
        monkeypatch.delenv("COURSE_RUNS_DIR")
        monkeypatch.chdir(tmp_path)
    else:
        monkeypatch.setenv("COURSE_RUNS_DIR", str(tmp_path / runs))
    before = dict(os.environ)
    written = []

    def answer(config, data):
        append_record("run", {"arm": "mine", "epochs": config.epochs, "images": len(data.train)})
        written.append(os.environ["COURSE_RUNS_DIR"])
        return "found"

    assert run_experiment(answer) == "found"
    assert dict(os.environ) == before
    assert not os.path.exists(written[0])
    assert not list(tmp_path.rglob("*.jsonl"))


def test_an_experiment_that_fails_leaves_no_setting(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_RUNS_DIR", str(tmp_path))
    with pytest.raises(ZeroDivisionError):
        run_experiment(lambda config, data: 1 / 0)
    assert os.environ["COURSE_RUNS_DIR"] == str(tmp_path)


def test_an_experiment_is_about_tiny_drawings_or_what_its_lesson_asks_for():
    def answer(config, data):
        return config, data

    config, data = run_experiment(answer)
    assert isinstance(data, ImageData)
    assert (config.dataset, config.model, len(data.train)) == ("shapes", "convnet_small", 192)
    changed, texts = run_experiment(answer, dataset="glosses", model="text_small", epochs=1)
    assert isinstance(texts, TextData)
    assert changed == config.replace(dataset="glosses", model="text_small", epochs=1)
    assert (len(texts.train), len(texts.val), texts.batch_size) == (192, 200, 16)
