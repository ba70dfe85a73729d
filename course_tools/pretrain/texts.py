"""``course pretrain --text``: make the backbone that the lessons on text start from.

It learns from those definitions of WordNet that have no label in this course.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.data.glosses import read_split
from course_utils.data.tokens import MASK, encode_texts, pad_texts, read_tokenizer
from course_utils.measure.memory import count_parameters
from course_utils.measure.provenance import describe_making
from course_utils.models.backbone import load_backbone, write_backbone
from course_utils.models.text_small import PADDING, TextSmall
from course_utils.training.lit_classifier import IGNORED
from course_utils.training.parameter_groups import group_parameters
from course_utils.training.schedules import warmup_cosine

__all__ = ["TextRecipe", "make_adamw", "predict_loss", "pretrain", "train"]

MODEL = "text_small"
NUM_VAL = 2000  # definitions, the last ones; only their loss is measured
SOURCE = "definitions of WordNet 3.0 without a label (Princeton University, 2006)"


@dataclass(frozen=True)
class TextRecipe:
    """AdamW with a warm-up and a cosine to zero; batches of about as many tokens each.

    ``objective`` is ``"masked"``, where a share of the tokens is hidden and each one sees all
    others; ``"causal"``, where each token predicts the next one and sees none behind itself; or
    ``"both"``, in turn. ``data/README.md`` says what was tried. Sources: J. Devlin et al., BERT,
    2019; A. Radford et al., Improving Language Understanding by Generative Pre-Training, 2018.
    """

    objective: str = "causal"
    masked: float = 0.3  # share of the tokens
    epochs: int = 8
    batch_tokens: int = 2048
    peak_lr: float = 2e-3
    weight_decay: float = 0.1  # of matrices; vectors have none
    warmup: float = 0.1  # share of all steps
    max_norm: float = 1.0  # of the gradient


def make_adamw(model: nn.Module, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """AdamW over what is trained, without decay of vectors."""
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    groups = group_parameters(trained, lr=lr, weight_decay=weight_decay, decay_norms=False)
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98), fused=True)


def _make_batches(
    texts: Sequence[np.ndarray], batch_tokens: int, generator: torch.Generator
) -> list[list[int]]:
    """Batches of texts of about the same length, ``batch_tokens`` each, in a random order."""
    noise = torch.rand(len(texts), generator=generator)
    lengths = torch.tensor([len(text) for text in texts])
    batches: list[list[int]] = [[]]
    for number in (lengths + noise).argsort().tolist():
        if batches[-1] and (len(batches[-1]) + 1) * len(texts[number]) > batch_tokens:
            batches.append([])
        batches[-1].append(number)
    order = torch.randperm(len(batches), generator=generator).tolist()
    return [batches[number] for number in order]


def _make_task(
    tokens: Tensor, is_causal: bool, masked: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """What the network sees and what it predicts, both ``(N, T)``; padding is never a target."""
    if is_causal:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        return inputs, targets.masked_fill(targets == PADDING, IGNORED)
    drawn = torch.rand(tokens.shape, generator=generator).to(tokens.device)
    is_hidden = (drawn < masked) & (tokens != PADDING)
    return tokens.masked_fill(is_hidden, MASK), tokens.masked_fill(~is_hidden, IGNORED)


def predict_loss(
    model: TextSmall, tokens: Tensor, masked: float, generator: torch.Generator
) -> Tensor:
    """Mean cross-entropy over the predicted tokens of a batch ``(N, T)``, in nats.

    A causal network predicts next tokens, another one those that are hidden.
    """
    inputs, targets = _make_task(tokens, model.causal, masked, generator)
    vectors = model.encode(inputs)
    is_target = targets != IGNORED  # the product with the vocabulary is made for these alone
    return F.cross_entropy(model.predict_tokens(vectors[is_target]), targets[is_target])


def train(
    model: TextSmall,
    texts: Sequence[np.ndarray],
    recipe: TextRecipe,
    seed: int,
    report: Callable[[str], object] = print,
) -> None:
    """Pretrain ``model`` in place, in fp32, on the device of its parameters."""
    device = model.fc.weight.device
    generator = torch.Generator().manual_seed(seed)
    epochs = [_make_batches(texts, recipe.batch_tokens, generator) for _ in range(recipe.epochs)]
    total_steps = sum(map(len, epochs))
    optimizer = make_adamw(model, recipe.peak_lr, recipe.weight_decay)
    schedule = warmup_cosine(optimizer, total_steps, int(recipe.warmup * total_steps))
    model.causal = recipe.objective == "causal"
    model.train()
    for number, batches in enumerate(epochs, 1):
        losses = []
        for step, batch in enumerate(batches):
            tokens = pad_texts([texts[index] for index in batch]).to(device)
            if recipe.objective == "both":
                model.causal = (step + number) % 2 == 0
            loss = predict_loss(model, tokens, recipe.masked, generator)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), recipe.max_norm)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        report(f"epoch {number} of {recipe.epochs}: training loss {np.mean(losses):.3f}")
    model.causal = recipe.objective == "causal"


@torch.no_grad()
def _measure_loss(
    model: TextSmall, texts: Sequence[np.ndarray], is_causal: bool, masked: float
) -> float:
    """Mean loss of held-out texts in nats per predicted token; hides the same tokens each time."""
    before, model.causal = model.causal, is_causal
    generator = torch.Generator().manual_seed(0)
    model.eval()
    losses = [
        predict_loss(model, pad_texts([texts[index] for index in batch]), masked, generator).item()
        for batch in _make_batches(texts, 4096, generator)
    ]
    model.causal = before
    return float(np.mean(losses))


def pretrain(
    folder: Path,
    seed: int = 0,
    recipe: TextRecipe | None = None,
    report: Callable[[str], object] = print,
) -> dict:
    """Train the backbone, write it into ``folder``, and return what its JSON says.

    Args:
        seed: of the initial weights, the order and the hidden tokens.
        report: called with one line per epoch.

    Raises:
        CourseError: the definitions are missing or damaged.
    """
    recipe = recipe or TextRecipe()
    texts = encode_texts(read_tokenizer(), [text for _, text in read_split("pretraining")])
    train_texts, val_texts = texts[:-NUM_VAL], texts[-NUM_VAL:]
    torch.manual_seed(seed)
    model = TextSmall()
    start = time.perf_counter()
    train(model, train_texts, recipe, seed, report)
    time_s = time.perf_counter() - start
    about = {
        "command": f"course pretrain --text --seed {seed}",
        "model": MODEL,
        "parameters": count_parameters(model) - count_parameters(model.fc),
        "data": f"{SOURCE}: {len(train_texts):,} for training, {NUM_VAL:,} held out",
        "seed": seed,
        "recipe": asdict(recipe),
        "val_loss": _describe_losses(model, val_texts, recipe),
        "time_s": round(time_s, 1),
    } | describe_making()
    write_backbone(model, MODEL, about, folder)
    load_backbone(model, MODEL, folder)
    stored = {"val_loss_of_stored_weights": _describe_losses(model, val_texts, recipe)}
    write_backbone(model, MODEL, about | stored, folder)
    return about | stored


def _describe_losses(
    model: TextSmall, texts: Sequence[np.ndarray], recipe: TextRecipe
) -> dict[str, float]:
    """The held-out loss of each objective that the recipe trains, in nats per predicted token."""
    objectives = ("masked", "causal") if recipe.objective == "both" else (recipe.objective,)
    return {
        objective: round(_measure_loss(model, texts, objective == "causal", recipe.masked), 4)
        for objective in objectives
    }
