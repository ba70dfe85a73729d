"""Planted answers of lesson 07: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import plant_reports

VERDICT = "paired_difference(fp32, pure).verdict()"

SPACING = "info.eps * 2.0 ** (exponent - 1)"
NORMAL = "max(value, info.smallest_normal)"
FROM_1_TO_2 = "eps is the spacing from 1 to 2 only: at each power of two it doubles."

ZERO_GRAD = "        optimizer.zero_grad()\n"
UNSCALE = "        scaler.unscale_(optimizer)\n"
CLIP = "        nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
STEP = "scaler.step(optimizer)"
UPDATE = "        scaler.update()\n"
TAKEN = "            taken += 1\n"
SCALED_LOSS = "scaler.scale(F.cross_entropy(model(inputs), targets))"
STEP_SCALED = "The step is scaled: unscale_ its gradient."

START = "    optimizer ="
LOSS = "            loss = F.cross_entropy(model(images), targets)"
OUTSIDE = (
    LOSS,
    "            logits = model(images)\n        loss = F.cross_entropy(logits, targets)",
)
TOTAL = ("total = 0.0", "total = torch.zeros((), dtype=torch.bfloat16)", "loss.item()",
         "loss.detach()", "total / len(batches)", "(total / len(batches)).item()")  # fmt: skip
BF16_WEIGHTS = "autocast needs no model.bfloat16()"
BF16_LOSS = ("The loss has only the digits of bf16: take cross_entropy inside autocast, or of "
             "logits.float().")  # fmt: skip

WRONG = {
    "report_formats": [
        (VERDICT, '"helps"', "is hurts, not helps"),
        *plant_reports("fp32", "pure"),
        (VERDICT, "paired_difference(pure, fp32).verdict(margin=1)", "not equivalent"),
    ],
    "find_spacing": [
        (f"math.frexp({NORMAL})", f"0, math.ceil(math.log2({NORMAL})) + 1",
         "that is the spacing from the next power of two on."),
        (f"math.frexp({NORMAL})", f"0, math.floor(math.log2({NORMAL})) + 1", "log2 is rounded up."),
        (NORMAL, f"{NORMAL} * (1 + info.eps)", "log2 is rounded up."),
        (SPACING, "info.eps", FROM_1_TO_2),
        ("(exponent - 1)", "max(exponent - 1, 0)", FROM_1_TO_2),
        (SPACING, "value * info.eps", "it changes at powers of two only: it is not value · eps."),
        ("_, exponent", "mantissa, exponent", "exponent - 1", "exponent - 1 - (mantissa == 0.5)",
         "that is the number before."),
        ("exponent - 1", "exponent", "that is the spacing from the next power of two on."),
        (SPACING, "math.ulp(value)", "that is the spacing in float64."),
        ("info.eps", "torch.finfo(torch.float32).eps", "that is the spacing in float32."),
        (NORMAL, "value", "all below smallest_normal are equally far apart."),
        (SPACING, f"{SPACING} if value >= info.smallest_normal else info.smallest_normal",
         "all below smallest_normal are equally far apart."),
        (SPACING, f"torch.tensor({SPACING})", "Return a Python float"),
        ("return info.eps", "return 3 * info.eps", "it doubles at each power of two"),
    ],
    "train_scaled": [
        (CLIP, "", "The gradient is not clipped."),
        ("clip_grad_norm_", "clip_grad_value_",
         "Each number of the gradient is clipped: clip its norm."),
        (UNSCALE, "", "It is clipped while it is scaled: unscale_ first."),
        (UNSCALE, "", STEP, "optimizer.step()", UPDATE, "", STEP_SCALED),
        (UNSCALE, "", CLIP, "", STEP, "optimizer.step()", UPDATE, "", STEP_SCALED),
        (SCALED_LOSS, "F.cross_entropy(model(inputs), targets)",
         "The loss is not scaled, but its gradient unscaled."),
        (ZERO_GRAD, "", "Older gradients count: zero_grad is missing."),
        (ZERO_GRAD, "", TAKEN, TAKEN + ZERO_GRAD,
         "Gradients from before the call count in the first step: zero_grad comes too late."),
        (ZERO_GRAD, "", "taken = 0\n", f"taken = 0\n{ZERO_GRAD[4:]}",
         "Older gradients count from the second step on: zero_grad belongs inside the loop."),
        ("            schedule.step()\n", "", STEP, f"schedule.step()\n        {STEP}",
         "schedule.step() comes too early."),
        (">= before", "> 0", "but not after a skipped one"),
        (TAKEN, TAKEN[4:], "5 of 7 batches led to a step, not 7"),
        (">=", "==", "also if the scale has grown"),
        (STEP, f"done = {STEP}", "scaler.get_scale() >= before", "done is not None",
         "stepped 0 times in 7 steps: once after each."),
        (UPDATE, "", "without update"),
        (SCALED_LOSS, "loss = F.cross_entropy(model(inputs), targets)\n        if not "
         "loss.isfinite():\n            continue\n        scaler.scale(loss)", "scale ends at 256"),
        (STEP, "optimizer.step()", "optimizer.step() takes each step"),
        ("in batches", "in batches[1:]", "Of 7 steps 6 are taken"),
        (", max_norm)\n", ", 2 * max_norm)\n", "one clipped step of SGD for each finite gradient"),
    ],
    "train_mixed": [
        ("def train", "@torch.autocast(\"cpu\", torch.bfloat16)\ndef train", "One autocast around "
         "all batches keeps its bf16 copy of the first weights: one per batch."),
        (ZERO_GRAD, "", "Older gradients count: zero_grad is missing."),
        (*OUTSIDE, BF16_LOSS),
        ("F.cross_entropy(model(images)", "F.nll_loss(model(images).log_softmax(1)", BF16_LOSS),
        (LOSS, LOSS.replace("F.cross_entropy(model(images), targets)",
         "-model(images).log_softmax(1).gather(1, targets[:, None]).mean()"), BF16_LOSS),
        (*TOTAL, "The total has only the digits of bf16: add up Python floats, loss.item()."),
        ("total / len(batches)", "total", "Divide the sum by the number of batches."),
        ("loss.item()", "loss.item() * len(targets)", "total / len(batches)",
         "total / sum(len(targets) for _, targets in batches)", "That is the mean over the images: "
         "each batch counts alike in a mean over the batches."),
        (START, f"    model.bfloat16()\n{START}", "(images)", "(images.bfloat16())", BF16_WEIGHTS),
        (START, f"    model.bfloat16().float()\n{START}", BF16_WEIGHTS),
        ("optimizer.step()", "optimizer.step()\n        model.bfloat16().float()",
         "The weights are rounded to bf16."),
        ("optimizer.step()", "pass", "never change"),
        ("torch.autocast(\"cpu\", torch.bfloat16)", "torch.enable_grad()",
         "The logits are torch.float32, not bf16"),
        ("total / len(batches)", "loss.item()", "The mean loss over the batches is"),
        ("loss.item()", "loss.detach()", "Return a Python float"),
        ("optimizer.step()", "optimizer.step()\n        optimizer.step()",
         "not those of one step of SGD for each batch"),
    ],
}  # fmt: skip

RIGHT = {
    "report_formats": [
        """
