import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lesson_code.mixed_precision.number_formats import FormatRecorder, witness_precision


def test_formats_of_operations_with_and_without_autocast():
    layer, x = nn.Linear(4, 3), torch.randn(5, 4)
    with FormatRecorder() as plain:
        F.cross_entropy(layer(x), torch.tensor([0, 1, 2, 0, 1]))
    assert plain.formats["addmm"] == plain.formats["log_softmax"] == {"float32"}
    with torch.autocast("cpu", torch.bfloat16), FormatRecorder() as mixed:
        F.cross_entropy(layer(x), torch.tensor([0, 1, 2, 0, 1]))
    assert mixed.formats["addmm"] == {"bfloat16"}
    assert mixed.formats["log_softmax"] == {"float32"}


def test_operations_on_integers_are_left_out():
    with FormatRecorder() as recorder:
        torch.arange(3) + 1
    assert not recorder.formats


@pytest.mark.parametrize(
    ("precision", "runs_as", "weights", "logits", "loss"),
    [
        ("32-true", "32-true", "float32", "float32", "float32"),
        ("bf16-mixed", "bf16-mixed", "float32", "bfloat16", "float32"),
        ("16-mixed", "bf16-mixed", "float32", "bfloat16", "float32"),
        ("bf16-true", "bf16-true", "bfloat16", "bfloat16", "bfloat16"),
        ("64-true", "64-true", "float64", "float64", "float64"),
    ],
)
def test_what_a_precision_runs_as(precision, runs_as, weights, logits, loss, tiny_data):
    found = witness_precision(precision, tiny_data)
    assert found["runs as"] == runs_as
    assert (found["weights"], found["logits"], found["loss"]) == (weights, logits, loss)
    assert found["loss scale"] == "no"
    assert found["saved (MB)"] > 0


def test_a_refused_precision_is_a_row_not_an_error(tiny_data):
    assert witness_precision("8-bit", tiny_data) == {"runs as": "refused: ValueError"}
