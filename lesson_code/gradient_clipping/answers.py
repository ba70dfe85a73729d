"""Planted answers of lesson 15: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import plant_experiments

STRETCHED = "Short gradients are made longer: a gradient below the threshold stays as it is."
NUMBERS_LIMITED = "The numbers are limited, not the norm."
NOT_CLIPPED = "The gradients are not clipped."

SAME = "if len(groups) != len(max_norms):"
CLIP_GROUP = "clip_grad_norm_(group, max_norm)"
APPEND = f"norms.append({CLIP_GROUP}.item())"

CLIP = "clip_grad_norm_(model.parameters(), max_norm)"
FINITE = "if not norm.isfinite():"
SKIP = "return False"
TAKEN = "A step with a gradient that is not finite is taken: weights or moments are NaN."

BACKWARD = "scaler.scale(loss).backward()\n"
UNSCALE = "            scaler.unscale_(optimizer)\n"
CLIP_LINE = f"            {CLIP}\n"
LAST_LAYER = "clip_grad_norm_(list(model.parameters())[-2:], max_norm)"
STEPPED = "if scaler.get_scale() >= scale:"

WRONG = {
    "measure_clipping": plant_experiments("measure_clipping"),
    "clip_groups": [
        (CLIP_GROUP, "clip_grad_norm_(group, max_norms[0])",
         "The first threshold is used for every group."),
        (APPEND, "norms.append(max(clip_grad_norm_([p], max_norm).item() for p in group))",
         "Each parameter has its own norm: the norm is that of the whole group."),
        (APPEND, "clip_grad_value_(group, max_norm)", NUMBERS_LIMITED),
        (CLIP_GROUP, "clip_grad_norm_(sum(groups, []), max_norm)",
         "All groups share one norm: clip each group by its own."),
        (CLIP_GROUP, "clip_grad_norm_(group, math.inf)", ".item())",
         ".item())\n        for p in group:\n            if p.grad is not None:\n"
         "                p.grad *= max_norm / norms[-1]", STRETCHED),
        (APPEND, "norms.append(0.0)", "not those of each group, clipped by its norm"),
        (".item()", "", "list of floats"),
        (".item()", ".item() * 0.0", "not those before clipping"),
        ("return norms", "return norms[:2]", "It returns 2 norms for 3 groups"),
        ("return norms", "groups[-1].clear()\n    return norms", "lists of parameters are changed"),
        (SAME, "if False:", ", strict=True", "", "raises nothing"),
        (SAME, "if False:", "clips before it raises"),
        (f"{SAME}\n        raise ValueError(f\"{{len(groups)}} groups and {{len(max_norms)}} "
         "thresholds\")", "assert len(groups) == len(max_norms)", "raises AssertionError"),
        ("    return norms", "    for p in sum(groups, []):\n        p.grad = "
         "torch.zeros_like(p) if p.grad is None else p.grad\n    return norms",
         "A gradient of None has to stay None"),
        ("    return norms", "    for p in sum(groups, []):\n        p.grad = "
         "None if p.grad is None else p.grad.clone()\n    return norms",
         "The gradients are new tensors"),
    ],
    "step_if_finite": [
        (FINITE, "if norm.isnan():", TAKEN),
        (FINITE, "if norm.isinf():", TAKEN),
        (CLIP, "clip_grad_norm_(model.parameters(), math.inf)\n    for p in model.parameters():\n"
         "        p.grad *= max_norm / norm", STRETCHED),
        (CLIP, "max(clip_grad_norm_([p], max_norm) for p in model.parameters())",
         "Each parameter is clipped by its own norm: take the common one."),
        (FINITE, "if True:", "No step is ever taken."),
        ("optimizer.step()\n    schedule.step()", "schedule.step()\n    optimizer.step()",
         "The schedule is stepped before the optimizer."),
        (SKIP, f"schedule.step()\n        {SKIP}",
         "The schedule is stepped although the optimizer is not."),
        (SKIP, f"optimizer.zero_grad(set_to_none=False)\n        optimizer.step()\n        {SKIP}",
         "Gradients of zero move the weights of AdamW: do not call optimizer.step()."),
        ("schedule.step()", "pass", "The schedule is never stepped."),
        (CLIP, "get_total_norm([p.grad for p in model.parameters()])", NOT_CLIPPED),
        (CLIP, "get_total_norm([p.grad for p in model.parameters()])\n    "
         "clip_grad_value_(model.parameters(), max_norm)", NUMBERS_LIMITED),
        ("    schedule.step()\n", "", "norm = ", "schedule.step()\n    norm = ",
         "Not as after clipped steps"),
        ("return True", "return 1", "Return True or False"),
        ("return True", SKIP, "say whether the step was taken"),
    ],
    "train_clipped": [
        (CLIP, "pass", NOT_CLIPPED),
        (STEPPED, "if True:",
         "The schedule is stepped where the scaler skipped: look whether the scale after update is "
         "lower than before step."),
        (STEPPED, "if False:", "The schedule is never stepped."),
        (STEPPED, "if scaler.get_scale() == scale:", "once for each step that the optimizer took"),
        (CLIP, "clip_grad_value_(model.parameters(), max_norm)", NUMBERS_LIMITED),
        ("optimizer.zero_grad()", "pass",
         "The gradients are not set to zero after each step, a skipped one included."),
        ("    optimizer.zero_grad()", "optimizer.zero_grad()",
         "Only the gradients of the last micro-batch are used: zero_grad comes once per step."),
        (CLIP, LAST_LAYER, "Only the last layer is clipped: take the norm of all parameters."),
        (UNSCALE + CLIP_LINE, CLIP_LINE + UNSCALE,
         "The gradients are clipped while they are scaled: unscale_ first."),
        (CLIP_LINE, "", BACKWARD, f"{BACKWARD}        clip_grad_norm_(model.parameters(), max_norm "
         "* scaler.get_scale())\n",
         "The gradients are clipped after each micro-batch: clip once per step."),
        (CLIP_LINE, "", BACKWARD, f"{BACKWARD}        {CLIP}\n",
         "Scaled gradients are clipped after each micro-batch: unscale_, then clip once per step."),
        (CLIP_LINE, "", BACKWARD, f"{BACKWARD}        {LAST_LAYER}\n",
         "Scaled gradients of the last layer are clipped after each micro-batch."),
        (UNSCALE + CLIP_LINE, f"            {LAST_LAYER}\n{UNSCALE}",
         "Scaled gradients of the last layer are clipped."),
        (" / accumulate", "", "The micro-batches are added: divide each loss by their number."),
        (" / accumulate", " / (2 * accumulate)", "not those of clipped steps on the mean"),
    ],
}  # fmt: skip

RIGHT = {
    "measure_clipping": [
        ("lr=0.2, momentum=0.9", "lr=0.1", "seeds=(0, 1, 2)", "seeds=(3, 4, 5)"),
        ("partial(SGD, lr=0.2, momentum=0.9)", "partial(AdamW, lr=0.01)",
         "seeds=(0, 1, 2)", "seeds=range(4)"),
    ],
    "clip_groups": [
        (f"norms = []\n    for group, max_norm in zip(groups, max_norms, strict=True):\n"
         f"        {APPEND}\n    return norms",
         f"return [float({CLIP_GROUP}) for group, max_norm in zip(groups, max_norms)]"),
        (APPEND, "gradients = [p.grad for p in group if p.grad is not None]\n"
         "        norms.append(float(sum((g**2).sum() for g in gradients)) ** 0.5)\n"
         "        for gradient in gradients:\n"
         "            gradient *= min(1.0, max_norm / norms[-1])"),
    ],
    "step_if_finite": [
        (f"norm = {CLIP}", "fine = all(p.grad.isfinite().all() for p in model.parameters())\n"
         f"    {CLIP}", FINITE, "if not fine:"),
        (CLIP, "get_total_norm([p.grad for p in model.parameters()])", "    optimizer.step()",
         "    for p in model.parameters():\n"
         "        p.grad *= min(1.0, max_norm / norm.item())\n    optimizer.step()"),
    ],
    "train_clipped": [
        (CLIP, f"norm = {CLIP}", STEPPED, "if norm.isfinite():"),
        ("for number", "optimizer.zero_grad()\n    for number", CLIP,
         "norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()\n"
         "            for p in model.parameters():\n"
         "                p.grad *= (max_norm / (norm + 1e-6)).clamp(max=1)",
         STEPPED, "if not scaler.get_scale() < scale:"),
    ],
}  # fmt: skip
