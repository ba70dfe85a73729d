"""The project: planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

SEEDS = """
def plan_seeds(differences, half_width):
    std = {std}
    n = {first}
    while {width} > half_width:
        n += 1
    return {result}
"""


SEEDS_PARTS = {
    "std": "np.std(differences, ddof=1)",
    "first": "2",
    "width": "stats.t.ppf(0.975, n - 1) * std / n**0.5",
    "result": "n",
}


def _seeds(**changed: str) -> str:
    return SEEDS.format(**SEEDS_PARTS | changed)


ABLATE = """
def ablate(train, parts, seeds):
    complete = {{seed: train(parts, seed) for seed in seeds}}
    worth = {{}}
    for left_out in list(parts):
        rest = {rest}
        worth[left_out] = {gains}
    return {result}
"""


ABLATE_PARTS = {
    "rest": "{k: v for k, v in parts.items() if k != left_out}",
    "gains": "[complete[seed] - train(rest, seed) for seed in seeds]",
    "result": "worth",
}


def _ablate(**changed: str) -> str:
    return ABLATE.format(**ABLATE_PARTS | changed)


WRONG_ANSWERS = {
    "worth_of_a_part": plant_experiments("worth_of_a_part"),
    "plan_minutes": [
        ("def plan_minutes(parts, seeds, training_s):\n    return 'long'", "return a number"),
        ("def plan_minutes(parts, seeds, training_s):\n    return 1.0", "minutes, not 1"),
        ("def plan_minutes(parts, seeds, training_s):\n    return 1 / 0", "ZeroDivisionError"),
    ],
    "plan_seeds": [
        (_seeds(result="float(n)"), "whole number"),
        (_seeds(result="n + 1"), "seeds are needed, not"),
        (_seeds(first="len(differences)"), "seeds are needed, not"),
        (_seeds(std="np.std(differences, ddof=1, out=None)", result="differences.append(n) or n"),
         "list was changed"),
    ],
    "ablate": [
        (_ablate(result="list(worth.values())"), "dictionary with one entry per part"),
        (_ablate(gains="sum(complete.values())"), "list of numbers"),
        (_ablate(gains="[0.1]"), "3 differences for each part"),
        (_ablate(gains="[train(parts, seed) - train(rest, seed) for seed in seeds]"),
         "was run [234] times"),
        (_ablate(rest="parts.pop(left_out) and dict(parts)"), "dictionary of parts was changed"),
        (_ablate(gains="[complete[seed] for seed in seeds]"), "are not those of the full"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "worth_of_a_part": [
        # by hand, at other seeds
        """
from course_utils import fit

def worth_of_a_part(config, data):
    arguments = {"make_schedule": warmup_cosine}
    columns = [
        [fit(config, data, seed=seed, **given).metrics["val_accuracy"] for seed in (3, 4, 5)]
        for given in ({}, arguments)
    ]
    change = paired_difference(*columns)
    return *columns, change.low, change.high
""",
        """
def worth_of_a_part(config, data):
    soft = {"loss": partial(F.cross_entropy, label_smoothing=0.1)}
    found = compare(config, data, {"none": {}, "smoothing": soft}, seeds=range(4))
    change = found.difference("smoothing")
    return [*map(found.values, found.arms), change.low, change.high]
""",
    ],
    "plan_minutes": [
        """
def plan_minutes(parts, seeds, training_s):
    variants = ["baseline", "recipe", *range(parts)]
    return sum(training_s for _ in variants for _ in range(seeds)) / 60
""",
        """
def plan_minutes(parts, seeds, training_s):
    one_seed = 2 * training_s + parts * training_s
    return one_seed / 60 * seeds
""",
    ],
    "plan_seeds": [
        _seeds(),
        """
def plan_seeds(differences, half_width):
    std = np.array(differences).std(ddof=1)
    for n in range(2, 100_000):
        low, high = stats.t.interval(0.95, df=n - 1, scale=std / np.sqrt(n))
        if high - low <= 2 * half_width:
            return n
""",
    ],
    "ablate": [
        _ablate(),
        """
def ablate(train, parts, seeds):
    full = [train(dict(parts), seed) for seed in seeds]
    def without(name):
        rest = dict(parts)
        del rest[name]
        return [train(rest, seed) for seed in seeds]
    return {name: list(np.subtract(full, without(name))) for name in parts}
""",
    ],
}
