"""Planted answers of lesson 22: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import plant_experiments

LIMIT = "math.ceil(factor * len(chosen) / num_experts)"
BEYOND = "place > limit"
PROBABILITIES = "logits[is_real].softmax(dim=1)"
SHARE = "torch.bincount(probabilities.argmax(dim=1), minlength=count) / len(probabilities)"
RESULT = "count * (share * probabilities.mean(dim=0)).sum()"

WRONG = {
    "experts_experiment": plant_experiments("experts_experiment"),
    "list_dropped": [
        (BEYOND, "place >= limit", "An expert takes one token too few: its last place is free."),
        (BEYOND, "place > limit + 1",
         "These are other tokens than those beyond the capacity of their expert."),
        (BEYOND, "place <= limit", "The tokens that are kept are marked, not the dropped ones."),
        (LIMIT, "int(factor * len(chosen) / num_experts)",
         "The capacity is rounded down: round it up."),
        (LIMIT, "math.ceil(factor * len(chosen))",
         "The capacity is that of all experts together: divide by their number."),
        (LIMIT, "math.ceil(len(chosen) / num_experts)", "The factor is not used."),
        ("one_hot.cumsum(dim=0)", "one_hot.flip(0).cumsum(dim=0).flip(0)",
         "The first tokens are dropped: the last ones should be."),
        ("(one_hot.cumsum(dim=0) * one_hot).sum(dim=1)",
         "torch.arange(1, len(chosen) + 1)",
         "Tokens are counted for all experts together, and each expert has places of its own."),
        ("    return ", "    ", "Return a tensor"),
        (f"return {BEYOND}", f"return ({BEYOND}).nonzero()[:, 0]", "Return one value per token"),
        (BEYOND, f"1.0 * ({BEYOND})", "Return bool"),
    ],
    "find_balance": [
        (PROBABILITIES, "logits.softmax(dim=1)", "Padding counts: take the real tokens alone."),
        (PROBABILITIES, "logits[is_real].softmax(dim=0)",
         "The softmax runs over the tokens: it runs over the experts, dim=1."),
        (PROBABILITIES, "logits[is_real]", "These are logits in place of probabilities."),
        (PROBABILITIES, f"{PROBABILITIES}.detach()", "has no gradient"),
        (RESULT, "(share * probabilities.mean(dim=0)).sum()",
         "The factor n is missing, so equal use does not give 1."),
        (RESULT, "count * (share * share).sum() + 0 * probabilities.sum()",
         "This is n Σ f f: P, the mean probabilities, is missing."),
        (RESULT, "count * (probabilities.mean(dim=0) ** 2).sum()",
         "This is n Σ P P: f, the shares of the choices, is missing."),
        (RESULT, f"{RESULT} + 1", "n Σ f P of the real tokens is"),
        (RESULT, f"({RESULT}).detach() + (share * probabilities.mean(dim=0)).sum() "
         "- (share * probabilities.mean(dim=0)).sum().detach()", "and its gradient is not"),
        (RESULT, f"({RESULT}).item()", "Return a tensor, one number"),
    ],
    "mix_experts": [
        ("router(x).softmax(dim=1)", "router(x)",
         "The gates are logits: there is no softmax, so a gate may be negative."),
        (" / gates.sum(dim=1, keepdim=True)", "",
         "The gates of the chosen experts do not sum to one."),
        ("y.index_add(0, rows,", "y.index_copy(0, rows,",
         "An expert's output replaces that of another: add them."),
        ("gates = gates /", "gates = gates.detach() /", "gates.sum", "gates.detach().sum",
         "the router gets no gradient"),
        ("gates[rows, place, None]", "gates[rows, 0, None]",
         "Each chosen expert gets the gate of the best one."),
        ("gates[rows, place, None] *", "1 / k *", "The experts are averaged: use the gates."),
        ("    return y", "    return y.detach()", "Nothing can be trained"),
        ("    return y", "    pass", "Return a tensor"),
        ("    return y", "    return y[None]", "Return the shape"),
        ("    return y", "    return y + x",
         "are not the sum of the"),
        ("gates = gates /", "gates = 2 * gates - gates.detach()\n    gates = gates /",
         "gates.sum(", "gates.detach().sum(", "and the router's gradient is not"),
    ],
}  # fmt: skip

RIGHT = {
    "experts_experiment": [
        ("(0, 1, 2)", "(3, 4, 5)"),
        ("balance=0.0", "num_experts=8"),
    ],
    "list_dropped": [
        (BEYOND, "place - 1 >= limit"),
        ("(one_hot.cumsum(dim=0) * one_hot).sum(dim=1)",
         "one_hot.cumsum(dim=0).gather(1, chosen[:, None])[:, 0]"),
    ],
    "find_balance": [
        (SHARE, "F.one_hot(probabilities.argmax(dim=1), count).float().mean(dim=0)"),
        (RESULT, "count * torch.dot(share.double(), probabilities.mean(dim=0))"),
    ],
    "mix_experts": [
        ("y.index_add(0, rows,", "y.index_put((rows,),", "expert(x[rows]))",
         "expert(x[rows]), accumulate=True)"),
        ("gates / gates.sum(dim=1, keepdim=True)", "F.normalize(gates, p=1, dim=1)"),
    ],
}  # fmt: skip
