"""Planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

SPEED = "def speed_up(shares, factors):\n    {body}\n"


PARTS = "sum(s / f for s, f in zip(shares, factors))"


def _speed(body: str) -> str:
    return SPEED.format(body=body)


FRONT = """
def pareto_front(recipes):
    def beats(a, b):
        return {beats}
    front = [n for n in recipes if not any(beats(recipes[m], recipes[n]) for m in recipes{others})]
    return {result}
"""


FRONT_PARTS = {
    "beats": "a[0] <= b[0] and a[1] >= b[1] and (a[0] < b[0] or a[1] > b[1])",
    "others": "",
    "result": "sorted(front, key=lambda n: recipes[n][0])",
}


def _front(**changed: str) -> str:
    return FRONT.format(**FRONT_PARTS | changed)


STUDY = """
def study(train, arms, seeds):
    models = {{arm: [train(arm, {seed}) for seed in seeds] for arm in arms}}
    {before}
    chosen = max({among}, key=lambda arm: {key})
    base = {base}
    tested = {{arm: [m.test() for m in models[arm]] for arm in {opened}}}
    return {result}
"""


STUDY_PARTS = {
    "seed": "seed",
    "before": "pass",
    "among": "arms",
    "key": "sum(m.val for m in models[arm])",
    "base": "arms[0]",
    "opened": "{chosen, base}",
    "result": "chosen, [a - b for a, b in zip(tested[chosen], tested[base])]",
}


TESTED = "{arm: [m.test() for m in models[arm]] for arm in arms}"


def _study(**changed: str) -> str:
    return STUDY.format(**STUDY_PARTS | changed)


WRONG_ANSWERS = {
    "recipe_experiment": plant_experiments("recipe_experiment"),
    "speed_up": [
        (_speed("return 'fast'"), "return a number"),
        (_speed("return 2.5"), "times as fast, not 2.5"),
        (_speed(f"return sum(shares) / {PARTS}"), "rest is sped up like the parts"),
        (_speed(f"return round(1 / (1 - sum(shares) + {PARTS}), 2)"),
         r"2\.105263 times as fast, not 2\.11\."),
        (_speed(f"shares.append(1 - sum(shares))\n    factors.append(1)\n    return 1 / {PARTS}"),
         "lists were changed"),
        (_speed(f"return 1 / (1 - sum(shares[:2]) + {PARTS.replace('factors)', 'factors[:2])')})"),
         "factors .*, 5.0.: the step is"),
        (_speed(f"return 1 / (1 - shares[0] + {PARTS} - sum(shares[1:]))"),
         "stopped with|times as fast"),
    ],
    "pareto_front": [
        (_front(beats="a[0] < b[0] and a[1] > b[1]"), "No worse in one and better"),
        (_front(beats="a[0] <= b[0] and a[1] >= b[1]"), "not dominated by any other"),
        (_front(beats="a[0] <= b[0] and a[1] > b[1]"), "No worse in one|should be"),
        (_front(beats="a[0] >= b[0] and a[1] >= b[1] and a != b"), "all stay|should be"),
        (_front(beats="a[1] > b[1]"), "all stay|should be"),
        (_front(result="front"), "order is wrong"),
        (_front(result="sorted(front)"), "order is wrong"),
        (_front(result="sorted(front, key=lambda n: (recipes[n][0], n))"), "order is wrong"),
        (_front(result="sorted(front, key=lambda n: -recipes[n][1])"), "order is wrong"),
        (_front(result="{n: recipes[n] for n in front}"), "list of names"),
        (_front(result="sorted(recipes, key=lambda n: recipes[n][0])"), "slower and less accurate"),
        ("def pareto_front(recipes):\n    found, best = [], -1\n"
         "    for n in sorted(recipes, key=lambda n: recipes[n][0]):\n"
         "        if recipes[n][1] > best:\n            found.append(n)\n"
         "            best = recipes[n][1]\n    return found",
         "No worse in one|equal in both"),
        ("def pareto_front(recipes):\n    found, last = [], -1\n"
         "    for n in sorted(recipes, key=lambda n: (recipes[n][0], -recipes[n][1])):\n"
         "        if recipes[n][1] > last or (found and recipes[n] == recipes[found[-1]]):\n"
         "            found.append(n)\n        last = recipes[n][1]\n    return found",
         "not with its neighbour only"),
        ("def pareto_front(recipes):\n    recipes.clear()\n    return []", "was changed"),
    ],
    "study": [
        ("def study(train, arms, seeds):\n"
         "    models = {arm: [train(arm, seed + number) for seed in seeds]"
         " for number, arm in enumerate(arms)}\n"
         "    tested = {arm: [model.test() for model in models[arm]] for arm in arms}\n"
         "    chosen = max(arms, key=lambda arm: max(tested[arm]))\n"
         "    gains = [tested[chosen][i] - min(tested[arms[0]]) for i in range(len(seeds))]\n"
         "    return chosen, gains", "the same for each one"),
        (_study(seed="seeds[0]"), "not trained at every seed"),
        (_study(seed="seed + 1"), "use the same"),
        (_study(before=f"looked = {TESTED}"), "only the chosen one and the baseline"),
        (_study(among="arms[1:]"), "worse was chosen, not plain. The baseline may be chosen"),
        (_study(among="sorted(arms)"), "equal was chosen, not plain. Of equal variants the first"),
        (_study(before="baseline = [m.test() for m in models[arms[0]]]", opened="{chosen} - {base}",
                result="chosen, [a - b for a, b in zip(tested.get(chosen, baseline), baseline)]"),
         "before the choice: choose first"),
        (_study(result="chosen, [a.val - b.val for a, b in zip(models[chosen], models[base])]"),
         "gains on validation"),
        (_study(key="models[arm][-1].val"), "single seed"),
        (_study(key="sorted(m.val for m in models[arm])[1]"), "highest mean"),
        (_study(opened="[chosen, base]",
                result="chosen, [m.test() - b.test() for m, b in zip(models[chosen],"
                       " models[base])]"), "opened twice"),
        (_study(result="chosen, sorted(a - b for a, b in zip(tested[chosen], tested[base]))"),
         "seed order"),
        (_study(result="chosen, sum(tested[chosen]) - sum(tested[base])"), "are a list"),
        (_study(result="chosen, [a - b for a, b in zip(tested[chosen], tested[base])][:1]"),
         "as many gains"),
        (_study(result="chosen, [tested[chosen][0] - tested[base][0]]"), "as many gains"),
        (_study(result="chosen"), "two things"),
        (_study(before="models = {arm: [train(arm, s) for s in seeds] for arm in arms}"),
         "once each"),
        (_study(result="chosen, tested[chosen]"), "gains should be"),
        ("def study(train, arms, seeds):\n    best, models = None, {}\n"
         "    for arm in arms:\n        models[arm] = [train(arm, s) for s in seeds]\n"
         "        tested = [m.test() for m in models[arm]] if arm == arms[0] else tested\n"
         "    chosen = max(arms, key=lambda a: sum(m.val for m in models[a]))\n"
         "    mine = tested if chosen == arms[0] else [m.test() for m in models[chosen]]\n"
         "    return chosen, [a - b for a, b in zip(mine, tested)]", "before the choice"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "recipe_experiment": [
        # by hand, at other seeds, with another step
        """
