"""A row of a table that ``course measure`` makes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

__all__ = ["Impossible", "Row", "Values"]

Values = dict[str, float]


class Impossible(Exception):
    """A row that this device cannot have; the message says why, and stands in its place."""


@dataclass(frozen=True)
class Row:
    """What is measured: ``settings`` name the row in its ``table``; ``measure`` gives its values.

    Values are ``ms``, ``images_per_s``, ``peak_bytes``, ``gb_per_s`` or ``waiting`` (a share).
    """

    table: str
    settings: Mapping[str, str | int | bool]
    measure: Callable[[torch.device], Values]
