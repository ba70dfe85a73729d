"""Examples for lesson 00 and the README's figure, taken from one run of all lessons.

They are fixed, so that a change of one lesson makes neither the outputs of lesson 00 nor the figure
stale. At a release, after ``course run --save-results``, they are taken anew:

    .venv/bin/python lesson_code/start_here/study.py
"""

import json
from collections.abc import Iterator
from pathlib import Path

from course_utils.files import write_atomically
from course_utils.results import read_results, values_by_arm

SOURCE = "quick_photos_2cores"
FIGURE = ("02_freezing", "few photographs")  # its trainings are in the README's figure
SWEEP = "learning rates"  # a comparison without a baseline
MIN_SEEDS = 3


def list_comparisons(lesson: dict) -> Iterator[dict]:
    """Each variant of a lesson against the first one, the accuracies in % by seed."""
    runs = [run for run in lesson["runs"] if "val_accuracy" in run["metrics"]]
    for name in dict.fromkeys(run["comparison"] for run in runs):
        if not name or name == SWEEP:
            continue
        columns = values_by_arm([run for run in runs if run["comparison"] == name])
        (baseline, before), *others = columns.items()
        for variant, after in others:
            if len(after) >= MIN_SEEDS:
                yield {
                    "lesson": lesson["name"],
                    "comparison": name,
                    "baseline": baseline,
                    "variant": variant,
                    "before": [round(100 * value, 2) for value in before],
                    "after": [round(100 * value, 2) for value in after],
                }


def main() -> None:
    """Write the examples beside this file, with the provenance of the run."""
    results = read_results(SOURCE)
    lessons = {lesson["name"]: lesson for lesson in results["lessons"]}
    name, comparison = FIGURE
    kept = {key: value for key, value in results.items() if key != "lessons"}
    kept["comparisons"] = [row for lesson in lessons.values() for row in list_comparisons(lesson)]
    kept["curves"] = [
        {key: run[key] for key in ("arm", "seed", "curve")}
        | {"train": run["settings"]["data"]["train"]}
        for run in lessons[name]["runs"]
        if run["comparison"] == comparison
    ]
    rows = json.dumps(kept, indent=None, ensure_ascii=False).replace("}, {", "},\n{")
    write_atomically(Path(__file__).with_suffix(".json"), rows + "\n")
    print(f"{len(kept['comparisons'])} comparisons, {len(kept['curves'])} curves")


if __name__ == "__main__":
    main()
