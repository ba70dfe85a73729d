"""Planted answers of lesson 91's exercises: see `course_tools.publish.planted`."""

from course_tools.publish.planted_experiments import plant_experiments

VARIANTS = 'parts + len(("baseline", "recipe"))'
TOTAL = "trainings * training_s / 60"
GAIN = "complete[seed] - train(others, seed)"
WRONG = {
    "worth_of_a_part": plant_experiments("worth_of_a_part"),
    "plan_minutes": [
        ('"baseline", "recipe"', '"recipe",',
         "The baseline is forgotten: it is trained at each seed too."),
        (VARIANTS, "parts",
         "The baseline and the full recipe are forgotten."),
        ("parts + len", "len", "The variants without one part are forgotten."),
        ("variants * seeds", "variants", "That is for one seed."),
        (" / 60", "", "That is in seconds: give minutes."),
        (VARIANTS, "2**parts",
         "Leave-one-out trains one variant per part, not one per combination of parts."),
        (TOTAL, "'long'", "return a number"),
        (TOTAL, "1.0", "minutes, not 1"),
    ],
    "plan_seeds": [
        ("stats.t.ppf(0.975, seeds - 1)", "1.96",
         "1.96 is for many seeds: with few of them take Student's t with n - 1 degrees of "
         "freedom."),
        (", ddof=1", "",
         "The standard deviation of a few values divides by their number minus one: ddof=1."),
        ("0.975", "0.95", "That interval holds 90 %: leave 2.5 % on each side."),
        ("np.sqrt(seeds)", "seeds", "The half width falls with the root of n, not with n."),
        ("seeds - 1)", "len(differences) - 1)",
         "The degrees of freedom are those of the planned seeds, not of the pilot."),
        ("* spread", "* 2 * spread",
         "That is the whole width of the interval: the half is asked for."),
        ("return seeds", "return float(seeds)", "whole number"),
        ("return seeds", "return seeds + 1", "seeds are needed, not"),
        ("seeds = 2", "seeds = len(differences)", "seeds are needed, not"),
        ("return seeds", "return differences.append(seeds) or seeds", "list was changed"),
    ],
    "ablate": [
        ("name != part", "name != part and name not in worth",
         "Each variant lacks the parts before it too: leave out one part only."),
        ("others, seed", "others, seed + 1",
         "The variants have seeds of their own: train each at the same seeds."),
        ("complete[seed] -", "max(complete.values()) -",
         "Each gain is from the best full recipe: take that of the same seed."),
        (GAIN, "train(others, seed) - complete[seed]",
         "The sign is turned round: full recipe minus the one without the part."),
        ("return worth", "return list(worth.values())", "dictionary with one entry per part"),
        (f"[{GAIN} for seed in seeds]", "sum(complete.values())", "list of numbers"),
        (f"[{GAIN} for seed in seeds]", "[0.1]", "3 differences for each part"),
        ("complete[seed] -", "train(parts, seed) -", "was run 4 times"),
        ("in parts:", "in list(parts):", "{name: parts[name] for name in parts if name != part}",
         "parts.pop(part) and dict(parts)", "dictionary of parts was changed"),
        (GAIN, "complete[seed]", "are not those of the full"),
    ],
}  # fmt: skip

RIGHT = {
    "worth_of_a_part": [
        # by hand, at other seeds
        """
from course_utils import fit

def worth_of_a_part(config, data):
    columns = [
        [fit(config, data, seed=seed, **given).metrics["val_accuracy"] for seed in (3, 4, 5)]
        for given in ({}, {"make_schedule": warmup_cosine})
    ]
    change = paired_difference(*columns)
    return *columns, change.low, change.high
""",
        ("{\"make_schedule\": warmup_cosine}",
         "{\"loss\": partial(F.cross_entropy, label_smoothing=0.1)}", "range(3)", "range(4)"),
    ],
    "plan_minutes": [
        (VARIANTS, "len([\"baseline\", \"recipe\", *range(parts)])",
         TOTAL, "sum(training_s for _ in range(trainings)) / 60"),
        (VARIANTS, "2 * training_s + parts * training_s", TOTAL, "trainings / 60"),
    ],
    "plan_seeds": [
        (" * spread > half_width * np.sqrt(seeds)", " * spread / seeds**0.5 > half_width"),
        ("stats.t.ppf(0.975, seeds - 1) * spread > half_width * np.sqrt(seeds)",
         "np.ptp(stats.t.interval(0.95, seeds - 1, 0, spread / seeds**0.5)) > 2 * half_width"),
    ],
    "ablate": [
        ("dict(parts)", "parts", "in parts:", "in list(parts):", "{name: parts[name] for name in "
         "parts if name != part}", "dict(parts)\n        del others[part]"),
        ("{seed: train(dict(parts), seed) for seed in seeds}", "[train(parts, s) for s in seeds]",
         f"[{GAIN} for seed in seeds]", "np.array(complete) - [train(others, s) for s in seeds]"),
    ],
}  # fmt: skip
