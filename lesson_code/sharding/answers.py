"""Planted answers of lesson 20: `course_tools.publish.planted` says how to read them."""

import itertools

OWN = "sum(-(-unit // ranks) for unit in units)"
RUN = "found = run_ranks(zero, arguments=arguments, processes=ranks, environment=ON_CPU)"
HELD = 'found["ways"]["fully_shard"][0]["held"]'
RETURN = f"return predicted, {HELD}"


def predict(change: str, sentence: str) -> tuple[str, ...]:
    """Another prediction beside a right measurement, for which no ranks have to start."""
    return (RUN, "", RETURN, f"return {change}, predicted", sentence)


def scale(weights: str, gradients: str) -> str:
    return (
        f'{{"weights": {weights} * predicted["weights"], '
        f'"gradients": {gradients} * predicted["gradients"], '
        '"optimizer state": predicted["optimizer state"]}'
    )


PARTS = "part, frozen_part = -(-trained // ranks), -(-frozen // ranks)"
WHOLE = "whole = trained if stage == 0 else ranks * part"
WEIGHTS = "part + frozen_part if stage == 3 else whole + frozen"
GRADIENTS = '"gradients": 4 * (part if stage >= 2 else whole)'
STATE = '"optimizer state": 8 * (part if stage >= 1 else whole)'
OUTCOME = (
    '    return {\n        "weights": 4 * weights,\n'
    f"        {GRADIENTS},\n        {STATE},\n    }}"
)

START = "start = rank * length"
LOAD = "    optimizer.load_state_dict(states[rank])\n"
GRADIENT = "gradient = compute_gradient(weights)"
DIVIDE = "        own.grad /= size\n"
GATHER = "group.all_gather_single(weights, own.detach())"
COPY = "gathered = torch.empty_like(weights)\n        " + GATHER.replace("(weights", "(gathered")
SHIFTED = "the parts are shifted by one: rank 0 owns the first P / size numbers."
FIRST_STATE = "every rank loads rank 0's running means: load what this rank has saved."
TWICE = "the gradient is divided twice: once, before the reduce-scatter or after it, is the mean."
STALE = "the new weights go into a copy: every gradient is computed at the weights of the start."
FAULTS = [  # the function in the lesson has all of them
    ((START, "start = min(rank * length + 1, len(weights) - length)"), SHIFTED),
    (("states[rank]", "states[0]"), FIRST_STATE),
    ((GRADIENT, f"{GRADIENT} / size"), TWICE),
    ((GATHER, COPY, "return weights", "return gathered"), STALE),
]


def plant_faults() -> list[tuple[str, ...]]:
    """Each set of the faults; its author is told the first of them."""
    found = []
    for count in range(1, len(FAULTS) + 1):
        for chosen in itertools.combinations(FAULTS, count):
            patches = itertools.chain.from_iterable(patch for patch, _ in chosen)
            found.append((*patches, chosen[0][1]))
    return found


TURNS, BATCH = "range(-ahead, batches)", "turn + ahead"