def report_formats():
    return [0.58, 0.59, 0.575], [0.55, 0.561, 0.546], "hurts"
""",
        """
def report_formats():
    return np.array([0.55, 0.561, 0.546, 0.55]), np.array([0.58, 0.59, 0.575, 0.582]), "helps"
""",
    ],
    "find_spacing": [
        # climbs or descends from 1 by doubling
        (f"_, exponent = math.frexp({NORMAL})", "power = 1.0\n    while 2 * power <= value:\n"
         f"        power *= 2\n    while power > {NORMAL}:\n        power /= 2", SPACING,
         "power * info.eps"),
        # from the spacing of Python's own floats
        (SPACING, "max(info.smallest_normal * info.eps, math.ulp(value) * (info.eps * 2.0**52))"),
    ],
    "train_scaled": [
        # clips the scaled gradient to the scaled norm, and leaves it to step to unscale
        (UNSCALE, "", ", max_norm)\n", ", max_norm * scaler.get_scale())\n"),
        # the optimizer tells of each step
        ("    for inputs", "    optimizer.register_step_post_hook(lambda *_: schedule.step())\n"
         "    for inputs", "            schedule.step()\n", "", ZERO_GRAD,
         "        optimizer.zero_grad(set_to_none=False)\n"),
    ],
    "train_mixed": [
        # the loss outside of autocast, of logits with 32 bits
        (LOSS, OUTSIDE[1].replace("(logits", "(logits.float()"), "model(images)",
         "model(images.bfloat16())"),
        # the step by hand, a running mean
        (ZERO_GRAD, "        model.zero_grad()\n", "optimizer.step()", "with torch.no_grad():\n"
         "            for p in model.parameters():\n                p -= lr * p.grad",
         "loss.item()", "loss.item() / len(batches)", "total / len(batches)", "total"),
    ],
}  # fmt: skip
