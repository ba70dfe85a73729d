"""Planted answers of lesson 19's exercises: see `course_tools.publish.planted`."""

TURNS = """\
    for number in range(11):
        for size, step in steps.items():
            start = time.perf_counter()
            step()
            if number > 0:
                seconds[size].append((time.perf_counter() - start) / size)
"""
IN_BLOCKS = """\
    for size, step in steps.items():
        for number in range(11):
            start = time.perf_counter()
            step()
            if number > 0:
                seconds[size].append((time.perf_counter() - start) / size)
"""
LOGS = "paired_difference(np.log(seconds[small]), np.log(seconds[large]))"
FOUR = "return seconds[small], seconds[large], math.exp(logs.low), math.exp(logs.high)"
BY_HAND = """\
    ratios = np.log(np.divide(seconds[large], seconds[small]))
    half = 2.2621571628540993 * ratios.std(ddof=1) / math.sqrt(len(ratios))
    low, high = np.exp(ratios.mean() - half), np.exp(ratios.mean() + half)
    return np.array(seconds[small]), np.array(seconds[large]), low, high
"""

MOVED = "4 * (tokens * inputs + inputs * outputs + outputs + tokens * outputs)"
LATER = "max(flops / flops_per_s, moved / bytes_per_s)"

BRIGHTEN = "(images * factors[:, None, None, None]).clamp(max=1.0)"
LERP = "mean.lerp_(value, 1 - slow_script.DECAY)"
COUNT = """\
        pairs = targets * classes + logits.argmax(dim=1)
        confusions += torch.bincount(pairs, minlength=classes**2).view(classes, classes)
"""
ALL = '{"brighten": brighten, "average": average, "count_confusions": count_confusions}'
ITEMS = """\
        predicted = logits.argmax(dim=1)
        for i in range(classes):
            confusions[i] += torch.bincount(predicted[targets == i], minlength=classes)
"""
WAITS = """\
        pairs = targets * classes + logits.argmax(dim=1)
        found = torch.bincount(pairs, minlength=classes**2).view(classes, classes)
        confusions += found if found.sum().item() else 0
"""
INDEXED = """\
        ones = torch.ones_like(targets)
        confusions.index_put_((targets, logits.argmax(dim=1)), ones, accumulate=True)
"""
FOREACH = """\
        ours, theirs = list(averaged.parameters()), list(model.parameters())
        torch._foreach_lerp_(ours, theirs, 1 - slow_script.DECAY)
"""
ONE_BY_ONE = """\
        for mean, value in zip(averaged.parameters(), model.parameters(), strict=True):
            mean.lerp_(value, 1 - slow_script.DECAY)
"""
CLONES = """\
        for mean, value in zip(averaged.parameters(), model.parameters(), strict=True):
            mean.lerp_(value.clone(), 1 - slow_script.DECAY)
"""

PAIRS = "for step in (old, new) if number % 2 else (new, old):"
WARM_UP = "    for _ in range(3):\n        old()\n        new()\n"
MEDIAN = "(np.median(logs), logs[edge], logs[-1 - edge])"
BY_T = """\
    found = paired_difference(np.zeros(len(logs)), np.array(logs))
    return tuple(math.exp(x) for x in (found.mean, found.low, found.high))
"""
MEASURE = """\
def compare_fairly(old, new, rounds):
    seconds = {{old: [], new: []}}
    for _ in range(3):
        old()
        new()
    {loops}
            start = time.perf_counter()
            step()
            seconds[step].append(time.perf_counter() - start)
    {result}
"""
BLOCKS = MEASURE.format(
    loops="for step in (old, new):\n        for _ in range(rounds):",
    result="ratio = np.median(seconds[new]) / np.median(seconds[old])\n"
    "    return ratio, ratio - 0.01, ratio + 0.01",
)
MINIMUM = MEASURE.format(
    loops="for number in range(rounds):\n"
    "        for step in (old, new) if number % 2 else (new, old):",
    result="ratio = min(seconds[new]) / min(seconds[old])\n"
    "    return ratio, ratio - 0.001, ratio + 0.001",
)
FOUR_CALLS = """\
def compare_fairly(old, new, rounds):
    logs = []
    for _ in range(3):
        old()
        new()
    for _ in range(rounds // 2):
        seconds = {old: 0.0, new: 0.0}
        times = []
        for step in (old, new, new, old):
            start = time.perf_counter()
            step()
            times.append(math.log(time.perf_counter() - start))
        logs += [times[1] - times[0], times[2] - times[3]]
    draws = np.random.default_rng(0).choice(logs, (2000, len(logs)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return math.exp(np.median(logs)), math.exp(low), math.exp(high)
"""

