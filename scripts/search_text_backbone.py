"""Which small transformer, pretrained how, serves best? The table in ``data/README.md``.

    python -m scripts.search_text_backbone

Each of ``CANDIDATES`` is pretrained on the definitions that have no label, and judged by a fixed
transfer test. What ``data/results/text_backbone_search.json`` has already is not done again, so the
search can be stopped after any of them. It takes about an hour and a half on one core.
"""

import copy
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_tools.pretrain.texts import TextRecipe, make_adamw, train
from course_utils.data.glosses import open_glosses, read_split
from course_utils.data.split import split_stratified
from course_utils.data.tokens import encode_texts, make_tokenizer, pad_texts
from course_utils.files import ROOT, write_atomically
from course_utils.measure.provenance import describe_making
from course_utils.models.text_small import PADDING, TextSmall
from course_utils.results import read_file
from course_utils.training.schedules import warmup_cosine

__all__ = ["CANDIDATES", "RESULTS", "Candidate", "main", "transfer"]

RESULTS = ROOT / "data" / "results" / "text_backbone_search.json"
SEEDS = (100, 101)  # of the transfer test; lessons and studies report others
LABELLED = {125: 16, 500: 10, 2000: 6}  # definitions: epochs
WAYS = {"last layer": 1e-2, "everything": 1e-3}  # learning rates
NUM_VAL = 2000
ONE_EPOCH = TextRecipe(epochs=1)


class SearchedText(TextSmall):
    """`TextSmall` with a choice of what the others do not have: pooling, and its own last layer."""

    def __init__(self, tied: bool, **sizes: int):
        super().__init__(**sizes)
        self.pooling = "mean"
        self.vocabulary = None if tied else nn.Linear(sizes["width"], sizes["vocabulary"])

    def predict_tokens(self, vectors: Tensor) -> Tensor:
        return self.vocabulary(vectors) if self.vocabulary else super().predict_tokens(vectors)

    def pool(self, tokens: Tensor) -> Tensor:
        """Tokens ``(N, T)`` to one vector for each text ``(N, D)``, which the last layer gets."""
        real, vectors = tokens != PADDING, self.encode(tokens)
        if self.pooling == "mean":
            return (vectors * real.unsqueeze(-1)).sum(dim=1) / real.sum(dim=1, keepdim=True)
        if self.pooling == "max":
            return vectors.masked_fill(~real.unsqueeze(-1), -torch.inf).amax(dim=1)
        last = real.sum(dim=1) - 1  # the token that ends each text
        return vectors[torch.arange(len(tokens), device=tokens.device), last]

    def forward(self, tokens: Tensor) -> Tensor:
        return self.fc(self.pool(tokens))


@dataclass(frozen=True)
class Candidate:
    """A network and its pretraining; all have fewer than 2.1 million parameters below the head."""

    recipe: TextRecipe = ONE_EPOCH
    vocabulary: int = 4096
    width: int = 128
    depth: int = 4
    heads: int = 4
    tied: bool = True
    poolings: tuple[str, ...] = ("mean",)  # each is judged after the same pretraining

    def make_network(self) -> SearchedText:
        return SearchedText(
            self.tied,
            vocabulary=self.vocabulary,
            width=self.width,
            depth=self.depth,
            heads=self.heads,
        )


BASE = Candidate()
POOLINGS = ("mean", "max", "last token")


def _change_recipe(**changes: object) -> Candidate:
    return replace(BASE, recipe=replace(BASE.recipe, **changes))


CANDIDATES = {
    "as chosen, one epoch": replace(BASE, poolings=POOLINGS),
    "from scratch": _change_recipe(epochs=0),
    "from scratch, attention to both sides": _change_recipe(epochs=0, objective="masked"),
    "hidden tokens": _change_recipe(objective="masked"),
    "hidden and next tokens in turn": _change_recipe(objective="both"),
    "7 blocks of width 96": replace(BASE, width=96, depth=7),
    "2 blocks of width 176": replace(BASE, width=176, depth=2),
    "vocabulary of 2,048": replace(BASE, vocabulary=2048),
    "vocabulary of 8,192": replace(BASE, vocabulary=8192),
    "another last layer for the tokens": replace(BASE, tied=False),
    "as chosen, 4 epochs": _change_recipe(epochs=4),
}


