"""Which small transformer, pretrained how, serves best? The table in ``data/README.md``.

    python -m scripts.search_text_backbone NAME [NAME …] --into FILE

Each name is one of ``CANDIDATES``. A candidate is pretrained on the definitions that have no
label, and judged by a fixed transfer test. Rows are added to ``FILE``, one JSON object a line.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.data.glosses import open_glosses, read_split
from course_utils.data.split import split_stratified
from course_utils.data.tokens import MASK, encode_texts, make_tokenizer, pad_texts
from course_utils.models.text_small import PADDING, TextSmall
from course_utils.training.parameter_groups import group_parameters
from course_utils.training.schedules import warmup_cosine

__all__ = ["CANDIDATES", "Candidate", "main", "pretrain", "transfer"]

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SEEDS = (100, 101, 102)  # of the transfer test; lessons and studies report others
LABELLED = {125: 16, 500: 10, 2000: 6}  # definitions: epochs
NUM_VAL = 2000


@dataclass(frozen=True)
class Candidate:
    objective: str = "masked"  # or "causal"
    masked: float = 0.3  # share of the tokens that are hidden
    vocabulary: int = 4096
    width: int = 160
    depth: int = 5
    heads: int = 5
    epochs: int = 2
    batch_tokens: int = 4096
    peak_lr: float = 2e-3
    weight_decay: float = 0.1
    warmup: float = 0.1


BASE = Candidate()
CANDIDATES = {
    "base": BASE,
    "causal": replace(BASE, objective="causal"),
    "masked 15 %": replace(BASE, masked=0.15),
    "masked 50 %": replace(BASE, masked=0.5),
    "wide": replace(BASE, width=224, depth=2, heads=7),
    "narrow": replace(BASE, width=128, depth=9, heads=4),
    "vocabulary 2,048": replace(BASE, vocabulary=2048, width=176, depth=5, heads=4),
    "vocabulary 8,192": replace(BASE, vocabulary=8192, width=144, depth=4, heads=4),
    "high rate": replace(BASE, peak_lr=4e-3),
    "low rate": replace(BASE, peak_lr=1e-3),
    "small batch": replace(BASE, batch_tokens=2048),
    "8 epochs": replace(BASE, epochs=8),
}


def make_batches(
    texts: Sequence[np.ndarray], batch_tokens: int, generator: torch.Generator
) -> list[list[int]]:
    """Batches of texts of about the same length, ``batch_tokens`` each, in a random order."""
    noise = torch.rand(len(texts), generator=generator)
    lengths = torch.tensor([len(text) for text in texts])
    batches: list[list[int]] = [[]]
    for number in (lengths + noise).argsort().tolist():
        if (len(batches[-1]) + 1) * len(texts[number]) > batch_tokens:
            batches.append([])
        batches[-1].append(number)
    order = torch.randperm(len(batches), generator=generator).tolist()
    return [batches[number] for number in order]


def loss_of_batch(
    model: TextSmall, tokens: Tensor, candidate: Candidate, generator: torch.Generator
) -> Tensor:
    """Cross-entropy of the hidden tokens, or of the next ones; padding is not counted."""
    real = tokens != PADDING
    if candidate.objective == "causal":
        vectors = model.encode(tokens[:, :-1])[real[:, 1:]]
        return F.cross_entropy(model.predict_tokens(vectors), tokens[:, 1:][real[:, 1:]])
    drawn = torch.rand(tokens.shape, generator=generator).to(tokens.device)
    hidden = (drawn < candidate.masked) & real
    vectors = model.encode(tokens.masked_fill(hidden, MASK))[hidden]
    return F.cross_entropy(model.predict_tokens(vectors), tokens[hidden])


def pretrain(
    candidate: Candidate, texts: Sequence[np.ndarray], seed: int = 0
) -> tuple[TextSmall, float]:
    """The pretrained network, and the mean loss of its last hundred steps in nats per token."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = TextSmall(
        vocabulary=candidate.vocabulary,
        width=candidate.width,
        depth=candidate.depth,
        heads=candidate.heads,
        causal=candidate.objective == "causal",
    ).to(DEVICE)
    batches = [
        batch
        for _ in range(candidate.epochs)
        for batch in make_batches(texts, candidate.batch_tokens, generator)
    ]
    optimizer = make_adamw(model, candidate.peak_lr, candidate.weight_decay)
    warmup_steps = round(candidate.warmup * len(batches))
    schedule = warmup_cosine(optimizer, len(batches), warmup_steps=warmup_steps)
    losses = []
    for batch in batches:
        loss = loss_of_batch(
            model, pad_texts([texts[n] for n in batch]).to(DEVICE), candidate, generator
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return model, float(np.mean(losses[-100:]))


def make_adamw(model: nn.Module, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """AdamW over what is trained, without decay of vectors."""
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    groups = group_parameters(trained, lr=lr, weight_decay=weight_decay, decay_norms=False)
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98), fused=True)