WRONG = {
    "compare_batches": [
        (FOUR, "return seconds[small], seconds[large], math.exp(logs.low)", "Return four things"),
        (FOUR, "return 'fast', seconds[large], math.exp(logs.low), math.exp(logs.high)",
         "The times have to be numbers, in seconds."),
        (FOUR, "return sum(seconds[small]), sum(seconds[large]), 0.5, 0.6",
         "Give one time per round: a list of numbers for each batch size."),
        ("(time.perf_counter() - start) / size", "(start - time.perf_counter()) / size",
         LOGS, "paired_difference(np.ones(10), np.ones(10))", "A time is not a positive number"),
        (FOUR, "return seconds[small][1:], seconds[large], 0.5, 0.6",
         "Time both batch sizes in each round."),
        ("range(11)", "range(4)", "3 rounds say little: take 5 or more."),
        ("if number > 0:", "if number >= 0:", "to warm up"),
        (TURNS, IN_BLOCKS, "Take turns: one step of each size in each round."),
        (FOUR, "return seconds[small], seconds[large], None, None",
         "low and high have to be numbers."),
        (LOGS, "paired_difference(np.log(seconds[large]), np.log(seconds[small]))",
         "That is the interval of small / large: divide large by small."),
        ("(time.perf_counter() - start) / size", "time.perf_counter() - start",
         FOUR, "return (np.array(seconds[small]) / small, np.array(seconds[large]) / large,\n"
         "            math.exp(logs.low), math.exp(logs.high))",
         "Return times per example: divide the seconds by the batch size, in the lists too."),
        (FOUR, "return seconds[small], seconds[large], logs.low, logs.high",
         "take logarithms, paired_difference, and exp."),
    ],
    "bound_linear": [
        (LATER, "flops / flops_per_s + moved / bytes_per_s",
         "That is the sum: both happen at once, so the later one decides."),
        (LATER, "min(flops / flops_per_s, moved / bytes_per_s)",
         "That is one limit alone: the larger of both decides."),
        (LATER, "flops / flops_per_s", "That is one limit alone: the larger of both decides."),
        (LATER, "moved / bytes_per_s", "That is one limit alone: the larger of both decides."),
        ("2 * tokens", "tokens", "Each product comes with a sum: two FLOP."),
        ("4 * (tokens", "(tokens", "A number has four bytes."),
        ("inputs * outputs + outputs +", "outputs +", "The weight is read, too."),
        (" + tokens * outputs)", ")", "The output is written, too."),
        ("(tokens * inputs + inputs", "(inputs", "The input is read, too."),
        (f"return {LATER}", f"return torch.tensor({LATER})", "Return seconds, a Python float"),
        ("4 * (tokens", "5 * (tokens", "and it is"),
    ],
    "replace_slow": [
        (f"return {ALL}", "return [brighten, average, count_confusions]", "Return a dictionary"),
        ('{"brighten"', '{"bright"', "The script has no part bright"),
        (BRIGHTEN, "images * factors[:, None, None, None]",
         "With your brighten, training ends with other weights."),
        ("1 - slow_script.DECAY", "slow_script.DECAY",
         "With your average, training ends with other averaged weights."),
        ("targets * classes + logits.argmax(dim=1)", "logits.argmax(dim=1) * classes + targets",
         "With your count_confusions, training ends with another table of confusions."),
        (COUNT, ITEMS, "it loops over pairs of classes and waits for a number in each."),
        (BRIGHTEN, "torch.stack([i * f for i, f in zip(images, factors)]).clamp(max=1.0)",
         "it loops over the images."),
        (LERP, "mean.copy_(slow_script.DECAY * mean.double()"
         " + (1 - slow_script.DECAY) * value.double())",
         "it copies all weights, and more than once."),
        (COUNT, WAITS, "count_confusions still asks the device (synchronisations per step: 1)."),
        (ONE_BY_ONE, CLONES, "bytes: change the weights in place."),
        ('{"brighten": brighten, "average"', '{"average"', "2 of 3 slow parts are replaced"),
    ],
    "compare_fairly": [
        (f"return tuple(math.exp(x) for x in {MEDIAN})", "return math.exp(np.median(logs))",
         "Return three numbers: the ratio, and both ends of its interval."),
        (MEDIAN, "(np.median(logs), math.nan, logs[-1 - edge])",
         "The ratio or an end is no finite number."),
        (MEDIAN, "(np.median(logs), logs[-1 - edge], logs[edge])",
         "The ratio lies outside of its interval: low comes first."),
        ("range(rounds)", "range(10 * rounds)", "at most 5 to warm up."),
        ("seconds[new] / seconds[old]", "seconds[old] / seconds[new]", "That is old / new"),
        (BLOCKS, "One step runs many times before the other"),
        (PAIRS, "for step in (old, new):", "the new step always comes last"),
        (MEDIAN, "(np.median(logs), logs[2], logs[-3])",
         "wide, which cannot decide about 2 %"),
        (MINIMUM, "The ratio is off by"),
        ("0.98 * math", "0.1 * math", "of the intervals hold the true ratio"),
    ],
}  # fmt: skip

RIGHT = {
    "compare_batches": [
        (f"    logs = {LOGS}\n    {FOUR}\n", BY_HAND),
        ("range(11)", "range(21)", "steps.items()", "reversed(steps.items())"),
    ],
    "bound_linear": [
        (LATER, "float(np.maximum(flops / flops_per_s, moved / bytes_per_s))"),
        (MOVED, "sum(4 * math.prod(shape) for shape in ((tokens, inputs), (inputs, outputs), "
         "(outputs,), (tokens, outputs)))"),
    ],
    "replace_slow": [
        (ONE_BY_ONE, FOREACH, BRIGHTEN,
         "torch.einsum('nchw,n->nchw', images, factors).clamp_(max=1.0)"),
        (COUNT, INDEXED),
    ],
    "compare_fairly": [
        FOUR_CALLS,
        (WARM_UP, "", "logs.sort()", "logs = sorted(logs)"),
    ],
}  # fmt: skip
