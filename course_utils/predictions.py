"""What a reader predicts before a lesson, in a file of their own, and what the lesson finds."""

import json
import math
from pathlib import Path

import pandas as pd

from course_utils.errors import CourseError
from course_utils.files import write_atomically

__all__ = ["FILE", "Prediction", "compare_prediction", "read_predictions", "record_prediction"]

FILE = Path("predictions.json")  # beside the notebooks; nothing of it is in them
Numbers = dict[str, dict[str, float]]  # by what is predicted: "predicted", and later "found"


class Prediction(dict[str, float | None]):
    """The numbers of one lesson by what is predicted; None: not predicted."""

    def __init__(self, lesson: str, **numbers: float | None):
        super().__init__(numbers)
        self.lesson = lesson


def read_predictions(path: Path = FILE) -> dict[str, Numbers]:
    """The numbers of all lessons with a prediction; empty if there is no file.

    Raises:
        CourseError: the file is damaged.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        for numbers in content.values():
            for pair in numbers.values():
                pair["predicted"] + pair.get("found", 0.0)
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise CourseError(f"{path} is damaged: delete it, and predict again") from None
    return content


def _keep(lesson: str, numbers: Numbers) -> None:
    content = read_predictions() | {lesson: numbers}
    write_atomically(FILE, json.dumps(content, indent=1) + "\n")


def record_prediction(lesson: str, **numbers: float | None) -> Prediction:
    """Keep the reader's numbers in ``predictions.json``, where ``course check`` finds them.

    Args:
        lesson: the notebook's name, such as ``"03_lora"``.
        numbers: by what is predicted; None: not yet, so nothing is written.

    Raises:
        CourseError: something else than a finite number; the file is damaged.
    """
    for name, number in numbers.items():
        if number is not None and not (isinstance(number, int | float) and math.isfinite(number)):
            raise CourseError(f"{name}: {number!r} is no number: write one such as 2.5")
    given = {name: {"predicted": number} for name, number in numbers.items() if number is not None}
    if given:
        _keep(lesson, given)
    return Prediction(lesson, **numbers)


def compare_prediction(prediction: Prediction, **found: float) -> pd.DataFrame:
    """What was predicted beside what was found, which is kept too.

    Args:
        prediction: of `record_prediction`.
        found: the same names with what the lesson found.

    Raises:
        ValueError: other names than those of the prediction.
    """
    if set(found) != set(prediction):
        raise ValueError(f"found {sorted(found)}, but predicted {sorted(prediction)}")
    given = {
        name: {"predicted": number, "found": float(found[name])}
        for name, number in prediction.items()
        if number is not None
    }
    if given:
        _keep(prediction.lesson, given)
    rows = {
        name.replace("_", " "): {
            "you predicted": "–" if number is None else f"{number:g}",
            "found": f"{found[name]:.3g}",
        }
        for name, number in prediction.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")
