"""What lesson 17 plants into training data, wrong labels and rare classes, and what it does next.

The study and the lesson's live trainings use the same code. A seed decides which labels are wrong,
or which classes are rare, so that differences over seeds hold this chance, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import cast

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import AdamW
from torch.utils.data import DataLoader, WeightedRandomSampler

from course_utils.config import Config
from course_utils.data.image_data import ImageData, Images
from course_utils.data.load import load_data
from course_utils.data.loaders import BatchDataset
from course_utils.data.text_data import TextData, Texts
from course_utils.measure.timing import ends_epoch
from course_utils.training.fit import fit
from course_utils.training.lit_classifier import LitClassifier
from course_utils.training.schedules import warmup_cosine

__all__ = [
    "ClassLoss",
    "Hunt",
    "LogFound",
    "SelectSmallest",
    "find_suspects",
    "load_noisy",
    "load_rare",
    "predict_held_out",
    "search_suspects",
    "spoil_labels",
    "take",
    "thin_out",
]

Data = ImageData | TextData
GROUP = 3  # classes that count as rare, and as frequent

load = cache(load_data)  # a process trains many times on the same data


def take(examples: Images | Texts, chosen: np.ndarray) -> Images | Texts:
    """Those examples that an index array chooses, in its order."""
    targets = examples.targets[chosen]
    if isinstance(examples, Texts):
        return Texts([examples.tokens[i] for i in chosen], targets)
    return replace(examples, images=examples.images[chosen], targets=targets)


def replace_train(data: Data, train: Images | Texts, val: Images | Texts | None = None) -> Data:
    """The same data with other training examples, and perhaps others to validate on."""
    size = min(data.batch_size, len(train))
    return replace(data, train=train, val=val or data.val, batch_size=size)  # type: ignore[arg-type]


# ---- Wrong labels.


def spoil_labels(data: Data, share: float, seed: int) -> tuple[Data, np.ndarray]:
    """The same data with a share of wrong training labels, each another class at random.

    Args:
        share: of the training labels, in [0, 1].
        seed: decides which labels are wrong, and what they are.

    Returns:
        the data, and which training labels are wrong, ``(N,)`` bool.
    """
    rng = np.random.default_rng(seed)
    targets = data.train.targets.copy()
    wrong = np.zeros(len(targets), dtype=bool)
    wrong[rng.choice(len(targets), round(share * len(targets)), replace=False)] = True
    shift = rng.integers(1, data.num_classes, wrong.sum())
    targets[wrong] = (targets[wrong] + shift) % data.num_classes
    return replace_train(data, replace(data.train, targets=targets)), wrong


@dataclass(frozen=True)
class Hunt:
    """How suspects are searched: by networks that have not seen the labels that they judge.

    Args:
        config: of the data and the network.
        epochs, lr: of each network; few epochs, because wrong labels are memorised late.
        folds: parts of the training examples; each is judged by a network trained on the others.
        precision: of the trainer.
    """

    config: Config
    epochs: int
    lr: float
    folds: int = 4
    precision: str = "32-true"

    def options(self) -> dict:
        """Arguments of `fit`."""
        return {
            "pretrained": True,
            "make_optimizer": partial(AdamW, lr=self.lr),
            "make_schedule": warmup_cosine,
            "trainer": {
                "max_epochs": self.epochs,
                "check_val_every_n_epoch": self.epochs,
                "precision": self.precision,
            },
        }


def predict_held_out(hunt: Hunt, data: Data, seed: int) -> np.ndarray:
    """Probabilities ``(N, C)`` of the training examples, each by a network that has not seen it."""
    fold_of = np.random.default_rng(seed).permutation(len(data.train)) % hunt.folds
    probabilities = np.empty((len(data.train), data.num_classes))
    for fold in range(hunt.folds):
        inside = np.flatnonzero(fold_of == fold)
        judged = take(data.train, inside)
        part = replace_train(data, take(data.train, np.flatnonzero(fold_of != fold)), judged)
        run = fit(hunt.config, part, seed=seed, save=False, **hunt.options())
        assert run.model is not None
        with torch.no_grad():
            answers = [run.model(inputs) for inputs, _ in part.eval_loader()]
        probabilities[inside] = torch.cat(answers).double().softmax(dim=1).numpy()
    return probabilities


def find_suspects(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Confident learning: which examples are confidently of another class than their label.

    The threshold of a class is the mean probability of this class over the examples that have its
    label. A suspect is at or above the threshold of a class that is not its label, and its
    likeliest class is not its label either.

    Args:
        labels: ``(N,)`` int, each class at least once.
        probabilities: ``(N, C)``, by networks that have not seen the labels.

    Returns:
        ``(N,)`` bool.

    Source: C. Northcutt et al., Confident Learning, 2021; the same as cleanlab's
    ``find_label_issues`` with ``filter_by="confident_learning"``.
    """
    classes = range(probabilities.shape[1])
    thresholds = np.array([probabilities[labels == k, k].mean() for k in classes])
    confident = probabilities >= thresholds - 1e-6  # (N, C)
    confident[np.arange(len(labels)), labels] = False
    return confident.any(axis=1) & (probabilities.argmax(axis=1) != labels)


