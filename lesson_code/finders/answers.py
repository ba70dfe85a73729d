"""Planted answers of lesson 14: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import plant_experiments

GUARD = "if not 0 < lowest < highest:"
ONE_STEP = "    if steps == 1:\n        return [lowest]\n"
REFUSAL = f"""    {GUARD}
        raise ValueError(f"need 0 < lowest < highest, not {{lowest}} and {{highest}}")
"""
RATES = "[lowest * factor**step for step in range(steps)]"
EXPONENT = "(1 / (steps - 1))"
DOUBLING = "while size <= limit and fits(size):"
HALVING = "while too_large - fitting > 1:"
STATES = "copy.deepcopy((model.state_dict(), optimizer.state_dict()))"
NO_COPY = "model.state_dict(), copy.deepcopy(optimizer.state_dict())"
CORRECTED = "average / (1 - beta ** (len(smoothed) + 1))"
RESTORED = "    model.load_state_dict(before[0])\n"
RESTORED_OPTIMIZER = "    optimizer.load_state_dict(before[1])\n"

WRONG = {
    "measure_rates": plant_experiments("measure_rates"),
    "place_rates": [
        (EXPONENT, "(1 / steps)",
         "The last learning rate is too low: between the first and the last one there are "
         "steps - 1 factors."),
        (RATES, "np.linspace(lowest, highest, steps).tolist()",
         "The learning rates have a constant difference: they need a constant factor."),
        (EXPONENT, "(1 / steps)", "factor**step", "factor ** (step + 1)",
         "The first learning rate is too high: it has to be the lowest one."),
        (RATES, "np.geomspace(lowest, highest, steps)", "Return a list of floats"),
        (RATES, f"tuple({RATES})", "not tuple"),
        ("range(steps)", "range(steps + 1)", "it returns 10"),
        (RATES, f"{RATES}[::-1]", "the learning rate with index 0 is"),
        (ONE_STEP, "", "With 1 steps it stopped with ZeroDivisionError"),
        (GUARD, "if not 0 < lowest <= highest:", "From 0.1 to 0.1 in 5 steps it raises nothing"),
        (REFUSAL, "    assert 0 < lowest < highest\n", "raises AssertionError"),
        (REFUSAL + ONE_STEP, ONE_STEP + REFUSAL, "in 1 step it raises nothing"),
        (f"return {RATES}", RATES, "is there a return on every path?"),
        (RATES, f"list(torch.tensor({RATES}))", "Return a list of floats: .item()."),
    ],
    "find_largest_batch": [
        (HALVING, "while False:", "it returns 32, not 37"),
        ("2 * size", "size + 1", "it asks 38 times"),
        (DOUBLING, "while False:", "min(size, limit + 1)", "limit + 1",
         "more than twice the answer"),
        (DOUBLING, "while fits(size):", "that is above the limit"),
        ("return fitting", "return too_large", "it returns 38, not 37"),
        ("return fitting", "return max(1, fitting)", "it returns 1, not 0"),
        (HALVING, "while fitting < too_large:", "It does not end"),
        ("too_large = middle", "too_large = middle - 1", "it returns"),
        ("return fitting", "fitting", "is there a return on every path?"),
        ("fitting, size = 0, 1\n", "return 37\n    fitting, size = 0, 1\n", "asks for no size"),
        ("size = 0, 1", "size = 0, 1.0", "no whole numbers"),
    ],
    "find_rate_safely": [
        (CORRECTED, "average",
         "The average begins at 0 and is not corrected: its first values are too low."),
        ("optimizer.param_groups", "optimizer.param_groups[:1]",
         "Only the first parameter group gets the learning rate."),
        (" / 10", "", "That is the learning rate of the lowest loss: take a tenth of it."),
        (CORRECTED, "average", "optimizer.param_groups", "optimizer.param_groups[:1]",
         "The average is not corrected, and only the first parameter group gets the learning "
         "rate."),
        ("before = ", "model = copy.deepcopy(model)\n    before = ",
         "The network does not learn during the test: it has to be restored after the last step."),
        (CORRECTED, "loss.item()", "not a tenth of that with the lowest loss"),
        (STATES, NO_COPY, "The network is not as before: state_dict() is no copy."),
        ("before[0]", "{n: t for n, t in before[0].items() if 'running' not in n}, strict=False",
         "BatchNorm's statistics"),
        (RESTORED_OPTIMIZER, "", "The optimizer is not as before: save and load its state, too."),
        (STATES, "copy.deepcopy(model.state_dict()), optimizer.state_dict()",
         "moments are not as before"),
        (RESTORED, f"{RESTORED}    model.eval()\n", "left in eval mode"),
        (RESTORED_OPTIMIZER, f"{RESTORED_OPTIMIZER}    optimizer.param_groups[0]['lr'] = 1.0\n",
         "The learning rates of the groups are not as before"),
        ("return learning_rates", "learning_rates", "Return a number: is there a return?"),
    ],
}  # fmt: skip

RIGHT = {
    "measure_rates": [
        ("seeds=(0, 1, 2)", "seeds=(3, 4, 5)", '"low", 0.01', '"low", 0.02', "0.03", "0.06"),
        ("partial(SGD, lr=lr, momentum=0.9)", "partial(torch.optim.AdamW, lr=lr)",
         "seeds=(0, 1, 2)", "seeds=range(4)"),
    ],
    "place_rates": [
        (RATES, "np.geomspace(lowest, highest, steps).tolist()"),
        (ONE_STEP, "", EXPONENT, "(1 / max(1, steps - 1))", RATES,
         "np.cumprod([lowest] + [factor] * (steps - 1)).tolist()"),
    ],
    "find_largest_batch": [
        (HALVING, "while fitting + 1 < too_large:",
         "(fitting + too_large) // 2", "fitting + (too_large - fitting) // 2"),
        ("too_large = min(size, limit + 1)", "too_large = size",
         "if fits(middle):", "if middle <= limit and fits(middle):"),
    ],
    "find_rate_safely": [
        (f"before = {STATES}", "model, optimizer = copy.deepcopy((model, optimizer))",
         RESTORED + RESTORED_OPTIMIZER, ""),
        ("average, smoothed = 0.0, []", "total, weight, smoothed = 0.0, 0.0, []",
         "average = beta * average + (1 - beta) * loss.item()",
         "total, weight = beta * total + loss.item(), beta * weight + 1",
         CORRECTED, "total / weight"),
    ],
}  # fmt: skip
