"""What a study declares: a question, and the trainings that answer it.

``lesson_code/NAME/study.py`` has a `Study` called ``STUDY``; ``course study NAME`` trains it.
"""

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from course_utils.config import Config
from course_utils.errors import CourseError
from course_utils.results import STUDIES

__all__ = ["Regime", "Study", "find_studies", "load_study"]

Options = Mapping[str, Any]  # arguments of `fit`


@dataclass(frozen=True)
class Regime:
    """A setting in which variants are compared, chosen before its result is seen.

    Args:
        about: one sentence: what is trained, and why in this setting.
        config: data set, sizes, epochs, network.
        variants: the name of each variant to its trials, which are arguments of `fit` by name;
            the first variant is the baseline. Of several trials the best one on the search seeds
            is trained on the seeds that are reported.
        few: train on the first few examples of the config's only; None: on all of them.
        untuned: variants with one trial by their nature, beside others with several: such as a
            setting that a formula gives, if the study asks whether a search is needed.
    """

    about: str
    config: Config
    variants: Mapping[str, Mapping[str, Options]]
    few: int | None = None
    untuned: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Study:
    """The question of a lesson, and the settings in which it is answered.

    Args:
        question: one sentence that ends with a question mark.
        regimes: by name.
        margin: accuracies that differ by less count as equivalent, in [0, 1].
        seeds: those that are reported, the same for every variant.
        search_seeds: those on which the best trial of each variant is found.

    Raises:
        CourseError: fewer than two variants; a seed that is searched and reported; variants with
            different numbers of trials, because the one with more trials would win more often; an
            untuned variant with a choice, or one that is not there.
    """

    question: str
    regimes: Mapping[str, Regime]
    margin: float = 0.01
    seeds: tuple[int, ...] = tuple(range(10))
    search_seeds: tuple[int, ...] = (100, 101)

    def __post_init__(self) -> None:
        if shared := set(self.seeds) & set(self.search_seeds):
            raise CourseError(f"seeds {sorted(shared)} are searched and reported: take others")
        for name, regime in self.regimes.items():
            if len(regime.variants) < 2:
                raise CourseError(f"regime {name!r}: a study compares two variants or more")
            counts = {variant: len(trials) for variant, trials in regime.variants.items()}
            untuned = {variant: counts.pop(variant, 0) for variant in regime.untuned}
            if any(count != 1 for count in untuned.values()):
                raise CourseError(
                    f"regime {name!r}: give each untuned variant one trial: {untuned}"
                )
            if len(set(counts.values())) > 1 or not all(counts.values()):
                raise CourseError(
                    f"regime {name!r}: give each variant equally many trials: {counts}"
                )


def find_studies(folder: Path = STUDIES) -> list[str]:
    """The names of all lessons with a study that ``course study`` trains."""
    files = sorted(folder.glob("*/study.py"))
    return [x.parent.name for x in files if "STUDY = Study(" in x.read_text(encoding="utf-8")]


@cache
def load_study(name: str, folder: Path = STUDIES) -> Study:
    """The study of ``<folder>/<name>/study.py``.

    Raises:
        CourseError: there is none of this name.
    """
    known = find_studies(folder)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known) or 'none'}"
        raise CourseError(f"no study {name!r}: {hint}")
    found = spec_from_file_location(f"lesson_code.{name}.study", folder / name / "study.py")
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    sys.modules[module.__name__] = module  # where pickle and inspect look
    found.loader.exec_module(module)
    return module.STUDY
