"""Planted answers of lesson 08's exercises: see `course_tools.publish.planted`."""

from course_tools.publish.planted_experiments import plant_experiments

SIZE = "max(size for size in range(1, min(limit, share) + 1) if share % size == 0)"

CLIP = "nn.utils.clip_grad_norm_(model.parameters(), max_norm)"
NORM = "nn.utils.get_total_norm([p.grad for p in model.parameters()])"
TOKENS = "(targets != -100).sum()"
FIRST_CLASS = "Class 0 does not count: only targets of −100 are no tokens."
BEFORE = "Gradients from before the step still count: call zero_grad once, as it begins."
AT_ONCE = "One backward for several micro-batches"
ONLY_LAST = "Only the last micro-batch"

READ = "batches, steps = iter(batches), 0"
CLEAR_EACH = ("optimizer.zero_grad()", "pass", "loss =", "optimizer.zero_grad(); loss =")
DROP = ("        count =", "        if len(window) < size:\n            break\n        count =")
SCHEDULE_EACH = ("        schedule.step()\n", "", ".backward()\n", ".backward(); schedule.step()\n")


def _plant_weights(count: str, unit: str) -> list[tuple[str, ...]]:
    """Wrong weights of the losses, and zero_grad left out, for both exercises."""
    mean = (', reduction="sum"', "")
    return [
        (*mean, f"(loss / {count})", "loss",
         "Means are added, not averaged: a step of n micro-batches is n times too long."),
        (*mean, f"loss / {count}", "loss / len(window)",
         f"This is the mean of means: weigh the micro-batches by their {unit}."),
        (f"(loss / {count})", "loss",
         f"The summed losses are not divided by the {unit} of the step."),
        (f"loss / {count}", "loss / len(window)",
         f"The summed losses are divided by micro-batches, not by {unit}."),
        ("optimizer.zero_grad()", "pass", BEFORE),
    ]  # fmt: skip


