"""Planted answers of lesson 04: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import plant_experiments

COSINE = "min_lr + (peak_lr - min_lr) * (1 + math.cos(math.pi * progress)) / 2"
PROGRESS = "(step - flat_steps) / (total_steps - 1 - flat_steps)"
FACTOR = "min(1, (step + 1) / (warmup_steps + 1))"
RISING = f"schedulers.LambdaLR(optimizer, lambda step: {FACTOR})"
TOTAL = "epochs * len(loader)"
ALL_IMAGES = "epochs * math.ceil(len(dataset) / loader.batch_size)"
WARMUP = "total_steps // 10"
NOTE = '            history.append(optimizer.param_groups[0]["lr"])\n'
STEP = "            schedule.step()"
PLANNED = (
    "The schedule is planned for {} steps, and 50 are taken: how many batches does the loader "
    "yield in all epochs?"
)

PLANNED_OTHERWISE = [
    (TOTAL, total, PLANNED.format(steps))
    for total, steps in (
        (ALL_IMAGES, 55),
        ("len(loader)", 10),
        ("epochs * len(dataset)", 435),
        ("len(dataset)", 87),
        ("epochs", 5),
    )
]

WRONG = {
    "measure_schedules": plant_experiments("measure_schedules"),
    "flat_cosine": [
        ("_steps - 1 -", "_steps -", "The fall is planned for one step too many: how many steps "
         "forward is it from the end of the flat part to the last step?"),
        ("return min_lr + ", "return ",
         "The last step has the learning rate 0: min_lr is missing before the bracket."),
        (COSINE, "peak_lr * (1 + math.cos(math.pi * progress)) / 2",
         "The last step has the learning rate 0: it ends at the minimum."),
        ("(1 + math.cos(math.pi * progress)) / 2", "(1 - progress)",
         "The fall is a straight line: it should be half a cosine."),
        ("(1 + math.cos(math.pi * progress)) / 2", "math.cos(math.pi / 2 * progress)",
         "The fall is a quarter of a cosine: at the last step the angle is π, not π / 2."),
        (PROGRESS, "step / (total_steps - 1)", "The learning rate jumps after the flat part: the "
         "progress counts from its end, not from step 0."),
        ("if step", "flat_steps += 1\n    if step",
         "The flat part lasts one step too long: it ends with step flat_steps."),
        ("(peak_lr - min_lr)", "peak_lr", "The learning rate jumps above the peak after the flat "
         "part: scale the cosine by peak − minimum."),
        (COSINE, "max(min_lr, peak_lr * (1 + math.cos(math.pi * progress)) / 2)",
         "The fall goes towards 0 and is cut off at the minimum: it arrives there at the last "
         "step."),
        (COSINE, "peak_lr + (min_lr - peak_lr) * (1 + math.cos(math.pi * progress)) / 2",
         "The cosine is turned round: it drops after the flat part and rises to the peak."),
        ("math.pi", "2 * math.pi",
         "That is a whole cosine: the learning rate falls and rises again to the peak."),
        ("<=", "<", PROGRESS, "(step + 1 - flat_steps) / (total_steps - flat_steps)",
         "Step 6, the end of the flat part, still has the peak"),
        ("return peak_lr", "return 2 * peak_lr", "Step 0 has the peak"),
        ("(1 + math.cos(math.pi * progress)) / 2", "(1 - progress) ** 2",
         "Step 7 of 20 has 0.429, the last one 0.02, and the flat part is followed"),
        (f"return {COSINE}", "", "on every path"),
    ],
    "linear_warmup": [
        (FACTOR, "min(1, step / max(1, warmup_steps))",
         "Step 0 has the learning rate 0: a step that is computed for nothing."),
        (FACTOR, "min(1, (step + 1) / max(1, warmup_steps))", "The full learning rate comes one "
         "step too early: step 0 has 1 / (warmup_steps + 1) of it."),
        ("return ", "schedule = ", f"{FACTOR})",
         f"{FACTOR})\n    optimizer.step()\n    schedule.step()\n    return schedule",
         "The schedule is one step ahead: is it stepped before the first step is taken?"),
        (FACTOR, "min(1, (1 + step * warmup_steps / (warmup_steps + 1)) / (warmup_steps + 1))",
         "The full learning rate comes one step too late: it is reached at step warmup_steps."),
        (RISING, "schedulers.LinearLR(optimizer, total_iters=warmup_steps)",
         "Step 0 has a third of the learning rate, LinearLR's default: it has 1 / (warmup_steps "
         "+ 1)."),
        (FACTOR, "(step + 1) / (warmup_steps + 1)",
         "After warm-up the learning rate stays where it is: here it goes on rising."),
        (RISING, "warmup_cosine(optimizer, total_steps, warmup_steps)",
         "After warm-up the learning rate stays where it is: here it falls along a cosine."),
        (RISING, "LinearLR(optimizer, 1 / (warmup_steps + 1), total_iters=total_steps - 1)",
         "The warm-up lasts for all steps: it ends at step warmup_steps."),
        ("return", "peak = optimizer.param_groups[0]['lr']\n    return", FACTOR,
         f"peak * {FACTOR}", "The learning rate is multiplied by a learning rate: LambdaLR wants "
         "a factor, from 0 to 1."),
        ("step + 1", "step / warmup_steps * warmup_steps + 1", "it divides by 0"),
        (FACTOR, f"{FACTOR} * (step < total_steps // 2)",
         "After warm-up the learning rate stays at 0.3: step 20 has 0"),
        (FACTOR, "1", "of the full learning rate, here it is 1."),
        ("return ", "schedule = ", f"{FACTOR})",
         f"{FACTOR})\n    schedule.base_lrs = [0.3, 0.3]\n    return schedule",
         "lost their proportion"),
        ("return ", "", "Return a scheduler"),
    ],
    "train_with_schedule": [
        *PLANNED_OTHERWISE,
        (TOTAL, ALL_IMAGES, WARMUP, f"{TOTAL} // 10", PLANNED.format(55)),
        (STEP, "        schedule.step()", "changes only once an epoch"),
        (STEP, f"{STEP}\n        schedule.step()", "The schedule is stepped once more after each "
         "epoch: step it after every optimizer step, and nowhere else."),
        (NOTE, "", STEP, f"{STEP}\n{NOTE}",
         "The learning rates are one step ahead: note each one before the schedule's step."),
        (WARMUP, "10", "A tenth of 50 steps is 5, and the peak comes at step 10."),
        (WARMUP, "0", "A tenth of 50 steps is 5, and the peak comes at step 0."),
        (STEP, "", "The learning rate never changes"),
        (WARMUP, f"{WARMUP}, min_lr=0.01",
         "The cosine ends at 0.01: the minimum of the schedule should be 0."),
        ("warmup_cosine(optimizer, total_steps, warmup_steps=", "LinearLR(optimizer, total_iters=",
         "Step 0 of 50 is taken at 0.0667 and the last one at 0.2"),
        ("return history", "return history[1:]", "rates came back"),
        ("return history", "return [[lr] for lr in history]", "not a list"),
        ("            optimizer.zero_grad()\n", "",
         "A step sees the gradients of all batches so far: call zero_grad before each backward."),
        ("            optimizer.step()\n", "", "The model was not trained"),
        ("nn.functional.cross_entropy(model(images), targets)", "model(images).sum()",
         "The weights are not those of SGD"),
        (STEP, "", "            optimizer.step()", f"{STEP}\n            optimizer.step()",
         "The weights are not those of SGD"),
        ("return history", "", "Return the list"),
    ],
}  # fmt: skip

RIGHT = {
    "measure_schedules": [
        ("seeds=(0, 1, 2)", "seeds=range(4)", "partial(AdamW, lr=0.03)", "partial(SGD, lr=0.01)"),
        ("partial(warmup_cosine, warmup_steps=4)",
         "lambda optimizer, steps: schedulers.OneCycleLR(optimizer, 0.01, steps)"),
    ],
    "flat_cosine": [
        (f"return {COSINE}", "return np.asarray((peak_lr + min_lr) / 2 + (peak_lr - min_lr) / 2 * "
         "np.cos(np.pi * progress))"),
        # the rates of all steps, of which one is returned
        (f"return {COSINE}", "angles = torch.linspace(0, math.pi / 2, total_steps - flat_steps)\n"
         "    falling = torch.lerp(torch.tensor(min_lr), torch.tensor(peak_lr), "
         "angles.cos().square())\n    return falling[step - flat_steps].item()"),
    ],
    "linear_warmup": [
        (RISING, "schedulers.LinearLR(optimizer, 1 / (warmup_steps + 1), 1.0, warmup_steps) "
         "if warmup_steps else schedulers.ConstantLR(optimizer, 1.0)"),
        (FACTOR, "np.linspace(0, 1, warmup_steps + 2)[1:][: step + 1][-1]"),
    ],
    "train_with_schedule": [
        # PyTorch's own schedules, one after the other
        ("schedule = warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)",
         "warmup = total_steps // 10\n"
         "    rise = LinearLR(optimizer, 1 / (warmup + 1), total_iters=warmup)\n"
         "    fall = CosineAnnealingLR(optimizer, total_steps - warmup)\n"
         "    schedule = SequentialLR(optimizer, [rise, fall], [warmup])",
         NOTE, "            history += schedule.get_last_lr()\n"),
        # all rates first, without a scheduler
        ("schedule = warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)",
         "warmup = total_steps // 10\n"
         "    down = 1 + np.cos(np.linspace(0, np.pi, total_steps - warmup + 1))[:-1]\n"
         "    rates = peak_lr * np.append(np.linspace(0, 1, warmup + 2)[1:-1], down / 2)",
         NOTE, "            optimizer.param_groups[0]['lr'] = rates[len(history)]\n"
         "            history.append(rates[len(history)])\n", STEP, ""),
    ],
}  # fmt: skip
