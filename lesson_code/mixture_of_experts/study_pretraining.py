"""What lesson 22 reads of pretraining: experts against dense networks, ten paired seeds.

A small transformer learns to predict the next token of definitions, in one pass over as many of
them for each variant. Declared before it was trained: the variants, the ten seeds, and a margin of
0.02 nats, which is the course's own for a loss. Sizes were found on seed 200. The learning rate of
each variant was found on seed 100, from three values around those that were good for the dense
network and for experts in a shorter training of that seed. *Dense, as long* sees half as many
definitions more, 45,000 in place of 30,000, because over the trainings of seed 100 the experts took
1.5 times the processor time of the dense network; it has the learning rate of the dense network.
(Before its first training it was to see 40,000, from a shorter measurement on seed 200.)

One thread; each training is kept when it has ended, and those that are kept are not repeated:

    .venv/bin/python -m lesson_code.mixture_of_experts.study_pretraining
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from course_tools.pretrain.texts import TextRecipe, train
from course_tools.study.keep import keep
from course_utils.data.glosses import read_split
from course_utils.data.tokens import encode_texts, make_tokenizer, pad_texts
from course_utils.measure.memory import count_parameters
from course_utils.models.text_small import PADDING, TextSmall
from course_utils.results import read_file
from lesson_code.mixture_of_experts.experts import list_experts, use_experts, widen

PATH = Path(__file__).with_suffix(".json")
VOCABULARY = 512  # few tokens, so that most of the parameters are in the blocks, as in large models
WIDTH, DEPTH = 64, 2
NUM_TRAIN, NUM_LONGER, NUM_VAL = 30_000, 45_000, 1000  # definitions; the last ones are held out
BATCH_TOKENS = 1024
LEARNING_RATES = (1.5e-3, 3e-3, 6e-3)
SEARCH_SEED, SEEDS = 100, tuple(range(10))
MARGIN = 0.02  # nats per token
VARIANTS = {
    "dense": lambda model: model,
    "experts": use_experts,
    "wide": widen,
}
LONGER = "dense, as long"


@torch.no_grad()
def measure(model: TextSmall, texts: Sequence[np.ndarray]) -> dict[str, Any]:
    """Loss in nats per token and accuracy on held-out texts, and the share of each expert."""
    model.eval()
    loss, right, count = 0.0, 0, 0
    use = torch.zeros(len(list_experts(model)), 4)
    ordered = sorted(texts, key=len)
    for start in range(0, len(ordered), 100):
        tokens = pad_texts(ordered[start : start + 100])
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        is_target = targets != PADDING
        logits = model.predict_tokens(model.encode(inputs)[is_target])  # (M, V)
        loss += F.cross_entropy(logits, targets[is_target], reduction="sum").item()
        right += int((logits.argmax(dim=1) == targets[is_target]).sum())
        count += len(logits)
        for total, layer in zip(use, list_experts(model), strict=True):
            total += torch.tensor(layer.sizes)
    shares = (use / use.sum(dim=1, keepdim=True)).tolist()
    return {
        "loss": round(loss / count, 5),
        "accuracy": round(right / count, 5),
        "use": [[round(x, 4) for x in layer] for layer in shares],
    }


def train_variant(
    variant: str, lr: float, seed: int, texts: Sequence[np.ndarray], held_out: Sequence[np.ndarray]
) -> dict[str, Any]:
    """Train one network from random weights; processor time is that of the training alone."""
    torch.manual_seed(seed)
    model = TextSmall(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH)
    VARIANTS.get(variant, VARIANTS["dense"])(model)
    seen = texts[: NUM_LONGER if variant == LONGER else NUM_TRAIN]
    recipe = TextRecipe(epochs=1, batch_tokens=BATCH_TOKENS, peak_lr=lr)
    start = time.process_time()
    train(model, seen, recipe, seed, report=lambda line: None)
    seconds = time.process_time() - start
    about = {"variant": variant, "lr": lr, "seed": seed, "seconds": round(seconds, 2)}
    tokens = sum(map(len, seen))
    return (
        about | measure(model, held_out) | {"tokens": tokens, "parameters": count_parameters(model)}
    )


def choose_lr(rows: Sequence[dict], variant: str) -> float:
    """The learning rate with the lowest loss on the search seed."""
    name = "dense" if variant == LONGER else variant
    found = [x for x in rows if x["variant"] == name and x["seed"] == SEARCH_SEED]
    return min(found, key=lambda row: row["loss"])["lr"]


def main() -> None:
    torch.set_num_threads(1)
    raw = [text for _, text in read_split("pretraining")]
    texts = encode_texts(make_tokenizer(raw[:-NUM_VAL], VOCABULARY), raw)
    held_out = texts[-NUM_VAL:]
    rows: list[dict] = read_file(PATH)["rows"] if PATH.is_file() else []
    done = {(row["variant"], row["lr"], row["seed"]) for row in rows}

    def add(variant: str, lr: float, seed: int) -> None:
        if (variant, lr, seed) in done:
            return
        rows.append(train_variant(variant, lr, seed, texts, held_out))
        print(rows[-1], flush=True)
        keep(
            PATH,
            "python -m lesson_code.mixture_of_experts.study_pretraining",
            search_seed=SEARCH_SEED,
            seeds=SEEDS,
            margin=MARGIN,
            threads=1,
            recipe={
                "vocabulary": VOCABULARY,
                "width": WIDTH,
                "depth": DEPTH,
                "definitions": NUM_TRAIN,
                "definitions_longer": NUM_LONGER,
                "held_out": NUM_VAL,
                "batch_tokens": BATCH_TOKENS,
                "learning_rates": LEARNING_RATES,
            },
            rows=rows,
        )

    for variant in VARIANTS:
        for lr in LEARNING_RATES:
            add(variant, lr, SEARCH_SEED)
    for seed in SEEDS:
        for variant in (*VARIANTS, LONGER):
            add(variant, choose_lr(rows, variant), seed)


if __name__ == "__main__":
    sys.exit(main())
