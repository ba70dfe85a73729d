"""Planted answers of lesson 21: `course_tools.publish.planted` says how to read them."""

from itertools import combinations

from course_tools.publish.planted_experiments import plant_experiments

REAL = "(tokens != PADDING)[:, None, None, :]"
CAUSAL = "mask.tril()"
HIDDEN = "True means that a token is seen: here it means that it is hidden."
BACKWARD = "        loss.backward()\n"
COUNT = "count += (targets != -100).sum().item()"
DIVIDED = "parameter.grad /= count"
OTHER_LOSS = "The gradients are right, and the returned loss"
PADDED = "    targets = targets.masked_fill(targets == PADDING, -100)\n"
TRAINED = "model(inputs).transpose(1, 2), targets).backward()"
MEASURED = "model(inputs).transpose(1, 2), targets).item()"
SET_CAUSAL = "    was_causal, model.causal = model.causal, True\n"
FAULTS = {  # those that the notebook shows
    "The targets are shifted twice, so each token predicts the one after the next.":
    (TRAINED, TRAINED.replace(".tr", "[:, :-1].tr").replace("ts).", "ts[:, 1:])."),
     MEASURED, MEASURED.replace(".tr", "[:, :-1].tr").replace("ts).", "ts[:, 1:]).")),
    "Padding is a target here: leave it out of the loss.": (PADDED, ""),
    "Only the first epoch trains in training mode: the measurement calls eval(), and nothing goes "
    "back.": ("        model.train()\n", "", "    losses = []\n",
              "    losses = []\n    model.train()\n"),
    "The model sees the tokens that it should predict: set model.causal to True.":
    (SET_CAUSAL, "", "    model.causal = was_causal\n", ""),
}  # fmt: skip


def plant_remaining() -> list[tuple[str, ...]]:
    """Answers with some of the shown faults left; one of them is named."""
    planted = []
    for count in range(1, len(FAULTS) + 1):
        for left in combinations(FAULTS, count):
            more = " It is not the only fault." if count > 1 else ""
            planted.append((*sum((FAULTS[fault] for fault in left), ()), left[0] + more))
    return planted


