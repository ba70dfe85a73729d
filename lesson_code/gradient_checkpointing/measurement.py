"""Reads the stored measurement of lesson 10."""

from typing import Any

import numpy as np

from course_utils.measure.paired import paired_difference

__all__ = ["Measurement"]

PLAIN = "nothing"  # the way without recomputing


class Measurement:
    """What `study_memory.py` stored: a row for each network, depth, batch and way to run blocks.

    Args:
        content: of its file.
    """

    def __init__(self, content: dict[str, Any]):
        self.content = content
        self._rows = {
            tuple(row[name] for name in ("network", "way", "depth", "batch")): row
            for row in content["rows"]
        }

    def read(self, network: str, way: str, depth: int = 24, batch: int | None = None) -> dict:
        """One row; ``batch``: the usual one if None."""
        batch = self.content["usual_batch"][network] if batch is None else batch
        return self._rows[network, way, depth, batch]

    def share(self, network: str, way: str, **place: Any) -> float:
        """Saved bytes, divided by those of the plain way."""
        saved = [self.read(network, name, **place)["saved_bytes"] for name in (way, PLAIN)]
        return saved[0] / saved[1]

    def ratios(self, network: str, way: str, **place: Any) -> np.ndarray:
        """Seconds of a step, divided by those of the plain way in the same round."""
        seconds = [self.read(network, name, **place)["seconds"] for name in (way, PLAIN)]
        return np.divide(*seconds)

    def time(self, network: str, way: str, **place: Any) -> np.ndarray:
        """The mean of the `ratios` and both ends of its 95 % interval; the mean is geometric."""
        logs = np.log(self.ratios(network, way, **place))
        found = paired_difference(np.zeros(len(logs)), logs)
        return np.exp([found.mean, found.low, found.high])

    def describe_time(self, network: str, way: str, **place: Any) -> str:
        return "{:.2f} ({:.2f} to {:.2f})".format(*self.time(network, way, **place))

    def describe(self, network: str, way: str, **place: Any) -> str:
        """Both in words."""
        share = f"{self.share(network, way, **place):.0%}".replace("%", " %")
        return f"{share} of the bytes, time × {self.describe_time(network, way, **place)}"

    def list_batches(self, network: str) -> list[int]:
        return sorted({row["batch"] for row in self.content["rows"] if row["network"] == network})

    def list_ways(self) -> list[str]:
        return list(dict.fromkeys(row["way"] for row in self.content["rows"]))

    def describe_provenance(self) -> str:
        """One line: how many rounds, on which machine, and when."""
        about = self.content["hardware"]
        return (
            f"{self.content['rounds']} rounds; {about['cpu']}, {self.content['threads']} thread; "
            f"{self.content['made']}"
        )