WRONG = {
    "measure_accumulation": plant_experiments("measure_accumulation"),
    "plan_batches": [
        (SIZE, "min(limit, share)", "the micro-batch must divide the 512 images"),
        (SIZE, "1", "1 is not the largest micro-batch, 12 fits"),
        (SIZE, "max(2**n for n in range(9) if 2**n <= limit and share % 2**n == 0)",
         "4 is not the largest micro-batch, 12 fits"),
        ("share // size", "effective_batch_size // size", "4 × too much"),
        ("if rest", "if False", "cannot share 512 images: ValueError"),
        ("if rest", "if rest and share > 100", "cannot share 10 images"),
        (SIZE, f"limit if limit > share else {SIZE}", "share // size", "max(1, share // size)",
         "has only 16 images per device"),
        ("min(limit, share)", "share", "does not fit"),
        ("share // size", "share / size", "use //"),
        ("size, share // size", "share // size, size", "swapped"),
        # for 512 images and a limit of 48 this has the right numbers in the wrong order
        (SIZE, "__import__('math').gcd(share, limit)", "16 is not the largest micro-batch"),
        ("if rest", "if rest or share % min(limit, share)", "can be shared evenly, and"),
        ("if rest", "assert not rest\n    if rest", "ValueError, not AssertionError"),
        ("size, share // size", "size", "Return two numbers"),
    ],
    "step_over_tokens": [
        ("    optimizer.step()\n", "", "    norm =", "    optimizer.step()\n    norm =",
         "The gradient is not clipped before the step."),
        (CLIP, f"{NORM}\n    for p in model.parameters():\n        p.grad *= max_norm / norm",
         "A gradient shorter than max_norm stays as it is."),
        (CLIP, f"{NORM}; nn.utils.clip_grad_value_(model.parameters(), max_norm)",
         "Each number of the gradient is clipped: clip its norm."),
        ("    norm =", "        norm =",
         "It is clipped after each micro-batch: clip the sum, once."),
        (f"{TOKENS}.item()", "targets.numel()", "Targets of −100 are counted as tokens."),
        ("/ tokens", f"/ {TOKENS} * targets.numel() / sum(t.numel() for _, t in window)",
         "The shares of the micro-batches count −100 as tokens."),
        ("!= -100", "> 0", "    optimizer.zero", "    window = [(x, t.where(t > 0, -100)) "
         "for x, t in window]\n    optimizer.zero", FIRST_CLASS),
        ("!= -100", "> 0", FIRST_CLASS),
        ("(logits, targets.flatten()", "(model(inputs).reshape(len(inputs), 4, -1), targets",
         "The logits are reshaped, which mixes classes and tokens: swap the two dimensions "
         "instead."),
        ("/ tokens", f"/ {TOKENS} * len(targets) / sum(len(t) for _, t in window)",
         "Micro-batches are weighed by sequences, not by tokens."),
        *_plant_weights("tokens", "tokens"),
        ('F.cross_entropy(logits, targets.flatten(), reduction="sum")', "-(logits.log_softmax(1)"
         "[range(len(logits)), targets.flatten() * (there := targets.flatten() != -100)] * there)"
         ".sum() / there.sum() * there.sum()", "is nan"),
        (f"{TOKENS}.item()", "targets.shape[1]", "times that of the mean loss"),
        ("/ tokens", "* targets.shape[1] / tokens", "another direction"),
        ("(loss / tokens)", "loss", CLIP, "nn.utils.clip_grad_norm_(model.parameters(), max_norm * "
         "tokens); [p.grad.div_(tokens) for p in model.parameters()]",
         "The returned norm is that of the sum: divide by the tokens first."),
        (CLIP, f"{CLIP}; norm = {NORM}",
         "The returned norm is that after clipping: return the one before."),
        ("norm.item()", "norm.item() ** 2", "The norm before clipping is"),
        ("norm.item()", "None", "Return the norm"),
        (".backward()\n", ".backward(); optimizer.step()\n", "here 4 are taken"),
        ("optimizer.step()", "pass", "here 0 are taken"),
        (*CLEAR_EACH, ONLY_LAST),
        (CLIP, f"{CLIP}; optimizer.zero_grad()", "has no gradient"),
        ("zero_grad()\n", "zero_grad(); losses = 0\n", "(loss / tokens).backward()",
         "losses = losses + loss", "    norm =", "    (losses / tokens).backward()\n    norm =",
         AT_ONCE),
        ("(logits, targets.flatten()", "(model(inputs), targets", "stopped with RuntimeError"),
    ],
    "train_windows": [
        ("loss / count", "loss / len(targets) / size",
         "A step with fewer micro-batches is divided as if it were complete: count its examples."),
        *_plant_weights("count", "examples"),
        ("optimizer.zero_grad()", "pass", "optimizer.step()",
         "optimizer.step(); optimizer.zero_grad()", BEFORE),
        # the function of the lesson: four faults
        (*CLEAR_EACH, ', reduction="sum"', "", "(loss / count)", "loss", *SCHEDULE_EACH, *DROP,
         ONLY_LAST),
        (*CLEAR_EACH, ONLY_LAST),
        (*SCHEDULE_EACH, "is stepped 5 times in 2 steps"),
        (*DROP, "The last micro-batches are fewer than"),
        ("in window:\n", "in window[:1]:\n", "Only the first micro-batch counts"),
        ("sum(len(targets) for _, targets in window)", "len(window) * len(window[0][1])",
         "times that of the mean loss"),
        ("        schedule.step()\n", "", "    return", "    schedule.step()\n    return",
         "is stepped 1 times in 2 steps"),
        ("        schedule.step()\n", "", "is stepped 0 times"),
        ("        schedule.step()\n", "", "optimizer.step()", "schedule.step(); optimizer.step()",
         "stepped before the optimizer"),
        ("    return steps", "    optimizer.step(); schedule.step()\n    return steps + 1",
         "A step too many"),
        (".backward()\n", ".backward(); optimizer.step()\n", "after every micro-batch"),
        (READ, "steps, _ = 0, sum(1 for _ in batches)\n    batches = iter(batches)",
         "can be read only once"),
        (READ, "steps, _ = 0, len(batches)\n    batches = iter(batches)", "has no len"),
        ("        optimizer.step()\n", "", "No step is taken"),
        ("optimizer.step()", "optimizer.zero_grad(); optimizer.step()", "optimizer.zero_grad()\n",
         "\n", "has no gradient"),
        ("in window:\n", "in [map(torch.cat, zip(*window))]:\n", AT_ONCE),
        ("schedule.step()", "schedule.step(); model.bias.data += 1e-3",
         "by the optimizer's steps alone"),
        ("return steps", "return steps - 1", "steps were taken, and"),
        ("return steps", "return None", "None is returned"),
    ],
}  # fmt: skip