@dataclass(frozen=True, eq=False)
class Suspects:
    """What a search has found in data with planted wrong labels."""

    wrong: np.ndarray  # (N,) bool: planted
    suspects: np.ndarray  # (N,) bool
    predicted: np.ndarray  # (N,) int: the likeliest class, held out
    losses: np.ndarray  # (N,): of the labels, held out
    scores: dict[str, float]


@cache
def search_suspects(hunt: Hunt, share: float, seed: int) -> Suspects:
    """Plant wrong labels, search for them, and score the search by what was planted."""
    clean = load(hunt.config)
    spoiled, wrong = spoil_labels(clean, share, seed)
    with torch.random.fork_rng(devices=[]):  # of the training that asks, this changes nothing
        probabilities = predict_held_out(hunt, spoiled, seed)
    suspects = find_suspects(spoiled.train.targets, probabilities)
    predicted = probabilities.argmax(axis=1)
    given = probabilities[np.arange(len(wrong)), spoiled.train.targets]
    right = predicted == clean.train.targets
    scores = {
        "suspects": suspects.mean(),
        "precision": wrong[suspects].mean() if suspects.any() else 0.0,
        "recall": suspects[wrong].mean() if wrong.any() else 0.0,
        "relabelled_right": right[suspects].mean() if suspects.any() else 0.0,
        "held_out_accuracy": right.mean(),
    }
    scores = {name: float(score) for name, score in scores.items()}
    return Suspects(wrong, suspects, predicted, -np.log(given), scores)


@dataclass(frozen=True)
class KnownBatches:
    """Batches of a loader, with what is known of their examples."""

    batches: DataLoader
    found: dict[str, float] = field(default_factory=dict)  # `Suspects.scores`
    counts: np.ndarray | None = None  # (C,) training examples of each class

    def __iter__(self) -> Iterator:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def load_noisy(
    data: Data, seed: int, *, share: float, fix: str = "keep", hunt: Hunt | None = None
) -> KnownBatches:
    """Training batches with a share of wrong labels, or after a fix.

    Args:
        data: clean ones; those of ``hunt.config`` if there is a hunt.
        seed: of the wrong labels, the search and the order.
        share: of wrong labels.
        fix: ``"keep"`` nothing is done; ``"drop suspects"``, ``"relabel suspects"`` to the class
            that the search finds likeliest; ``"drop at random"`` as many as there are suspects;
            ``"drop the wrong"`` ones exactly; ``"right labels"`` for them.
        hunt: for the fixes that need suspects.
    """
    spoiled, wrong = spoil_labels(data, share, seed)
    train, found = spoiled.train, {}
    if hunt is not None:
        search = search_suspects(hunt, share, seed)
        found = search.scores
        if fix == "drop suspects":
            train = take(train, np.flatnonzero(~search.suspects))
        elif fix == "relabel suspects":
            targets = np.where(search.suspects, search.predicted, train.targets)
            train = replace(train, targets=targets)
        elif fix == "drop at random":
            order = np.random.default_rng([seed, 1]).permutation(len(train))
            train = take(train, np.sort(order[search.suspects.sum() :]))
    if fix == "drop the wrong":
        train = take(train, np.flatnonzero(~wrong))
    elif fix == "right labels":
        train = data.train
    return KnownBatches(replace_train(data, train).train_loader(seed), found)


class LogFound(L.Callback):
    """Logs at the end what a search has found, see `search_suspects`."""

    def on_train_batch_end(self, trainer, pl_module, *_: object) -> None:
        if ends_epoch(trainer) and trainer.current_epoch + 1 == trainer.max_epochs:
            found = trainer.train_dataloader.found
            pl_module.log_dict(found, on_step=False, on_epoch=True, batch_size=1)


def average_smallest(logits: Tensor, targets: Tensor, share: float) -> Tensor:
    """Mean of the lowest cross-entropies in the batch, ``share`` of them, one at least."""
    losses = F.cross_entropy(logits, targets, reduction="none")
    return losses.topk(max(1, round(share * len(losses))), largest=False).values.mean()