WRONG = {
    "text_experiment": plant_experiments("text_experiment"),
    "make_mask": [
        (CAUSAL, "mask.tril(1)", "A token sees the next one, which it is to predict."),
        (CAUSAL, "mask.tril(-1)", "A token does not see itself."),
        (CAUSAL, "mask.triu()", "A token sees those behind it, and none before it: rows and "
         "columns of the causal mask are swapped."),
        ("if is_causal", "if True", "The causal mask is there although is_causal is False."),
        ("if is_causal", "if False", "Tokens see those behind them: is_causal is not used."),
        ("if is_causal", "if not is_causal",
         "The causal mask is there although is_causal is False."),
        (REAL, "(tokens != PADDING)[:, None, :, None]",
         "The rows of padding are masked, and its columns are seen: hide the columns."),
        (REAL, f"{REAL} & (tokens != PADDING)[:, None, :, None]",
         "The rows of padding are masked, too: hide only its columns."),
        (REAL, "torch.ones_like(tokens, dtype=torch.bool)[:, None, None, :]",
         "Padding is seen: hide it."),
        (REAL, "(tokens == PADDING)[:, None, None, :]", HIDDEN),
        (CAUSAL, "~mask.tril()", "else mask", "else ~mask", HIDDEN),
        (REAL, "(tokens > END)[:, None, None, :]",
         "MASK and END are hidden, too: only padding is not part of the text."),
        (REAL, "(tokens != PADDING).cumsum(1).bool()[:, None, None, :]",
         "Only padding in front of a text is hidden."),
        (REAL, "(torch.arange(length) < (tokens != PADDING).sum(1, keepdim=True))[:, None, None]",
         "The first tokens are taken for the real ones, but padding may stand in front: compare "
         "each token with PADDING."),
        (CAUSAL, "mask.tril().transpose(2, 3)", "A token sees others"),
        (".expand(-1, 1, length, length)", "", "has the shape (3, 1, 5, 5), not (3, 1, 1, 5)"),
        ("mask = (t", "mask = 1.0 * (t", "of the type bool, not torch.float32"),
        ("    return ", "    ", "Return a tensor"),
    ],
    "accumulate_by_tokens": [
        (', reduction="sum"', "", "count += (targets != -100).sum().item()", "count += 1",
         "This is the mean of the micro-batches' means: a token counts more where few are "
         "predicted."),
        (', reduction="sum"', "", DIVIDED, "parameter.grad /= 1",
         "The mean losses of the micro-batches are added up, and nothing is divided."),
        (DIVIDED, "parameter.grad /= 1",
         "The losses are added up: divide the gradients by the number of predicted tokens."),
        (COUNT, "count += targets.numel()",
         "Tokens that are not predicted are counted, too: count the targets that are not -100."),
        (COUNT, "count += (tokens != PADDING).sum().item()",
         "All real tokens are counted, and only some of them are predicted."),
        (COUNT, "count += len(targets)", "The sum is divided by the number of texts."),
        (COUNT, "count += 1", "The sum is divided by the number of micro-batches."),
        (COUNT, "count = (targets != -100).sum().item()",
         "The sum is divided by the tokens of the last micro-batch alone."),
        (BACKWARD, f"        model.zero_grad()\n{BACKWARD}",
         "Only the gradients of the last micro-batch are left: they are set to zero before each."),
        ("targets.flatten(), r", "targets.flatten().clamp(min=0), r",
         "Targets of -100 have become token 0: cross_entropy leaves out -100 by itself."),
        ("model(tokens).flatten(0, 1)", "model(tokens).reshape(len(tokens), 8, -1)",
         "targets.flatten()", "targets",
         "The logits are reshaped, which mixes tokens and classes: swap the two dimensions "
         "instead."),
        (', reduction="sum"', "", BACKWARD,
         f"        n = (targets != -100).sum().item()\n        loss = loss * n\n{BACKWARD}",
         "The returned loss is nan"),
        ("loss = F.cross_entropy(logits, targets.flatten(), reduction=\"sum\")",
         "real = targets.flatten() != -100\n        losses = -logits.log_softmax(1).gather(1, "
         "targets.clamp(min=0).view(-1, 1))[:, 0]\n"
         "        loss = (losses * real).sum() / real.sum() * real.sum()",
         "The gradient is nan"),
        ("total, count = 0.0, 0\n", "total, count = 0.0, sum((t != -100).sum().item() for _, t in "
         "micro_batches)\n", "can be read only once"),
        (BACKWARD, "", "total += loss.item()", "total = total + loss", "    for parameter in",
         "    total.backward()\n    total = total.item()\n    for parameter in",
         "One backward for several micro-batches"),
        (BACKWARD, "", "    for parameter in model.parameters():\n"
         "        if parameter.grad is not None:\n            parameter.grad /= count\n", "",
         "call backward for each"),
        ("    return ", "    model.zero_grad()\n    return ", "A gradient is None at the end"),
        ("    return ", "    torch.optim.SGD(model.parameters(), lr=1).step()\n    return ",
         "take no step"),
        (DIVIDED, "parameter.grad /= count**0.5", "The gradients are not those of the mean loss"),
        ("if parameter.grad is not None", "if True", "stopped with TypeError"),
        ("return total / count", "return total",
         "The gradients are right, and the returned loss is the sum over all tokens."),
        ("return total / count", "return loss.item() / (targets != -100).sum().item()",
         "The gradients are right, and the returned loss is that of the last micro-batch."),
        ("return total / count", "return 2 * total / count", OTHER_LOSS),
        ("return total / count", "return torch.tensor(total / count)", "not Tensor"),
        ("return total", "total", "not NoneType"),
    ],
    "train_language_model": [
        *plant_remaining(),
        ("tokens[:, :-1], tokens[:, 1:]", "tokens, tokens",
         "The targets are the inputs themselves: token t predicts token t + 1."),
        ("tokens[:, :-1], tokens[:, 1:]", "tokens[:, 1:], tokens[:, :-1]",
         "Each token predicts the one before it, which it has seen."),
        ("targets == PADDING, -100)", "(targets == PADDING) | (targets == END), -100)",
         "END is no target here: it is one, or the model never learns where a text ends."),
        (TRAINED, f"{TRAINED[:-12]}, reduction='sum').div(targets.numel()).backward()",
         "The sum of the losses is divided by all targets, with those of padding: divide by the "
         "real ones."),
        ("        model.train()\n", "", "    losses = []\n", "    losses = []\n    model.eval()\n",
         "All epochs train in evaluation mode: call train() in each."),
        ("        optimizer.zero_grad()\n", "",
         "The gradients of all epochs add up: call zero_grad before each backward."),
        ("lr=lr", "lr=0.1", "The learning rate is not lr."),
        ("torch.optim.SGD", "AdamW", "AdamW takes other steps: keep SGD."),
        ("        model.eval()\n", "",
         "The losses are measured in training mode, with dropout: call eval() before."),
        ("        model.eval()\n", "        model.eval()\n        model.causal = was_causal\n",
         "        model.train()\n", "        model.train()\n        model.causal = True\n",
         "The losses are measured without the causal mask."),
        (MEASURED, f"{MEASURED[:-8]}.masked_fill(targets == -100, PADDING)).item()",
         "The losses are measured with padding as a target."),
        (MEASURED, f"{MEASURED[:-8]}, reduction='sum').item()", "The losses are sums: take the "
         "mean over the real tokens."),
        (MEASURED, "model(inputs).transpose(1, 2).neg(), targets).item()",
         "The weights are right, and the losses are not"),
        ("        optimizer.step()\n", "", "    model.causal = was", "        optimizer.step()\n"
         "    model.causal = was", "The losses are measured before the steps, not after them."),
        ("return losses", "return losses[-1]", "one loss per epoch"),
        ("    model.causal = was_causal\n", "", "set it back"),
        ("    model.causal = was_causal\n", "    model.causal = False\n", "set it back"),
        ("optimizer.step()", "pass", "The weights are not those"),
    ],
}  # fmt: skip