def fine_tune(
    model: TextSmall,
    texts: Sequence[np.ndarray],
    targets: Tensor,
    epochs: int,
    lr: float,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    nn.init.normal_(model.fc.weight, std=0.02)
    nn.init.zeros_(model.fc.bias)
    generator = torch.Generator().manual_seed(seed)
    optimizer = make_adamw(model, lr, 0.01)
    steps = epochs * max(1, len(texts) // 32)
    schedule = warmup_cosine(optimizer, steps, warmup_steps=steps // 10)
    for _ in range(epochs):
        for batch in torch.randperm(len(texts), generator=generator).split(32)[: len(texts) // 32]:
            tokens = pad_texts([texts[n] for n in batch.tolist()]).to(DEVICE)
            loss = F.cross_entropy(model(tokens), targets[batch].to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()


@torch.no_grad()
def measure_accuracy(model: TextSmall, texts: Sequence[np.ndarray], targets: Tensor) -> float:
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    right = 0
    for start in range(0, len(order), 256):
        batch = order[start : start + 256]
        found = model(pad_texts([texts[n] for n in batch]).to(DEVICE)).argmax(1).cpu()
        right += (found == targets[batch]).sum().item()
    return right / len(texts)


def transfer(
    model: TextSmall, texts: Sequence[np.ndarray], targets: np.ndarray
) -> Iterator[tuple[str, list[float]]]:
    """Accuracies on other definitions of the training pool, one for each seed, by way and size."""
    train, val = split_stratified(targets, max(LABELLED), NUM_VAL)
    labels = torch.from_numpy(targets)
    held_out = [texts[n] for n in val]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for size, epochs in LABELLED.items():
        chosen = [texts[n] for n in train[:size]]
        for way, lr in (("last layer", 1e-2), ("everything", 1e-3)):
            found = []
            for seed in SEEDS:
                model.load_state_dict(state)
                model.requires_grad_(way == "everything")
                model.fc.requires_grad_(True)
                fine_tune(model, chosen, labels[train[:size]], epochs, lr, seed)
                found.append(measure_accuracy(model, held_out, labels[val]))
            yield f"{size}: {way}", found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="+", choices=[*CANDIDATES, "from scratch"])
    parser.add_argument("--into", type=Path, required=True, help="rows are added to this file")
    chosen = parser.parse_args(arguments)
    raw = [text for _, text in read_split("pretraining")]
    _, targets, labelled = open_glosses("train")
    for name in chosen.names:
        candidate = CANDIDATES.get(name, BASE)
        tokenizer = make_tokenizer(raw, candidate.vocabulary)
        start = time.perf_counter()
        if name == "from scratch":
            torch.manual_seed(0)
            model, loss = TextSmall().to(DEVICE), float("nan")
        else:
            model, loss = pretrain(candidate, encode_texts(tokenizer, raw))
        row = {"name": name, "candidate": asdict(candidate), "loss": loss}
        row["seconds"], row["device"] = time.perf_counter() - start, DEVICE.type
        row["parameters"] = sum(p.numel() for p in model.parameters())
        row |= dict(transfer(model, encode_texts(tokenizer, labelled), targets))
        with chosen.into.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
