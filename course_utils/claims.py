"""`claim` states a result, shows whether it holds, and records it for CI."""

import html
import math
from collections.abc import Sequence
from numbers import Integral, Real

from course_utils.results import append_record

__all__ = ["CLAIM_MIME", "ClaimError", "claim"]

CLAIM_MIME = "application/vnd.course.claim+json"
KINDS = ("identity", "effect")
# Each with a contrast of 4.8 or more to white.
GREEN, RED, AMBER, GREY = "#1a7f37", "#cf222e", "#9a6700", "#59636e"


class ClaimError(AssertionError):
    """A claim that does not hold."""

    def _render_traceback_(self) -> list[str]:
        return [f"ClaimError: {self}"]


class _Shown:
    """What a notebook displays: a line with a mark in colour, and the record behind it."""

    def __init__(self, record: dict, mark: str, colour: str):
        self.record = record
        self.mark = mark
        self.colour = colour

    def __repr__(self) -> str:
        value = self.record["value"]
        return f"{self.mark} {self.record['text']}" + ("" if value is None else f"  [{value}]")

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        mark, _, text = repr(self).partition(" ")
        # Only the mark has colours: the text keeps the theme's own, which can be read on dark.
        style = f"background:{self.colour};color:#ffffff;border-radius:3px;padding:0 0.3em"
        line = f'<b><span style="{style}">{mark}</span> {html.escape(text)}</b>'
        return {"text/plain": repr(self), "text/html": line, CLAIM_MIME: self.record}


def _to_json(value: object) -> object:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real) and math.isfinite(value):
        return float(value)
    return str(value)  # JSON has no infinite numbers


def _choose_mark(record: dict, seeds: Sequence[int]) -> tuple[str, str]:
    """How a claim is marked, and the mark's colour."""
    effect = record["kind"] == "effect"
    if effect and len(seeds) == 1:
        return "○ one seed cannot show:", GREY
    if record["holds"]:
        return "✓", GREEN
    return ("✗ not here:", AMBER) if effect else ("✗ does not hold:", RED)


def claim(
    text: str,
    holds: object,
    value: object = None,
    kind: str = "identity",
    seeds: Sequence[int] = (),
) -> None:
    """Claim that ``text`` is true because ``holds`` is.

    An *identity* is exact and must hold in every profile: if it does not, this raises. An
    *effect* is measured, and is only promised for the profile and data it was written for: one
    that does not hold is shown as such and recorded; ``course run`` fails the lesson for it in
    the ``quick`` profile on the embedded data. An effect of one seed is shown and recorded, and
    not judged: one seed shows no effect.

    The record is appended to ``records.jsonl`` in ``COURSE_RUNS_DIR``, which ``course run`` reads.
    It also stands in the displayed output, because the site reads stored notebooks.

    Args:
        text: one sentence; the same in every run, so that CI can compare it.
        holds: a truth value (a tensor or array of one element will do).
        value: the figure behind it, rounded, or None.
        kind: ``"identity"`` or ``"effect"``.
        seeds: those that an effect was measured with.

    Raises:
        ClaimError: an identity that does not hold.
        ValueError: unknown kind; an effect without seeds.
        CourseError: the record cannot be written.
    """
    from IPython.display import display

    if kind not in KINDS:
        raise ValueError(f"no kind of claim {kind!r}: choose from {', '.join(KINDS)}")
    if kind == "effect" and not seeds:
        raise ValueError("an effect names the seeds it was measured with: seeds=config.seeds")
    record = {"text": text, "kind": kind, "holds": bool(holds), "value": _to_json(value)}
    display(_Shown(record, *_choose_mark(record, seeds)))
    append_record("claim", record)
    if kind == "identity" and not record["holds"]:
        raise ClaimError(f"{text} does not hold" + ("" if value is None else f" (value {value})"))