class SelectSmallest(L.Callback):
    """Only the smallest losses of each batch count, and during the warm-up more of them.

    In the warm-up the share falls in a line from 1 to ``share``, so that the network has learned
    from all examples before it chooses.

    Args:
        share: of the batch that counts in the end.
        warmup: share of the steps, in [0, 1]; 0: none.

    Source: B. Han et al., Co-teaching, 2018, with one network instead of two.
    """

    def __init__(self, share: float, warmup: float):
        self.share, self.warmup = share, warmup

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        steps = self.warmup * trainer.estimated_stepping_batches
        progress = min(1.0, trainer.global_step / steps) if steps else 1.0
        kept = 1 - (1 - self.share) * progress
        pl_module.loss = partial(average_smallest, share=kept)


# ---- Rare classes.


def thin_out(data: ImageData, ratio: float, seed: int) -> ImageData:
    """Training images with class sizes that fall geometrically, to ``ratio`` of the largest.

    The seed decides in which order, so that a class is rare at one seed and frequent at another.
    """
    targets = data.train.targets
    most = np.bincount(targets, minlength=data.num_classes).min()
    order = np.random.default_rng(seed).permutation(data.num_classes)
    kept = []
    for rank, label in enumerate(order):
        size = max(2, round(most * ratio ** (rank / max(1, data.num_classes - 1))))
        kept.append(np.flatnonzero(targets == label)[:size])
    return replace_train(data, take(data.train, np.sort(np.concatenate(kept))))  # type: ignore


def load_rare(data: ImageData, seed: int, *, ratio: float, balanced: bool = False) -> KnownBatches:
    """Training batches of `thin_out`; ``balanced``: each class is drawn equally often."""
    thin = thin_out(data, ratio, seed)
    loader, targets = thin.train_loader(seed), thin.train.targets
    counts = np.bincount(targets, minlength=data.num_classes)
    if balanced:
        generator = torch.Generator().manual_seed(seed)
        weights = (1 / counts[targets]).tolist()
        sampler = WeightedRandomSampler(weights, len(weights), generator=generator)
        images = cast(BatchDataset, loader.dataset)
        loader = images.loader(thin.batch_size, sampler=sampler, drop_last=True)
    return KnownBatches(loader, counts=counts)


def adjust_logits(logits: Tensor, targets: Tensor, shares: Tensor) -> Tensor:
    """Cross-entropy of logits plus the logarithm of each class's share of the training data."""
    return F.cross_entropy(logits + shares.to(logits.device).log(), targets)


class ClassLoss(L.Callback):
    """The loss that knows how many training examples each class has, and accuracies by class.

    Logged are the accuracies of the `GROUP` rarest and most frequent classes, and, as
    ``adjusted`` and ``adjusted_rare``, what the network reaches if the logarithms of the classes'
    shares are subtracted from its logits when it predicts.

    Args:
        kind: ``"mean"`` leaves the loss as it is; ``"class weights"``; ``"logit adjustment"``.
    """

    def __init__(self, kind: str = "mean"):
        self.kind = kind

    def on_train_start(self, trainer, pl_module) -> None:
        assert isinstance(pl_module, LitClassifier)
        counts = torch.from_numpy(trainer.train_dataloader.counts).float()
        self.shares = counts / counts.sum()
        if self.kind == "logit adjustment":
            pl_module.loss = partial(adjust_logits, shares=self.shares)
        elif self.kind == "class weights":
            weights = 1 / (len(counts) * self.shares)
            pl_module.loss = partial(F.cross_entropy, weight=weights.to(pl_module.device))

    def on_validation_start(self, trainer, pl_module) -> None:
        self.logits: list[Tensor] = []
        self.targets: list[Tensor] = []
        model = pl_module.get_submodule("model")
        self.hook = model.register_forward_hook(
            lambda module, inputs, logits: self.logits.append(logits.float().cpu())
        )

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, *_: object) -> None:
        self.targets.append(batch[1].cpu())

    def on_validation_epoch_end(self, trainer, pl_module) -> None:
        self.hook.remove()
        logits, targets = torch.cat(self.logits), torch.cat(self.targets)
        order = self.shares.argsort(stable=True)
        rare, frequent = (torch.isin(targets, part) for part in (order[:GROUP], order[-GROUP:]))
        plain = logits.argmax(dim=1) == targets
        adjusted = (logits - self.shares.log()).argmax(dim=1) == targets
        named = {"rare": plain[rare], "frequent": plain[frequent]}
        named |= {"adjusted": adjusted, "adjusted_rare": adjusted[rare]}
        pl_module.log_dict({name: hits.float().mean() for name, hits in named.items()})
