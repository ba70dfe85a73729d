"""Planted answers of lesson 16: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import plant_experiments

LARGE, SMALL = "if p.ndim >= 2]", "if p.ndim < 2]"
TRAINED = "if p.requires_grad]"
PAIR = "[(name, p) for"
RESULT = "    return ["

CHOOSE = "best[name] = learning_rates[int(np.nanargmax(trials))]"
MEAN = "float(np.mean(gains))"
RETURN = "    return ours, theirs, float(np.mean(gains))"

NORM = "get_total_norm([weight.grad for weight in weights])"
CLIMB, EACH = "rho * weight.grad / norm", "rho * weight.grad / weight.grad.norm()"
ZERO_MODEL = "        model.zero_grad()\n"
MICRO_BATCHES = "targets in micro_batches:"

WRONG = {
    "measure_optimizer": plant_experiments("measure_optimizer"),
    "split_decay": [
        (TRAINED, "]", "Parameters that need no gradient are in the groups: leave them out."),
        (TRAINED, "if p.requires_grad or p.ndim < 2]",
         "Parameters that need no gradient are in the second group: leave them out of both."),
        (LARGE, "if p.ndim in (2, 4)]", SMALL, "if p.ndim not in (2, 4)]",
         "Only tensors with two or four dimensions decay: all with two or more do."),
        (LARGE, "if 'bias' not in n]", SMALL, "if 'bias' in n]",
         "The norm's weights decay: look at the number of dimensions, not at the name."),
        (LARGE, "if p.ndim <= 1]", SMALL, "if p.ndim > 1]",
         "Biases and norms are in the group that decays, and the weights are not."),
        (LARGE, "if p.ndim == 2]", SMALL, "if p.ndim != 2]",
         "Only tensors with two dimensions decay: filters have four."),
        (LARGE, "if p.ndim == 4]", SMALL, "if p.ndim != 4]",
         "Only tensors with four dimensions decay: matrices have two."),
        ('"weight_decay": weight_decay', '"weight_decay": 0.0', f'{SMALL}, "weight_decay": 0.0',
         f'{SMALL}, "weight_decay": weight_decay', "The decays of the groups are 0 and 0.3"),
        ("[(n, p) for n, p in trained if p.ndim >= 2]", "[p for _, p in trained if p.ndim >= 2]",
         "a list of (name, parameter) pairs"),
        ("[(n, p) for n, p in trained if p.ndim < 2]", "[(p, n) for n, p in trained if p.ndim < 2]",
         "a list of (name, parameter) pairs"),
        (RESULT, "    return [group['params'] for group in [", "0.0},\n    ]", "0.0},\n    ]]",
         "A group is a dictionary"),
        ("0.0},\n    ]", "0.0},\n    ][:1]", "two groups"),
        (PAIR, "[(name, p.detach().requires_grad_(p.requires_grad)) for",
         "keep the pairs as they are"),
        (LARGE, "if False]", SMALL, "if False]", "hold other parameters"),
        (RESULT, "    for _, p in named_parameters:\n        p.requires_grad_(True)\n    return [",
         "requires_grad has changed"),
    ],
    "set_sam_gradient": [
        ("    before = ", """\
    if len(micro_batches) > 1:
        gradients = []
        for batch in micro_batches:
            set_sam_gradient(model, [batch], rho)
            gradients.append([weight.grad for weight in weights])
        for weight, parts in zip(weights, zip(*gradients)):
            weight.grad = torch.stack(parts).mean(dim=0)
        return
    before = """,
         "Each micro-batch climbs by itself: climb once, along the mean gradient of all."),
        (ZERO_MODEL, "        if climbs:\n            model.zero_grad()\n",
         "The gradients of both passes are added: zero_grad before the second."),
        (ZERO_MODEL, "        if not climbs:\n            model.zero_grad()\n",
         "Gradients from before count: zero_grad first."),
        ("weight.copy_(old)", "pass", "The weights are still uphill: put the old ones back."),
        (CLIMB, EACH,
         "Each parameter is divided by its own norm: take the common one."),
        (CLIMB, "rho * weight.grad", "The climb is not divided by the norm."),
        (" / len(micro_batches)", "",
         "The second gradient is a sum: divide each loss by the number of micro-batches."),
        (ZERO_MODEL, f"{ZERO_MODEL}        if not climbs:\n            micro_batches = "
         "micro_batches[-1:]\n", "The second gradient is that of the last micro-batch only."),
        (MICRO_BATCHES, "targets in micro_batches[-1:] if climbs else micro_batches:",
         "The climb uses the last micro-batch only."),
        ("weight += ", "weight -= ", "It goes downhill: add rho times the gradient."),
        (f"weight += {CLIMB}", "pass", "This is the plain gradient: take it uphill."),
        (ZERO_MODEL, "", "not those of the mean loss"),
    ],
    "compare_tuned": [
        (CHOOSE, f'{CHOOSE} if name == "rival" else 0.001',
         "The baseline keeps 0.001: give it the same trials as the rival."),
        (CHOOSE, f'{CHOOSE} if name == "baseline" else 0.001',
         "The rival keeps 0.001: give it the same trials as the baseline."),
        ("100 + number", "seeds[number % len(seeds)]",
         "The trials run at the seeds that are reported: trial i has seed 100 + i."),
        ("100 + number", "100", "All trials have seed 100: trial i has seed 100 + i."),
        ("100 + number", "101 + number", "The first trial has seed 101: count from 0."),
        ("np.nanargmax", "np.argmax", "A diverged trial wins: leave out what is nan."),
        ("np.nanargmax", "np.nanargmin", "The worst trial is chosen: take the best one."),
        ("    best = {}", "    best, top = {}, {}", "        best[name] =",
         "        top[name] = np.nanmax(trials)\n        best[name] =", MEAN,
         'top["rival"] - top["baseline"]',
         "The gain is that of the best trials: train both again at the reported seeds."),
        ("    best = {}", "    best, top = {}, {}", "        best[name] =",
         "        top[name] = np.nanmax(trials)\n        best[name] =",
         'train("rival", theirs, seed) -', 'top["rival"] -',
         "The rival's accuracy is that of its best trial: train it again at the reported seeds."),
        ('train("baseline", ours, seed)', 'train("baseline", theirs, seed)',
         "The baseline trains at the rival's learning rate: give it its own."),
        ('theirs, seed)', 'theirs, seed + 1)',
         "Rival and baseline train at other seeds: pair them by seed."),
        (MEAN, "-float(np.mean(gains))", "The sign is wrong: the rival minus the baseline."),
        (MEAN, "float(np.sum(gains))", "This is the sum over the seeds: take the mean."),
        (RETURN, f"    return {MEAN}", "Return three numbers"),
        (MEAN, f"0.5 * {MEAN}", "subtract seed by seed at the reported seeds"),
    ],
}  # fmt: skip

RIGHT = {
    "measure_optimizer": [
        ("timm.optim.Lion", "SGD", "seeds=(0, 1, 2)", "seeds=(3, 4, 5)",
         "return adamw, lion, difference.low, difference.high",
         "return list(adamw), list(lion), float(difference.low), float(difference.high)"),
        ("timm.optim.Lion", "partial(AdamW, weight_decay=0.0)",
         "tried.values(trial)[0]", "tried.values(trial).mean()"),
    ],
    "split_decay": [
        (LARGE, "if p.dim() > 1]", SMALL, "if p.dim() in (0, 1)]"),
        """\
