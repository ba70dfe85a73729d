"""Planted answers of lesson 16: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import plant_experiments

LARGE, SMALL = "if p.ndim >= 2]", "if p.ndim < 2]"
TRAINED = "if p.requires_grad]"
PAIR = "[(name, p) for"
RESULT = "    return ["

NORM = "get_total_norm([weight.grad for weight in weights])"
CLIMB, EACH = "rho * weight.grad / norm", "rho * weight.grad / weight.grad.norm()"
ZERO_MODEL = "        model.zero_grad()\n"
MICRO_BATCHES = "targets in micro_batches:"

ZERO = "            optimizer.zero_grad()\n"
STEP = "        optimizer.step()\n"
RESTORE = "            weight.data.copy_(old)\n"

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
    "train_sam": [
        ("        schedule.step()\n", "        schedule.step()\n        schedule.step()\n",
         "The schedule is stepped twice for each step of the optimizer."),
        ("if climbs:\n", "if climbs:\n                schedule.step()\n",
         "The schedule is stepped twice, and once before the optimizer: step it once, after it."),
        ("optimizer.step()\n        schedule.step()", "schedule.step()\n        optimizer.step()",
         "The schedule is stepped before the optimizer."),
        ("        schedule.step()\n", "", "The schedule is never stepped."),
        (RESTORE, "            pass\n",
         "The optimizer steps from the weights uphill: put the old ones back before step."),
        (RESTORE, "            pass\n", STEP, f"{STEP}        norm = {NORM}\n        for weight in "
         f"weights:\n            weight.data -= {CLIMB}\n",
         "The way back uses the second gradient: keep copies of the weights."),
        (ZERO, f"            if climbs:\n    {ZERO}",
         "The gradients of both passes are added: zero_grad before the second."),
        (ZERO, f"            if not climbs:\n    {ZERO}",
         "The gradients of the last batch are still there: zero_grad before the first pass."),
        (ZERO, "", "Gradients are never set to zero."),
        (CLIMB, EACH,
         "Each weight is divided by its own norm: take the common one."),
        (CLIMB, "rho * weight.grad", "The climb is not divided by the norm."),
        (STEP, "", "The weights never move: step the optimizer, after the old weights are back."),
        (ZERO, f"            if climbs:\n    {ZERO}", ".backward()\n",
         ".backward()\n            schedule.step()\n", CLIMB, EACH, RESTORE, "            pass\n",
         f"{STEP}        schedule.step()\n", f"{STEP}        for weight in weights:\n"
         f"            weight.data -= {EACH}\n", "The schedule is stepped 10 times, not 5"),
        (RESTORE, "            old -= weight.data\n", STEP, f"{STEP}        for weight, back in "
         "zip(weights, before, strict=True):\n            weight.data += back\n",
         "not those of SAM's steps"),
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
    "train_sam": [
        (NORM, "sum(weight.grad.square().sum() for weight in weights).sqrt()",
         "optimizer.zero_grad()", "model.zero_grad(set_to_none=False)"),
        (NORM, "parameters_to_vector(weight.grad for weight in weights).norm()",
         "weight.data.copy_(old)", "weight.data -= weight.data - old"),
    ],
}  # fmt: skip
