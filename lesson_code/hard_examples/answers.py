"""Planted answers of lesson 17: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import plant_experiments

TOP = "losses.topk(math.ceil(share * len(losses))).values.mean()"
GUARD = "if not 0 < share <= 1:"
NOT_ROUNDED_UP = "The number of examples is not rounded up."

WRONG = {
    "measure_hard": plant_experiments("measure_hard"),
    "keep_hardest": [
        (TOP, "losses.mean()", "All losses count: keep the highest ones."),
        (TOP, "share * losses.mean()", "All losses count, made smaller: keep the highest ones."),
        ("len(losses))).v", "len(losses)), largest=False).v", "The lowest losses are kept."),
        (TOP, "losses[: math.ceil(share * len(losses))].mean()",
         "The first examples are kept, not the ones with the highest losses."),
        (TOP, "losses.topk(math.floor(share * len(losses))).values.mean()", NOT_ROUNDED_UP),
        (TOP, "losses.topk(round(share * len(losses))).values.mean()", NOT_ROUNDED_UP),
        (TOP, "losses.topk(max(1, int(share * len(losses)))).values.mean()", NOT_ROUNDED_UP),
        (".mean()", ".sum() / len(losses)",
         "The sum is divided by all examples: take the mean of those that are kept."),
        ("losses = ", "targets = targets if targets.ndim == 1 else targets.argmax(dim=1)\n    "
         "losses = ", "Soft targets become hard ones: cross_entropy takes them as they are."),
        (".mean()", ".sum()", "Not the mean"),
        (".mean()", "", "without dimensions"),
        ("losses.topk", "losses.detach().topk", "has no gradient"),
        (TOP, "losses.topk(min(len(losses), int(share * len(losses)) + 1)).values.mean()",
         "Not the mean"),
        (f"return {TOP}", f"return torch.tensor({TOP}.item(), requires_grad=True)",
         "not the gradient"),
        (GUARD, "if not 0 < share < 1:", "A share of 1 is allowed"),
        (GUARD, "if False:", "A share of"),
        ("if not 0 < share <= 1:\n        raise ValueError(f\"share {share}: give one above 0 and "
         "at most 1\")", "assert 0 < share <= 1", "raises AssertionError"),
        (GUARD, "if share < 0 or share > 1:", "A share of 0"),
    ],
    "rank_suspects": [
        ("inputs[~inside], targets[~inside]", "inputs, targets",
         "The networks have seen the examples that they judge: train on the other folds only."),
        ("inputs[~inside], targets[~inside]", "inputs[inside], targets[inside]",
         "Each network is trained on the fold that it judges, not on the others."),
        ("descending=True", "", "The lowest loss comes first."),
        (".eval()", "", "The network judges in train mode: call eval()."),
        ("(descending=True)", "(descending=True).argsort()",
         "These are the ranks of the examples, not their indices in the order of the losses."),
        ("losses.argsort(descending=True)",
         "torch.cat([own[losses[own].argsort(descending=True)] for fold in range(folds) "
         "for own in [(fold_of == fold).nonzero()[:, 0]]])",
         "Each fold is sorted by itself: sort all losses together."),
        ("torch.arange(len(inputs)) % folds", "torch.arange(len(inputs)) * folds // len(inputs)",
         "The folds are blocks: example i belongs to fold i mod folds."),
        ("def rank", "@torch.no_grad()\ndef rank", "under no_grad"),
        ("(descending=True)", "(descending=True).float()", "integers"),
        ("(descending=True)", "(descending=True)[:5]", "every index once"),
        ("(descending=True)", "(descending=True).tolist()", "as a tensor"),
        ("return losses.argsort(descending=True)", "return losses", "every index once"),
        ("model(inputs[inside])", "model(inputs[inside]).softmax(dim=1)", "The order is not that"),
    ],
    "train_selective": [
        ("topk(count)", "topk(count, largest=False)",
         "The easiest examples are chosen: take the highest losses."),
        ("        model.train()\n", "",
         "The training pass is in eval mode: call train() after the look, and compute the chosen "
         "losses anew."),
        ("        model.train()\n", "",
         "optimizer.step()\n", "optimizer.step()\n    model.train()\n",
         "The training pass is in eval mode: call train() after the look, and compute the chosen "
         "losses anew."),
        ("        model.eval()\n", "",
         "The look is in train mode, so it moves BatchNorm's statistics: call eval() before it."),
        ("        optimizer.zero_grad()\n", "",
         "The gradients of all batches add up: zero_grad before each backward."),
        ("targets[chosen]).backward()", "targets[chosen], reduction='sum').div(len(inputs))"
         ".backward()",
         "The loss is divided by the size of the whole batch: take the mean of the chosen ones."),
        ("losses.topk(count).indices", "torch.arange(len(inputs))", "All examples are trained on."),
        ("        optimizer.step()\n", "", "The optimizer is never stepped."),
        ("optimizer.step()\n", "optimizer.step()\n    model.eval()\n",
         "The network ends in eval mode: it began in train mode."),
        ("losses.topk(count)", "losses.topk(4)", "not those of steps on the hardest"),
        ("targets[chosen])", "targets[chosen], reduction='sum')",
         "not those of steps on the hardest"),
        ("        model.train()\n", "", "losses.topk(count).indices", "losses.argsort()[:count]",
         "        optimizer.zero_grad()\n", "", "not those of steps on the hardest"),
    ],
}  # fmt: skip

RIGHT = {
    "measure_hard": [
        ("{\"pretrained\": True, \"loss\": lower_half}",
         "{\"loss\": partial(F.cross_entropy, label_smoothing=0.2)}", "seeds=(0, 1, 2)",
         "seeds=(5, 6, 7)"),
        (".topk(len(losses) // 2, largest=False).values.mean()", ".median()"),
    ],
    "keep_hardest": [
        (TOP, "losses.sort(descending=True).values[: math.ceil(share * losses.numel())].mean()"),
        """
def keep_hardest(logits, targets, share):
    if share <= 0 or share > 1:
        raise ValueError(share)
    logs = logits.log_softmax(dim=1)
    if targets.dim() == 1:
        losses = -logs.gather(1, targets[:, None])[:, 0]
    else:
        losses = -(targets * logs).sum(dim=1)
    k = -int(-share * len(losses) // 1)
    return losses.topk(k).values.sum() / k
""",
    ],
    "rank_suspects": [
        """
def rank_suspects(train, inputs, targets, folds):
    numbers = torch.arange(len(inputs))
    scored = []
    for fold in range(folds):
        own = numbers[fold::folds]
        rest = torch.cat([numbers[other::folds] for other in range(folds) if other != fold])
        model = train(inputs[rest], targets[rest]).eval()
        with torch.inference_mode():
            loss = F.cross_entropy(model(inputs[own]), targets[own], reduction="none")
        scored += list(zip(loss.tolist(), own.tolist()))
    return torch.tensor([number for _, number in sorted(scored, reverse=True)])
""",
        ("losses.argsort(descending=True)", "(-losses).argsort()", "with torch.no_grad():",
         "with torch.inference_mode():"),
    ],
    "train_selective": [
        ("losses.topk(count).indices", "losses.sort(descending=True).indices[:count]",
         "optimizer.zero_grad()", "model.zero_grad()"),
        ("losses.topk(count).indices", "losses >= losses.sort().values[-count]"),
    ],
}  # fmt: skip
