"""Planted answers of lesson 12: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import plant_experiments

REST = "new_time = 1 - sum(shares)"
RETURN = "return 1 / new_time"
FORGOTTEN = (REST, "new_time = 0", RETURN)

DOMINATES = "one[0] <= other[0] and one[1] >= other[1] and one != other"
NONE_DOMINATES = "not any(dominates(rival, value) for rival in values)"
FASTEST_FIRST = "key=lambda entry: entry[0]"
NAMES = f"[name for _, name in sorted(front, {FASTEST_FIRST})]"
NO_WORSE = "No worse in one and better"
ORDER = "order is wrong"

CHOICE = "    chosen = max(arms"
VAL = "sum(model.val for model in models[arm])"
TESTED_ARMS = "{chosen, arms[0]}"
PAIRS = "tested[chosen], tested[arms[0]]"
GAINS = "[ours - baseline for ours, baseline in pairs]"
LOOK = "    base = [model.test() for model in models[arms[0]]]\n"
LOOKED = (TESTED_ARMS, "{chosen} - {arms[0]}", PAIRS, "tested.get(chosen, base), base")
UNPAIRED = "Subtract from each model the baseline of its own seed."

WRONG = {
    "recipe_experiment": plant_experiments("recipe_experiment"),
    "speed_up": [
        (REST, "new_time = 0", "The rest is forgotten, though it takes what it took."),
        (RETURN, "return new_time", "That is the new time: the speed-up is the old time over it."),
        ("share / factor", "share * factor", RETURN, "return new_time",
         "Times add up, speeds do not: divide each share by its factor."),
        (RETURN, "return math.prod(factors)",
         "Factors multiply only where each speeds up the whole step."),
        (RETURN, "return max(factors)", "One fast part does not make the whole as fast."),
        (*FORGOTTEN, "return sum(shares) / new_time",
         "The rest is sped up like the parts: it takes what it took."),
        (REST, "new_time = 1", "+= share / factor", "*= 1 - share + share / factor",
         "For each part the others count as unchanged: add up the new times of all."),
        (*FORGOTTEN, "return new_time", "The rest counts as gained: it still takes its time."),
        (RETURN, "return 'fast'", "return a number"),
        (RETURN, "return round(1 / new_time, 2)", "times as fast, not 2.11."),
        (REST, f"{REST}\n    shares.append(new_time)\n    factors.append(1)", "lists were changed"),
        ("zip(shares, factors, strict=True)", "[*zip(shares, factors)][:2]", "5.0]: the step is"),
        ("sum(shares)", "shares[0] - sum(shares[1:])", "stopped with IndexError"),
    ],
    "pareto_front": [
        (DOMINATES, "one[0] < other[0] and one[1] > other[1]", NO_WORSE),
        (DOMINATES, "one[0] <= other[0] and one[1] > other[1]", NO_WORSE),
        (DOMINATES, "one[0] < other[0] and one[1] >= other[1]", NO_WORSE),
        (" and one != other", "", "not dominated by any other"),
        ("one[0] <= other[0]", "one[0] >= other[0]", "all stay"),
        (NONE_DOMINATES, "True", "slower and less accurate"),
        ("in values)\n", "in sorted(values)[max(0, sorted(values).index(value) - 1) :][:1])\n",
         "not with its neighbour only"),
        (NAMES, "[name for _, name in front]", ORDER),
        (f", {FASTEST_FIRST}", "", ORDER),
        (NAMES, "dict(front)", "list of names"),
        (NAMES, "[recipes.popitem()[0] for _ in front]", "was changed"),
        (NAMES, f"list({{recipes[name]: name for name in {NAMES}}}.values())",
         "Recipes that are equal in both"),
        (NAMES, f"{NAMES} or ['']", "No recipes have an empty front"),
    ],
    "study": [
        ("train(arm, seed)", "train(arm, seeds[0])", "not trained at every seed"),
        ("train(arm, seed)", "train(arm, seed + arms.index(arm))", "the same for each one"),
        ("train(arm, seed)", "[train(arm, seed), train(arm, seed)][0]", "once each"),
        (CHOICE, f"{CHOICE}[::-1]", "Of equal variants the first is chosen."),
        (CHOICE, f"{CHOICE}[1:] or arms", "The baseline may be chosen too."),
        (VAL, VAL.replace("val", "test()"), "Its test accuracy chose it: choose on validation."),
        (VAL, VAL.replace("sum", "max"),
         "Its best seed chose it: the mean over the seeds should."),
        (VAL, VAL.replace("sum", "min"), "A single seed chose it: the mean over the seeds should."),
        (VAL, "np.median([model.val for model in models[arm]])", "highest mean"),
        (TESTED_ARMS, "arms", "only the chosen one and the baseline"),
        ("[model.test() for", "[min(model.test(), model.test()) for", "opened twice"),
        (CHOICE, LOOK + CHOICE, *LOOKED, "before the choice: choose first"),
        ("in arms}\n", "in arms[:1]}\n" + LOOK + "    for arm in arms[1:]:\n"
         "        models[arm] = list(map(partial(train, arm), seeds))\n", *LOOKED,
         "before the choice: train everything first"),
        ("ours - baseline", "baseline - ours", "The sign is turned round: chosen minus baseline."),
        (PAIRS, "tested[chosen], [min(tested[arms[0]])] * len(seeds)", UNPAIRED),
        (PAIRS, "tested[chosen], [max(tested[arms[0]])] * len(seeds)", UNPAIRED),
        (PAIRS, "tested[chosen], [np.mean(tested[arms[0]])] * len(seeds)", UNPAIRED),
        ("model.test()", "model.val",
         "These are the gains on validation: report those on the test split."),
        (GAINS, "tested[chosen]", "gains should be"),
        (GAINS, f"sorted({GAINS})", "seed order"),
        (GAINS, f"sum({GAINS})", "are a list"),
        (GAINS, f"{GAINS}[:1]", "as many gains"),
        (f"chosen, {GAINS}", "chosen", "two things"),
        ("train(arm, seed)", "train(arm.upper(), seed)", "There is no variant 'PLAIN' to train"),
        (f"chosen, {GAINS}", f"chosen.upper(), {GAINS}", "is no variant"),
    ],
}  # fmt: skip

RIGHT = {
    "recipe_experiment": [
        ("\"batch_transform\": mixing", "\"make_optimizer\": partial(SGD, lr=0.01)",
         "seeds=(0, 1, 2)", "seeds=(3, 4, 5)"),
        ("\"batch_transform\": mixing", "\"loss\": partial(F.cross_entropy, label_smoothing=0.1)",
         "seeds=(0, 1, 2)", "seeds=range(4)", "values(\"recipe\")", "values(\"recipe\").tolist()"),
    ],
    "speed_up": [
        (REST, "new_time = 1", "share / factor", "share / factor - share"),
        (RETURN, "return (1 - np.sum(np.array(shares) * (1 - 1 / np.array(factors)))) ** -1.0"),
    ],
    "pareto_front": [
        (DOMINATES, "one[0] < other[0] and one[1] >= other[1] or "
         "one[0] <= other[0] and one[1] > other[1]"),
        (NONE_DOMINATES, "all(value == v or value[0] < v[0] or value[1] > v[1] for v in values)",
         NAMES, "sorted((name for _, name in front), key=lambda name: recipes[name][0])"),
    ],
    "study": [
        (f"max(arms, key=lambda arm: {VAL})", f"arms[np.argmax([{VAL} for arm in arms])]",
         GAINS, "np.subtract(tested[chosen], tested[arms[0]]).tolist()"),
        (VAL, "np.mean([m.val for m in models[arm]])", TESTED_ARMS, "dict.fromkeys([chosen] + "
         "arms[:1])", GAINS, "list(map(float.__sub__, *zip(*pairs)))"),
    ],
}  # fmt: skip
