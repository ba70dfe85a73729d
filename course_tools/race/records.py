"""The record book of a race: which recipe was best since when, its code, and how sure that is.

A new recipe has the record only if luck of the seeds would give it so great a lead in one of a
hundred races at most. A class that challenges a record twenty times at this rate breaks it by
luck with a probability of 18 %, so look at the number of challengers, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import numpy as np
from pydantic import Field
from scipy import stats

__all__ = ["ERROR_RATE", "Record", "challenge", "one_sided_p"]

ERROR_RATE = 0.01


@dataclass(frozen=True)
class Record:
    """A recipe that had the record, from its date on.

    Args:
        source: the text of its file, so that the record can be trained again.
        p: of the test that it passed; None: the first record of an accuracy, without a rival.
    """

    name: str
    sha256: str
    date: str
    source: str
    accuracies: tuple[Annotated[float, Field(ge=0, le=1)], ...]
    steps: tuple[Annotated[int, Field(ge=0)], ...]
    p: Annotated[float, Field(ge=0, le=1)] | None

    def describe(self) -> str:
        """One line for the terminal."""
        sure = "the first record" if self.p is None else f"p = {self.p:.2g}"
        mean, steps = 100 * np.mean(self.accuracies), np.mean(self.steps)
        return f"{self.date} · {self.name}: {mean:.1f} % after {steps:,.0f} steps ({sure})"


def one_sided_p(leads: Sequence[float]) -> float:
    """Student's one-sided t-test: how probable leads ``(n,)`` like these are if their mean is zero.

    Fewer than two leads prove nothing: 1. Equal leads above zero: 0.
    """
    if len(leads) < 2:
        return 1.0
    if np.ptp(leads) < 1e-12:  # equal but for rounding
        return float(leads[0] <= 0)
    return float(stats.ttest_1samp(leads, 0, alternative="greater").pvalue)


def challenge(
    book: Sequence[Record],
    name: str,
    sha256: str,
    source: str,
    accuracies: Sequence[float],
    steps: Sequence[int],
    reach: float | None = None,
) -> Record | None:
    """The new record, or None if the one before stands.

    Without ``reach`` a record is a higher accuracy: the differences from the record before, seed
    by seed, have a mean above zero at `ERROR_RATE`. With ``reach``, an accuracy in [0, 1], it is
    fewer steps: the accuracies have a mean above ``reach`` at `ERROR_RATE`, and the mean number of
    steps is smaller than that of the record before.

    Args:
        book: the records so far, the oldest first, all at the same seeds.
    """
    last = book[-1] if book else None
    p = None
    if reach is not None:
        p = one_sided_p([accuracy - reach for accuracy in accuracies])
        if last and np.mean(steps) >= np.mean(last.steps):
            return None
    elif last:
        pairs = zip(accuracies, last.accuracies, strict=True)
        p = one_sided_p([accuracy - other for accuracy, other in pairs])
    if p is not None and p >= ERROR_RATE:
        return None
    date = datetime.now(UTC).date().isoformat()
    return Record(name, sha256, date, source, tuple(accuracies), tuple(steps), p)