def recipe_experiment(config, data):
    recipe = {"make_schedule": warmup_cosine}
    columns = [
        [fit(config, data, seed=seed, **given).metrics["val_accuracy"] for seed in (3, 4, 5)]
        for given in (recipe, recipe | {"make_optimizer": partial(SGD, lr=0.01)})
    ]
    change = paired_difference(*columns)
    return *columns, change.low, change.high
""",
        # another step, four seeds, lists in place of arrays
        """
def recipe_experiment(config, data):
    recipe = {"pretrained": True, "make_schedule": warmup_cosine}
    smoothed = recipe | {"loss": partial(F.cross_entropy, label_smoothing=0.1)}
    arms = {"plain": recipe, "smoothed": smoothed}
    found = compare(config, data, arms, seeds=range(4), name="smoothing")
    difference = found.difference("smoothed")
    plain, other = found.values("plain").tolist(), found.values("smoothed").tolist()
    return plain, other, difference.low, difference.high
""",
    ],
    "speed_up": [
        _speed(f"return 1 / (1 - sum(shares) + {PARTS})"),
        # takes away what each part has gained
        _speed("return (1 - np.sum(np.array(shares) * (1 - 1 / np.array(factors)))) ** -1.0"),
    ],
    "pareto_front": [
        _front(),
        # walks from the fastest to the slowest: the most accurate so far, or its equal, stays
        """
def pareto_front(recipes):
    order = sorted(recipes, key=lambda name: (recipes[name][0], -recipes[name][1]))
    found, best = [], None
    for name in order:
        if best is None or recipes[name][1] > best[1] or tuple(recipes[name]) == best:
            found.append(name)
            best = tuple(recipes[name])
    return found
""",
    ],
    "study": [
        _study(),
        # keeps the best mean as it trains, and only then opens anything
        """
def study(train, arms, seeds):
    best, chosen = -math.inf, None
    kept = {}
    for arm in arms:
        kept[arm] = {seed: train(arm, seed) for seed in seeds}
        mean = np.mean([model.val for model in kept[arm].values()])
        if mean > best:
            best, chosen = mean, arm
    baseline = {seed: kept[arms[0]][seed].test() for seed in seeds}
    if chosen == arms[0]:
        return chosen, [0.0] * len(seeds)
    return chosen, [kept[chosen][seed].test() - baseline[seed] for seed in seeds]
""",
    ],
}