def fine_tune(
    model: nn.Module,
    fc: nn.Linear,
    take: Callable[[Tensor], Tensor],
    targets: Tensor,
    epochs: int,
    lr: float,
    seed: int,
) -> None:
    """Train a model with a new last layer ``fc``; ``take`` makes a batch of inputs from rows."""
    torch.manual_seed(seed)
    nn.init.normal_(fc.weight, std=0.02)
    nn.init.zeros_(fc.bias)
    generator = torch.Generator().manual_seed(seed)
    optimizer = make_adamw(model, lr, 0.01)
    per_epoch = max(1, len(targets) // 32)
    schedule = warmup_cosine(optimizer, epochs * per_epoch, warmup_steps=epochs * per_epoch // 10)
    for _ in range(epochs):
        for rows in torch.randperm(len(targets), generator=generator).split(32)[:per_epoch]:
            loss = F.cross_entropy(model(take(rows)), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()


@torch.no_grad()
def read_vectors(model: SearchedText, texts: Sequence[np.ndarray]) -> Tensor:
    """What the last layer gets for each text: ``(N, D)``."""
    order = np.argsort([len(text) for text in texts])
    vectors = [model.pool(pad_texts([texts[n] for n in rows])) for rows in _split(order, 256)]
    return torch.cat(vectors)[torch.from_numpy(np.argsort(order))]


def _split(order: np.ndarray, size: int) -> Iterator[np.ndarray]:
    return (order[start : start + size] for start in range(0, len(order), size))


@torch.no_grad()
def measure_accuracy(fc: nn.Linear, vectors: Tensor, targets: Tensor) -> float:
    return (fc(vectors).argmax(dim=1) == targets).float().mean().item()


def transfer(
    model: SearchedText, texts: Sequence[np.ndarray], targets: np.ndarray
) -> Iterator[tuple[str, list[float]]]:
    """Accuracies on other definitions of the training pool, one for each seed, by way and size.

    The last layer alone is trained on vectors that are computed once: nothing below it changes.
    """
    train_rows, val_rows = split_stratified(targets, max(LABELLED), NUM_VAL)
    labels = torch.from_numpy(targets)
    chosen, held_out = ([texts[n] for n in rows] for rows in (train_rows, val_rows))
    state = copy.deepcopy(model.state_dict())
    vectors, val_vectors = read_vectors(model, chosen), read_vectors(model, held_out)
    for size, epochs in LABELLED.items():
        own = labels[train_rows[:size]]
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for seed in SEEDS:
            fc = nn.Linear(vectors.shape[1], model.fc.out_features)
            fine_tune(fc, fc, vectors.__getitem__, own, epochs, WAYS["last layer"], seed)
            found["last layer"].append(measure_accuracy(fc, val_vectors, labels[val_rows]))
            model.load_state_dict(state)
            fine_tune(
                model,
                model.fc,
                lambda rows: pad_texts([chosen[n] for n in rows.tolist()]),
                own,
                epochs,
                WAYS["everything"],
                seed,
            )
            tuned = read_vectors(model, held_out)
            found["everything"].append(measure_accuracy(model.fc, tuned, labels[val_rows]))
        yield from ((f"{size}: {way}", accuracies) for way, accuracies in found.items())


def judge(candidate: Candidate) -> Iterator[dict]:
    """A row for each way to pool, after one pretraining."""
    raw = [text for _, text in read_split("pretraining")]
    _, targets, labelled = open_glosses("train")
    tokenizer = make_tokenizer(raw, candidate.vocabulary)
    torch.manual_seed(0)
    model = candidate.make_network()
    model.causal = candidate.recipe.objective == "causal"
    start = time.process_time()
    if candidate.recipe.epochs:
        train(model, encode_texts(tokenizer, raw), candidate.recipe, seed=0)
    seconds = round(time.process_time() - start)
    state = copy.deepcopy(model.state_dict())
    for model.pooling in candidate.poolings:
        model.load_state_dict(state)
        yield {
            "pooling": model.pooling,
            "parameters": sum(p.numel() for p in model.parameters()),
            "processor_s": seconds,
            "accuracies": dict(transfer(model, encode_texts(tokenizer, labelled), targets)),
            "candidate": asdict(candidate),
        }


def main() -> int:
    torch.set_num_threads(1)
    about = {"command": "python -m scripts.search_text_backbone", "seeds": SEEDS, "rows": []}
    found = read_file(RESULTS) if RESULTS.exists() else about | describe_making()
    done = {row["name"] for row in found["rows"]}
    for name in [name for name in CANDIDATES if name not in done]:
        print(name, flush=True)
        found["rows"] += [{"name": name, **row} for row in judge(CANDIDATES[name])]
        write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