RIGHT = {
    "measure_accumulation": [
        ("AdamW, lr=0.0004", "SGD, lr=0.01", "AdamW, lr=0.0008", "SGD, lr=0.03",
         "batches\": 4", "batches\": 3", "seeds=(0, 1, 2)", "seeds=(7, 8, 9)"),
        # the loader gives the large batch
        ("\"trainer\": {\"accumulate_grad_batches\": 4}", "\"make_loader\": lambda data, seed: "
         "data.train_loader(seed, batch_size=48)", "seeds=(0, 1, 2)", "seeds=range(4)"),
    ],
    "plan_batches": [
        (SIZE, "next(n for n in range(min(limit, share), 0, -1) if not share % n)"),
        (f"size = {SIZE}", "number = 1\n    while share % number or share // number > limit:\n"
         "        number += 1", "size, share // size", "[share // number, number]"),
    ],
    "step_over_tokens": [
        # divided and clipped by hand; a micro-batch without tokens is left out
        ("    optimizer.zero_grad()\n", "    model.zero_grad(set_to_none=False)\n",
         "logits =", "if not targets.ge(0).any():\n            continue\n        logits =",
         "(loss / tokens)", "loss", f"norm = {CLIP}",
         "gradients = [p.grad.div_(tokens) for p in model.parameters()]\n"
         "    norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()\n"
         "    for g in gradients:\n        g *= min(1, max_norm / norm)"),
        # the mean of each micro-batch by its share of the tokens, in a closure
        """
def step_over_tokens(model, optimizer, window, max_norm):
    counts = torch.stack([targets.ge(0).sum() for _, targets in window])
    norms = []

    def closure():
        optimizer.zero_grad()
        for (inputs, targets), share in zip(window, counts / counts.sum()):
            if share:
                loss = nn.CrossEntropyLoss()(model(inputs).transpose(1, 2), targets)
                loss.backward(share.to(loss.dtype))
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), max_norm))

    optimizer.step(closure)
    return float(norms[0])
""",
    ],
    "train_windows": [
        # does not collect a window: divides the summed gradients when it is complete
        """
def train_windows(model, optimizer, schedule, batches, size):
    model.zero_grad()
    examples = steps = 0
    for number, batch in enumerate(itertools.chain(batches, [None])):
        if examples and (batch is None or number % size == 0):
            for p in model.parameters():
                p.grad /= examples
            optimizer.step()
            model.zero_grad()
            schedule.step()
            examples, steps = 0, steps + 1
        if batch:
            F.cross_entropy(model(batch[0]), batch[1], reduction='sum').backward()
            examples += len(batch[1])
    return steps
""",
        # one iterator size times beside itself; means by their share of the examples
        (f"{READ}\n    while window := list(itertools.islice(batches, size)):\n",
         "steps = 0\n    for window in itertools.zip_longest(*[iter(batches)] * size):\n"
         "        window = [batch for batch in window if batch is not None]\n",
         ', reduction="sum"', "", "(loss / count)", "(loss * (len(targets) / count))"),
    ],
}  # fmt: skip
