"""A check runs in a known state, whatever a notebook has set, and puts back what it was."""

import os
import warnings

import numpy as np
import pytest
import torch

from course_utils.checking import CheckFailed, checks_exercise
from course_utils.checking.state import known_state


def read_state():
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_anomaly_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_float32_matmul_precision(),
        torch.is_autocast_enabled("cpu"),
        np.geterr(),
        [entry[0] for entry in warnings.filters if entry[0] == "error"],
    )


FRESH = read_state()


@pytest.fixture(autouse=True)
def _restored():
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.autograd.set_detect_anomaly(False)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    torch.set_autocast_enabled("cpu", False)
    np.seterr(divide="warn", over="warn", under="ignore", invalid="warn")


SETTINGS = {
    "float64": lambda: torch.set_default_dtype(torch.float64),
    "device": lambda: torch.set_default_device("meta"),
    "no gradients": lambda: torch.set_grad_enabled(False),
    "anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "deterministic": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "precision": lambda: torch.set_float32_matmul_precision("medium"),
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),
    "numpy": lambda: np.seterr(all="raise"),
    "warnings": lambda: warnings.simplefilter("error"),
}


@pytest.mark.parametrize("change", SETTINGS.values(), ids=SETTINGS)
def test_a_setting_of_the_notebook_is_not_that_of_the_check(change):
    with warnings.catch_warnings():
        change()
        before = read_state()
        assert before != FRESH
        with known_state():
            inside = read_state()
        assert inside == FRESH
        assert read_state() == before


def test_inference_mode_ends_for_a_check():
    with torch.inference_mode(), known_state():
        assert not torch.ones(1).is_inference()


def test_what_an_answer_sets_ends_with_the_check():
    @checks_exercise()
    def check(answer):
        answer()

    check(lambda: [torch.set_default_dtype(torch.float64), np.seterr(all="raise")])
    assert read_state() == FRESH


def test_a_current_folder_that_was_deleted(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with known_state():
        assert os.getcwd()
    monkeypatch.chdir(tmp_path)
    with known_state("/"):
        assert os.getcwd() == "/"
    assert os.getcwd() == str(tmp_path)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("F.relu", "mine stopped, because F is not defined: if it is spelt right, run the"),
        ("[np2 for _ in 'a']", "mine stopped, because np2 is not defined: if it is spelt right"),
        ("__import__('nothing_like_it')", "mine stopped with ModuleNotFoundError"),
    ],
)
def test_a_name_that_a_new_kernel_does_not_have(source, said):
    names = {}
    exec(f"def mine():\n    return {source}", names)
    check = checks_exercise()(lambda answer: answer())
    with pytest.raises(CheckFailed, match=said):
        check(names["mine"])
