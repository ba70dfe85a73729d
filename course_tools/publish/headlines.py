"""The headlines of a lesson: what the README's table shows of it, and what was measured.

They stand in the ``headline`` of the lesson's metadata, a list of dictionaries, each of one kind:

- ``{"comparison": …, "arm": …}``: a variant of a comparison of the lesson, against the first one,
  or against another one that ``"baseline"`` names;
- ``{"claim": "its text"}``: a claim of the lesson, with its value;
- ``{"study": …, "arm": {…}, "baseline": {…}}``: two groups of rows of a study in ``data/results``,
  paired by their seeds. A group is given by what its rows have in common, and by ``"metric"``
  where that is not the accuracy. ``"pairs"`` says what the seeds number, if not seeds;
- ``{"study": …, "regime": …, "arm": …, "baseline": …}``: two variants of a study that
  ``course study`` trains, and ``"metric"``, an accuracy, where that is not the validation accuracy.

A ``"label"`` says what these names do not say: the regime in which it was measured. A first
headline with ``"finding": false`` keeps its lesson out of the README's list.
"""

from collections.abc import Mapping, Sequence

from course_tools.run.lessons import Lesson
from course_utils.measure.paired import PairedDifference, paired_difference
from course_utils.results import LessonResult, validate, values_by_arm
from course_utils.study_results import ACCURACY, StudyResult

__all__ = ["NOT_MEASURED", "describe", "describe_study", "makes_claim"]

NOT_MEASURED = "not measured yet"
SEARCH_SEEDS = ("search_seed", "sweep_seed")  # of a study: it chose settings and reports nothing


def _format_difference(
    found: PairedDifference, seeds: str, regime: Sequence[str], margin: float = 0.01
) -> str:
    """The difference in points, its interval, over what and in which regime, and the verdict."""
    width = f"{found.format_interval(100)}; {seeds}" if found.n > 1 else "one seed, no interval"
    mean, about = f"{100 * found.mean:+.2f} points", ", ".join([width, *regime])
    return f"{mean} ({about}): {found.describe_verdict(margin=margin)}"


def _name_regime(images: int | None, epochs: float | None) -> list[str]:
    """Training images and epochs in words, as far as the results say them."""
    named = [f"{images:,} images"] if images else []
    if epochs:
        named.append("1 epoch" if epochs == 1 else f"{epochs:g} epochs")
    return named


def _describe_arm(headline: Mapping, runs: Sequence[Mapping]) -> tuple[str, str]:
    comparison = headline["comparison"]
    arm = headline["arm"]
    compared = [run for run in runs if run["comparison"] == comparison]
    values = values_by_arm(compared)
    if not values:
        raise KeyError(comparison)
    baseline = headline.get("baseline", next(iter(values)))
    found = paired_difference(values[baseline], values[arm])
    one = next(run for run in compared if run["arm"] == arm)
    images = one.get("settings", {}).get("data", {}).get("train")  # older results have none
    regime = _name_regime(images, one["metrics"].get("epoch"))
    what = f"{arm} against {baseline} ({comparison})"
    return what, _format_difference(found, f"{found.n} seeds", regime)


def _describe_claim(headline: Mapping, claims: Sequence[Mapping]) -> tuple[str, str]:
    claim = {claim["text"]: claim for claim in claims}[headline["claim"]]
    measured = "holds" if claim["holds"] else "does not hold"
    return claim["text"], measured + ("" if claim["value"] is None else f" ({claim['value']})")


def describe(headline: Mapping, result: LessonResult) -> tuple[str, str] | None:
    """What a headline is about and what was measured, or None where a lesson did not do it."""
    try:
        if "claim" in headline:
            return _describe_claim(headline, result.claims)
        return _describe_arm(headline, result.runs)
    except (KeyError, ValueError):  # no such claim, comparison or variant, or no seed in common
        return None


def _choose_rows(study: Mapping, group: Mapping) -> dict[int, Mapping]:
    """The rows of a group by their seeds.

    Raises:
        ValueError: two of its rows have the same seed, so the group is not one variant.
    """
    common = {key: value for key, value in group.items() if key != "metric"}
    searched = [study[name] for name in SEARCH_SEEDS if name in study]
    rows: dict[int, Mapping] = {}
    for row in study["rows"]:
        if row["seed"] in searched or any(row.get(k) != value for k, value in common.items()):
            continue
        if row["seed"] in rows:
            raise ValueError(f"more than one row of seed {row['seed']} has {common}")
        rows[row["seed"]] = row
    return rows


def _read_metric(row: Mapping, group: Mapping) -> float:
    """The group's metric in a row; of accuracies after each epoch the last one."""
    value = row[group.get("metric", "accuracy")]
    return value[-1] if isinstance(value, list) else value


def describe_study(headline: Mapping, study: Mapping) -> tuple[str, str]:
    """What a headline of the kind ``"study"`` is about, and what was measured.

    Raises:
        KeyError: the rows have no such metric.
        ValueError: a group is not one variant, or the two have no seed in common; no such regime
            or variant.
    """
    if "regime" in headline:
        return _describe_declared(headline, validate(StudyResult, study))
    arm, baseline = headline["arm"], headline["baseline"]
    treated, compared = _choose_rows(study, arm), _choose_rows(study, baseline)
    seeds = sorted(treated.keys() & compared.keys())
    found = paired_difference(
        [_read_metric(compared[seed], baseline) for seed in seeds],
        [_read_metric(treated[seed], arm) for seed in seeds],
    )
    epochs = treated[seeds[0]].get("epochs", study.get("epochs"))
    regime = _name_regime(study.get("num_train"), epochs)
    pairs = f"{found.n} {headline.get('pairs', 'seeds')} of `{headline['study']}`"
    what = " against ".join(", ".join(map(str, side.values())) for side in (arm, baseline))
    return what, _format_difference(found, pairs, regime)


def _describe_declared(headline: Mapping, study: StudyResult) -> tuple[str, str]:
    name, arm, baseline = (headline[key] for key in ("regime", "arm", "baseline"))
    found = study.difference(name, arm, baseline, headline.get("metric", ACCURACY))
    regime = study.regimes[name]
    examples = regime.few or regime.config.num_train
    about = [f"{examples:,} examples"] if examples else []
    about += _name_regime(None, regime.config.epochs)
    seeds = f"{found.n} seeds of `{headline['study']}`"
    what = f"{arm} against {baseline} ({name})"
    return what, _format_difference(found, seeds, about, study.margin)


def makes_claim(lesson: Lesson, text: str) -> bool:
    """Whether the notebook claims this, in these words: it may be newer than its results."""
    if not lesson.path.is_file():
        return False
    return any(f'"{text}"' in cell.source for cell in lesson.read().cells)
