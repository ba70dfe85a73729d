"""Planted answers of the lesson's exercises."""

EXPERIMENT = """
def precision_experiment(train):
    fp32 = [train("32-true", {lr}, seed) for seed in {seeds}]
    bf16 = [train("{variant}", {other_lr}, seed) for seed in {other_seeds}]
    found = paired_difference(fp32, bf16)
    low, high = found.low, found.high
    {after}
    return fp32, bf16, low, high
"""


RIGHT_EXPERIMENT = {
    "lr": "3e-4",
    "other_lr": "3e-4",
    "variant": "bf16-true",
    "seeds": "(0, 1, 2)",
    "other_seeds": "(0, 1, 2)",
    "after": "",
}


SPACING = """
def find_spacing(value, dtype):
    info = torch.finfo(dtype)
    _, exponent = math.frexp(max(value, info.smallest_normal))
    return {value}
"""


SCALED = """
def train_scaled(model, optimizer, schedule, scaler, batches, max_norm):
    taken = 0
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        {unscale}
        {clip}
        before = scaler.get_scale()
        {step}
        {update}
        if {really}:
            {move}
            taken += 1
    return taken
"""


MIXED = """
def train_mixed(model, batches, lr):
    {first}
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    total = {total}
    for images, targets in batches:
        with {context}:
            logits = model(images)
            {inside}
        optimizer.zero_grad()
        loss.backward()
        {step}
        total += loss.{number}
    {last}
    return {value}
"""


# the function of the lesson that has three faults, with some of them put right
BUGGY = """
def train_mixed(model, batches, lr):
    {first}
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    total = {total}
    for images, targets in batches:
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(images.bfloat16())
        loss = F.cross_entropy({logits}, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return (total / len(batches)).item()
"""


RIGHT_SCALED = {
    "unscale": "scaler.unscale_(optimizer)",
    "clip": "nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
    "step": "scaler.step(optimizer)",
    "update": "scaler.update()",
    "really": "scaler.get_scale() >= before",
    "move": "schedule.step()",
}


RIGHT_MIXED = {
    "first": "pass",
    "total": "0.0",
    "context": "torch.autocast('cpu', torch.bfloat16)",
    "inside": "loss = F.cross_entropy(logits, targets)",
    "step": "optimizer.step()",
    "number": "item()",
    "last": "pass",
    "value": "total / len(batches)",
}


LESSON = {
    "first": "model.bfloat16()",
    "total": "torch.zeros((), dtype=torch.bfloat16)",
    "logits": "logits",
}


LOG = "math.floor(math.log2(max(value, info.smallest_normal)))"


def _spacing(value: str) -> str:
    return SPACING.format(value=value)


def _scaled(**changed: str) -> str:
    return SCALED.format(**RIGHT_SCALED | changed)


def _mixed(**changed: str) -> str:
    return MIXED.format(**RIGHT_MIXED | changed)


def _buggy(**changed: str) -> str:
    return BUGGY.format(**LESSON | changed)


def _experiment(**changed: str) -> str:
    return EXPERIMENT.format(**RIGHT_EXPERIMENT | changed)