WRONG = {
    "measure_own": [
        predict(
            scale("ranks", "ranks").replace('predicted["optimizer', 'ranks * predicted["optimizer'),
            "The prediction is that of DDP: ZeRO 3 divides all three parts.",
        ),
        predict(
            scale("ranks", "ranks"),
            "The prediction is that of ZeRO 1: stage 3 divides weights and gradients too.",
        ),
        predict(
            scale("ranks", "1"),
            "The prediction is that of ZeRO 2: stage 3 divides the weights too.",
        ),
        predict(
            "{part: size // 4 for part, size in predicted.items()}",
            "The prediction has numbers, not bytes: fp32 has 4 bytes for each.",
        ),
        predict(
            "{part: size + 4 for part, size in predicted.items()}", "count the parameters with"
        ),
        predict("None", "The prediction is no dictionary with the keys"),
        predict(
            "{part: size / 1 for part, size in predicted.items()}",
            "The prediction: give whole bytes, as ints.",
        ),
        (RUN, "", RETURN, "return predicted", "Return two dictionaries"),
        (RUN, "", HELD, 'predicted | {"weights": 0}', "The measured bytes"),
        (RUN, "", HELD, "None", "The measurement is no dictionary with the keys"),
        (
            '["fully_shard"]}',
            '["DDP"]}',
            '["fully_shard"][0]',
            '["DDP"][0]',
            "are not those of rank 0 of 2 with 1 block",
        ),
    ],
    "count_beside_frozen": [
        (STATE, STATE.replace("optimizer ", ""), "The answer has no key optimizer state"),
        (
            PARTS,
            "part, frozen_part = trained // ranks, frozen // ranks",
            "a part is rounded down: some numbers belong to no rank.",
        ),
        (
            WEIGHTS,
            "-(-(trained + frozen) // ranks) if stage == 3 else whole + frozen",
            "the trained and the frozen parameters are cut separately: round up each of them.",
        ),
        (
            WHOLE,
            "whole = trained",
            "the whole vector is padded too, because parts are gathered into it.",
        ),
        (WHOLE, "whole = ranks * part", "without parts, in stage 0, nothing is padded."),
        (
            GRADIENTS,
            GRADIENTS.replace("whole)", "whole + frozen)"),
            "frozen parameters have no gradients.",
        ),
        (
            STATE,
            STATE.replace("whole)", "whole + frozen)"),
            "frozen parameters have no optimizer state.",
        ),
        (
            STATE,
            STATE.replace("8", "4"),
            "AdamW has two running means: 8 bytes for each trained number.",
        ),
        (
            WEIGHTS,
            "part + frozen if stage == 3 else whole + frozen",
            "stage 3 divides the frozen weights too.",
        ),
        (
            WEIGHTS,
            "part + frozen_part if stage == 3 else whole + frozen_part",
            "only stage 3 divides the frozen weights.",
        ),
        (
            WEIGHTS,
            "part + frozen_part if stage == 3 else whole + "
            "(ranks * frozen_part if stage else frozen)",
            "frozen weights are padded in stage 3 alone.",
        ),
        (WEIGHTS, "part if stage == 3 else whole", "a frozen parameter has a weight too."),
        (
            WEIGHTS,
            "part + frozen_part if stage >= 2 else whole + frozen",
            "stage 2 leaves the weights whole.",
        ),
        (GRADIENTS, GRADIENTS.replace(">= 2", ">= 1"), "stage 1 leaves the gradients whole."),
        (STATE, STATE.replace(">= 1", ">= 2"), "stage 1 divides the optimizer state."),
        (WEIGHTS, "3", "weights: 12 bytes, where"),
        (
            '"weights": 4 * weights',
            '"weights": 4.0 * weights',
            "The answer: give whole bytes, as ints.",
        ),
        (OUTCOME, "    return 4 * weights", "The answer is no dictionary with the keys"),
    ],
    "train_sharded": [
        *plant_faults(),
        (LOAD, "", "the optimizer begins anew: load the running means that this rank has saved."),
        (DIVIDE, "", "the gradients are summed, not averaged: divide by size."),
        (GATHER, "pass", "the weights are those of the start: gather the new parts."),
        (
            GATHER,
            "weights[start : start + length] = own.detach()",
            "the ranks end with different weights: gather all parts.",
        ),
        (GATHER, f"if rank == 0:\n            {GATHER}", "all ranks must make the same calls"),
        ("return weights", "return own", "returns no tensor of the 6 weights"),
        (
            GRADIENT,
            f"{GRADIENT} + 0 * compute_gradient(weights)",
            "compute the gradient once in each of 3",
        ),
        (GRADIENT, "gradient = compute_gradient(own)", "compute_gradient takes all weights"),
        (
            "length = len(weights) // size",
            "length = len(weights)",
            "all ranks must make the same calls",
        ),
        (GRADIENT, f"{GRADIENT}.neg()", "not the weights of one process: look"),
    ],
    "schedule_pipeline": [
        (TURNS, "range(-batches, batches)", BATCH, "turn + batches", "store less, free earlier"),
        (TURNS, "range(batches)", BATCH, "turn", "units of time, and 38 are allowed"),
        (
            "            if ahead > 0:\n                yield send",
            "            if rank < 3:\n                yield send",
            "but not 2 ranks with 5 batches",
        ),
        ("    yield update(rank)\n", "", "update"),
        ("    yield store(state(rank))\n", "", "state"),
        ("yield recv(activation(rank, batch), rank - 1)", "pass", "activation"),
        ("yield send(activation(rank + 1, batch), rank + 1)", "pass", "never sends it"),
        ("yield backward(rank, turn)", "pass", "gradient"),
        (TURNS, "range(-ahead, batches - 1)", "batch"),
        (TURNS, "range(-min(ahead, batches), batches)", "but not 4 ranks with 2 batches"),
        ("store(weight(rank))", "store(weight(0))", "weight"),
        ("    yield update(rank)", "    return None\n    yield update(rank)", "update"),
    ],
}
RIGHT = {
    "measure_own": [
        (OWN, "sum(map(lambda unit: (unit + ranks - 1) // ranks, units))"),
        (RUN, "", RETURN, "return predicted, dict(predicted)"),
    ],
    "count_beside_frozen": [
        (
            PARTS,
            "part, frozen_part = ((n + ranks - 1) // ranks for n in (trained, frozen))",
        ),
        (
            f"    {WHOLE}\n    weights = {WEIGHTS}",
            "    whole = ranks * part if stage else trained\n"
            "    weights = [whole + frozen, part + frozen_part][stage == 3]",
        ),
    ],
    "train_sharded": [
        (GRADIENT, f"{GRADIENT} / size", DIVIDE, ""),
        (
            START,
            "start = len(weights) // size * rank",
            GATHER,
            "gathered = torch.empty_like(weights)\n        "
            "group.all_gather_single(gathered, own.detach())\n        weights = gathered",
        ),
    ],
    "schedule_pipeline": [
        ("ranks - rank - 1", "ranks - (rank + 1)"),
        (
            "    yield store(weight(rank))\n    yield store(state(rank))\n",
            "    yield store(state(rank))\n    yield store(weight(rank))\n",
        ),
    ],
}