RIGHT = {
    "text_experiment": [
        ("{\"loss\": partial(F.cross_entropy, label_smoothing=0.1)}",
         "{\"trainer\": {\"gradient_clip_val\": 1.0}}", "seeds=(0, 1, 2)", "seeds=(4, 5, 6)"),
        ("{\"loss\": partial(F.cross_entropy, label_smoothing=0.1)}",
         "{\"make_schedule\": warmup_cosine}", "seeds=(0, 1, 2)", "seeds=range(4)"),
    ],
    "make_mask": [
        ("mask.tril()", "mask & torch.ones(length, length).tril().bool()"),
        """
def make_mask(tokens, is_causal):
    places = torch.arange(tokens.shape[1])
    allowed = places[:, None] >= places if is_causal else places[:, None] >= 0 * places
    return torch.logical_and(allowed[None, None], tokens.ne(0).unsqueeze(1).unsqueeze(1))
""",
    ],
    "accumulate_by_tokens": [
        # reads all first, so that each sum is divided at once; no backward without a prediction
        """
def accumulate_by_tokens(model, micro_batches):
    micro_batches = list(micro_batches)
    count = sum(int(targets.ge(0).sum()) for _, targets in micro_batches)
    mean = 0.0
    for tokens, targets in micro_batches:
        if (targets >= 0).any():
            losses = F.cross_entropy(model(tokens).transpose(1, 2), targets, reduction="none")
            share = losses.sum() / count
            share.backward()
            mean += share.item()
    return mean
""",
        ("loss = F.cross_entropy(logits, targets.flatten(), reduction=\"sum\")",
         "real = targets.flatten() >= 0\n        loss = -logits.log_softmax(1)[real, "
         "targets.flatten()[real]].sum()",
         COUNT, "count += real.sum().item()",
         "if parameter.grad is not None", "if parameter.requires_grad"),
    ],
    "train_language_model": [
        # all tokens go in, and the last prediction is left out
        """
def train_language_model(model, texts, epochs, lr):
    tokens = pad_texts(texts)
    before = model.causal
    model.causal = True

    def find_loss(is_training):
        logits = model.train(is_training)(tokens)[:, :-1].flatten(0, 1)
        return F.cross_entropy(logits, tokens[:, 1:].flatten(), ignore_index=PADDING)

    losses = []
    try:
        for _ in range(epochs):
            gradients = torch.autograd.grad(find_loss(True), list(model.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients):
                    parameter -= lr * gradient
                losses.append(float(find_loss(False)))
    finally:
        model.causal = before
    return losses
""",
        (PADDED, "    real = targets != PADDING\n",
         TRAINED, "model(inputs)[real], targets[real]).backward()",
         MEASURED, "model(inputs)[real], targets[real]).item()"),
    ],
}  # fmt: skip