WRONG_ANSWERS = {
    "precision_experiment": [
        (_experiment(after="low, high = high, low"), "edges are swapped"),
        (_experiment(after="low, high = 100 * low, 100 * high"), "edges are in points"),
        (_experiment(after="low, high = -high, -low"), "sign is turned round"),
        (_experiment(after="low, high = -0.5, 0.5"), "The 95 % interval of these accuracies is"),
        (_experiment(other_lr="1e-3"), "same learning rate"),
        (_experiment(other_seeds="(3, 4, 5)"), "same seeds"),
        (_experiment(seeds="(0, 1)", other_seeds="(0, 1)"), "take 3 or more"),
        (_experiment(seeds="(0, 1, 1)", other_seeds="(0, 1, 1)"), "A seed is there twice"),
        (_experiment(variant="bf16"), "The variants are 32-true and bf16-true"),
        (_experiment(variant="32-true"), "Train both variants: call train for each"),
        (_experiment(after="return fp32, bf16"), "Return four things"),
        (_experiment(after="return"), "is there a return"),
        (_experiment(after="fp32 = [0.5, 0.6, 0.7]; found = paired_difference(fp32, bf16); "
                           "low, high = found.low, found.high"), "are not those of its trainings"),
    ],
    "find_spacing": [
        (_spacing("info.eps * 2.0 ** round(math.log2(max(value, info.smallest_normal)))"),
         "float32, 1.5: .*from the next power of two on"),
        (_spacing(f"info.eps * 2.0 ** {LOG}"), "float64, .* log2 is rounded up"),
        (_spacing("info.eps * 2.0 ** (math.frexp(value)[1] - 1)"), "all below smallest_normal"),
        (_spacing("info.eps * 2.0 ** (exponent - 1) if value >= info.smallest_normal"
                  " else info.smallest_normal"), "all below smallest_normal"),
        (_spacing("info.eps * 2.0 ** max(exponent - 1, 0)"), "from 1 to 2 only"),
        (_spacing("torch.finfo(torch.float32).eps * 2.0 ** (exponent - 1)"),
         "float16, 1: to the next number it is 0.000977.*spacing in float32"),
        (_spacing("math.ulp(value)"), "float32, 1: .*spacing in float64"),
        (_spacing("torch.tensor(info.eps * 2.0 ** (exponent - 1))"), "Return a Python float"),
        (_spacing("None"), "Return a Python float"),
    ],
    "train_scaled": [
        (_scaled(unscale="pass"), "clipped while it is scaled"),
        (_scaled(really="True"), "but not after a skipped one"),
        (_scaled(really="True", move="if scaler.get_scale() >= before: schedule.step()"),
         "5 of 7 batches led to a step, not 7"),
        (_scaled(really="scaler.get_scale() == before"), "also if the scale has grown"),
        (_scaled(step="done = scaler.step(optimizer)", really="done is not None"),
         "stepped 0 times in 7 steps: once after each.$"),
        (_scaled(update="pass"), "without update"),
        (_scaled(clip="nn.utils.clip_grad_value_(model.parameters(), max_norm)"),
         "clip its norm"),
        (_scaled().replace("        scaler.scale", "        if not loss.isfinite():\n"
                           "            continue\n        scaler.scale"), "scale ends at 256"),
        (_scaled(step="optimizer.step()"), "optimizer.step.. takes each step"),
        (_scaled(unscale="pass", clip="pass", step="optimizer.step()", update="pass"),
         "The step is scaled"),
        (_scaled(step="schedule.step(); scaler.step(optimizer)", move="pass"), "comes too early"),
    ],
    "train_mixed": [
        (_buggy(), "autocast needs no model.bfloat16"),
        (_buggy(first="pass"), "The (loss|total) has only the digits of bf16"),
        (_buggy(first="pass", total="torch.zeros(())"), "The loss has only the digits of bf16"),
        (_buggy(first="pass", logits="logits.float()"), "The total has only the digits of bf16"),
        (_mixed(first="model.bfloat16()", last="model.float()"), "autocast needs no"),
        (_mixed(first="model.bfloat16().float()"), "autocast needs no"),
        (_mixed(step="optimizer.step(); model.bfloat16().float()"), "are rounded to bf16"),
        (_mixed(context="torch.enable_grad()"), "logits are torch.float32, not bf16"),
        (_mixed(inside="loss = F.nll_loss(logits.log_softmax(1), targets)"),
         "The loss has only the digits of bf16"),
        (_mixed(inside="loss = -logits.log_softmax(1).gather(1, targets[:, None]).mean()"),
         "The loss has only the digits of bf16"),
        (_mixed(total="0", number="item() * len(targets)",
                value="total / sum(len(targets) for _, targets in batches)"),
         "mean over the images"),
        (_mixed(value="loss.item()"), "The mean loss over"),
        (_mixed(total="torch.zeros((), dtype=torch.float16)", value="total.item() / len(batches)"),
         "The mean loss over"),
        (_mixed(number="detach()"), "Return a Python float"),
        (_mixed(step="pass"), "never change"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "precision_experiment": [
        # several learning rates, of which the one with the largest loss is reported; NumPy
        """
def precision_experiment(train):
    found = {}
    for lr in (1e-3, 1e-4):
        pairs = [[train(v, lr, seed) for v in ("32-true", "bf16-true")] for seed in (5, 3, 8, 1)]
        found[lr] = np.array(pairs).T
    fp32, bf16 = min(found.values(), key=lambda pair: (pair[1] - pair[0]).mean())
    difference = paired_difference(fp32, bf16)
    return fp32, bf16, difference.low, difference.high
""",
        # the interval by hand
        """
def precision_experiment(train):
    from scipy import stats

    both = np.array([[train(v, 1e-4, s) for s in range(3)] for v in ("32-true", "bf16-true")])
    change = both[1] - both[0]
    half = stats.t.ppf(0.975, 2) * change.std(ddof=1) / math.sqrt(3)
    return list(both[0]), list(both[1]), change.mean() - half, change.mean() + half
""",
    ],
    "find_spacing": [
        # climbs or descends from 1 by doubling
        """
def find_spacing(value, dtype):
    info, power = torch.finfo(dtype), 1.0
    while 2 * power <= value:
        power *= 2
    while power > value and power > info.smallest_normal:
        power /= 2
    return power * info.eps
""",
        # from the spacing of Python's own floats
        """
def find_spacing(value, dtype):
    info = torch.finfo(dtype)
    smallest = info.smallest_normal * info.eps
    return max(smallest, math.ulp(value) * (info.eps / math.ulp(1.0)))
""",
    ],
    "train_scaled": [
        # clips the scaled gradient to the scaled norm, and leaves it to step to unscale
        """
def train_scaled(model, optimizer, schedule, scaler, batches, max_norm):
    taken = []
    for inputs, targets in batches:
        model.zero_grad()
        scale = scaler.get_scale()
        scaler.scale(nn.CrossEntropyLoss()(model(inputs), targets)).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm * scale)
        scaler.step(optimizer)
        scaler.update()
        taken.append(bool(norm.isfinite()))
        if taken[-1]:
            schedule.step()
    return sum(taken)
""",
        # the optimizer tells of each step; clips by hand
        """
def train_scaled(model, optimizer, schedule, scaler, batches, max_norm):
    steps = []
    hook = optimizer.register_step_post_hook(lambda *_: steps.append(schedule.step()))
    for inputs, targets in batches:
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        gradients = [p.grad for p in model.parameters()]
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        if norm > max_norm:
            for gradient in gradients:
                gradient.mul_(max_norm / norm)
        scaler.step(optimizer)
        scaler.update()
    hook.remove()
    return len(steps)
""",
    ],
    "train_mixed": [
        # the loss outside of autocast, of logits with 32 bits; the step by hand; a mean of tensors
        """
def train_mixed(model, batches, lr):
    losses = []
    for images, targets in batches:
        model.zero_grad()
        with torch.autocast('cpu', torch.bfloat16):
            logits = model(images.bfloat16())
        chosen = logits.float().log_softmax(1).gather(1, targets[:, None])
        (-chosen.mean()).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= lr * p.grad
        losses.append(-chosen.mean().detach())
    return torch.stack(losses).mean().item()
""",
        # autocast as a decorator; the optimizer calls the closure
        """
def train_mixed(model, batches, lr):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(images):
        return model(images)

    def closure():
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(forward(images).float(), targets)
        loss.backward()
        return loss

    optimizer, mean = SGD(model.parameters(), lr), 0.0
    for count, (images, targets) in enumerate(batches, start=1):
        mean += (optimizer.step(closure).item() - mean) / count
    return mean
""",
    ],
}