def split_decay(named_parameters, weight_decay):
    decaying, others = [], []
    for name, parameter in named_parameters:
        if parameter.requires_grad:
            (decaying if parameter.ndim > 1 else others).append((name, parameter))
    return (
        dict(params=decaying, weight_decay=weight_decay), dict(params=others, weight_decay=0.0)
    )
""",
    ],
    "set_sam_gradient": [
        (NORM, "torch.cat([weight.grad.flatten() for weight in weights]).norm()",
         "weight.copy_(old)", "weight += old - weight"),
        """\
def set_sam_gradient(model, micro_batches, rho):
    inputs, targets = (torch.cat(parts) for parts in zip(*micro_batches))
    weights = dict(model.named_parameters())
    slopes = torch.autograd.grad(F.cross_entropy(model(inputs), targets), [*weights.values()])
    norm = sum(float((slope**2).sum()) for slope in slopes) ** 0.5
    pairs = zip(weights.items(), slopes)
    uphill = {name: (weight + rho * slope / norm).detach() for (name, weight), slope in pairs}
    for weight in uphill.values():
        weight.requires_grad_(True)
    F.cross_entropy(torch.func.functional_call(model, uphill, (inputs,)), targets).backward()
    for name, weight in weights.items():
        weight.grad = uphill[name].grad
""",
    ],
    "compare_tuned": [
        ("np.nanargmax(trials)", "np.argmax(np.nan_to_num(trials, nan=-1.0))"),
        """\
def compare_tuned(train, learning_rates, seeds):
    def tune(name):
        tried = {lr: train(name, lr, 100 + i) for i, lr in enumerate(learning_rates)}
        return max(tried, key=lambda lr: -1 if math.isnan(tried[lr]) else tried[lr])

    ours, theirs = tune("baseline"), tune("rival")
    means = [
        np.mean([train(name, lr, seed) for seed in seeds])
        for name, lr in (("baseline", ours), ("rival", theirs))
    ]
    return [ours, theirs, means[1] - means[0]]
""",
    ],
}  # fmt: skip
