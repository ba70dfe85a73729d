import json

import numpy as np
import pytest
import torch

from course_utils.claims import CLAIM_MIME, GREEN, ClaimError, claim
from course_utils.results import read_records

SEEDS = (0, 1, 2)


@pytest.fixture
def shown(monkeypatch):
    displayed = []
    monkeypatch.setattr("IPython.display.display", displayed.append)
    return displayed


def test_a_true_claim_is_shown_and_recorded(shown):
    claim("one is one", 1 == 1, value=1)
    bundle = shown[0]._repr_mimebundle_()
    record = {"text": "one is one", "kind": "identity", "holds": True, "value": 1}
    assert bundle[CLAIM_MIME] == record
    assert bundle["text/plain"] == "✓ one is one  [1]"


def test_a_false_identity_raises_after_it_was_shown(shown):
    with pytest.raises(ClaimError, match=r"one is two does not hold \(value 1\)"):
        claim("one is two", False, value=1)
    assert shown[0].record["holds"] is False


def test_a_false_effect_is_shown_and_recorded(shown):
    claim("it helps", False, kind="effect", seeds=SEEDS)
    assert shown[0].record == {"text": "it helps", "kind": "effect", "holds": False, "value": None}
    assert repr(shown[0]).startswith("✗ not here: it helps")


@pytest.mark.parametrize("holds", [True, False])
def test_one_seed_judges_no_effect(shown, holds):
    claim("it helps", holds, value=0.5, kind="effect", seeds=(3,))
    assert repr(shown[0]) == "○ one seed cannot show: it helps  [0.5]"
    assert shown[0].record["holds"] is holds
    assert GREEN not in shown[0]._repr_mimebundle_()["text/html"]


def test_one_seed_is_enough_for_an_identity(shown):
    claim("one is one", True, seeds=(3,))
    assert repr(shown[0]) == "✓ one is one"


def test_an_effect_names_its_seeds(shown):
    with pytest.raises(ValueError, match="names the seeds it was measured with"):
        claim("it helps", True, kind="effect")
    assert not shown


def test_claims_are_recorded_in_their_order_false_ones_too(shown, tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_RUNS_DIR", str(tmp_path))
    claim("it helps", False, value=-0.5, kind="effect", seeds=SEEDS)
    with pytest.raises(ClaimError):
        claim("one is two", False)
    claim("it helps", False, value=-0.5, kind="effect", seeds=SEEDS)
    recorded = read_records(tmp_path, "claim")
    assert recorded == [displayed.record for displayed in shown]
    assert [record["kind"] for record in recorded] == ["effect", "identity", "effect"]


@pytest.mark.parametrize("false", [torch.tensor(False), np.bool_(False), 0, None, ""])
def test_whatever_is_false_does_not_hold(shown, false):
    with pytest.raises(ClaimError):
        claim("false", false)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (torch.Size([2]), "torch.Size([2])"),
        (float("inf"), "inf"),
        (-np.float32("inf"), "-inf"),
        (float("nan"), "nan"),
    ],
)
def test_values_become_json(shown, value, stored):
    claim("value", True, value=value)
    assert shown[0].record["value"] == stored
    json.dumps(shown[0].record, allow_nan=False)


def test_text_is_escaped_in_html(shown):
    claim("a < b", True)
    assert "a &lt; b" in shown[0]._repr_mimebundle_()["text/html"]


def test_unknown_kind(shown):
    with pytest.raises(ValueError, match="choose from identity, effect"):
        claim("x", True, kind="opinion")
    assert not shown


@pytest.mark.parametrize(("holds", "mark"), [(True, "✓"), (False, "✗")])
def test_only_the_mark_has_colours_so_that_the_text_is_readable_in_every_theme(shown, holds, mark):
    claim("the sum is 1", holds, kind="effect", seeds=SEEDS)
    line = shown[0]._repr_mimebundle_()["text/html"]
    coloured, text = line.split("</span>")
    assert coloured.endswith(f">{mark}")
    assert "color:#ffffff" in coloured
    assert "the sum is 1" in text
    assert "color" not in text
