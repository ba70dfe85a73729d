"""What lesson 17 plants into training data, wrong labels and rare classes, and what it does next.

Everything is trained on the features of a pretrained network that stays as it is, because then a
training takes a second, and many seeds and fixes can be compared. A seed decides which labels are
wrong, or which classes are rare, so that differences over seeds hold this chance, too. The study
and the lesson's live trainings use the same code.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW

from course_utils.config import Config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.data.text_data import TextData
from course_utils.measure.timing import ends_epoch
from course_utils.models.create import create_model
from course_utils.training.lit_classifier import LitClassifier
from course_utils.training.schedules import warmup_cosine

__all__ = [
    "ClassLoss",
    "FeatureBatches",
    "Hunt",
    "LogFound",
    "SelectSmallest",
    "find_suspects",
    "load_noisy",
    "load_rare",
    "make_head",
    "predict_held_out",
    "read_features",
    "search_suspects",
    "spoil_labels",
    "thin_out",
]

Data = ImageData | TextData
GROUP = 3  # classes that count as rare, and as frequent

load = cache(load_data)  # a process trains many times on the same data


# ---- A small head on the features of a pretrained network.


@cache
def load_backbone(name: str) -> tuple[nn.Module, int]:
    """A pretrained network without its last layer, and how many features it gives."""
    network = create_model(name, num_classes=2, pretrained=True).eval()
    last = network.fc
    assert isinstance(last, nn.Linear)
    network.fc = nn.Identity()
    return network, last.in_features


_FOUND: dict[tuple, Tensor] = {}  # features of batches by their content


@torch.no_grad()
def extract_features(name: str, inputs: Tensor) -> Tensor:
    """Features ``(N, D)`` of a batch of images or texts; a batch is computed once in a process."""
    content = inputs.cpu().numpy()
    key = name, content.shape, hashlib.sha256(content.tobytes()).digest()
    if key not in _FOUND:
        _FOUND[key] = load_backbone(name)[0](inputs.cpu())
    return _FOUND[key].to(inputs.device)


@cache
def read_features(config: Config) -> Tensor:
    """Features ``(N, D)`` of the training examples, without augmentation."""
    data = load(config)
    batches = data.eval_loader(data.train)  # type: ignore[arg-type]
    return torch.cat([extract_features(config.model, inputs) for inputs, _ in batches])


class Head(nn.Module):
    """Two layers on features ``(N, D)``; of images or texts they are extracted first."""

    def __init__(self, name: str, num_classes: int, width: int):
        super().__init__()
        self.name = name
        num_features = load_backbone(name)[1]
        layers: list[nn.Module] = [nn.LayerNorm(num_features, elementwise_affine=False)]
        if width:
            layers += [nn.Linear(num_features, width), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(width or num_features, num_classes))

    def forward(self, inputs: Tensor) -> Tensor:
        is_features = inputs.ndim == 2 and inputs.is_floating_point()
        return self.layers(inputs if is_features else extract_features(self.name, inputs))


def make_head(num_classes: int, *, name: str, width: int = 256) -> nn.Module:
    """The ``model`` of `fit`; ``width`` 0 makes it one linear layer."""
    return Head(name, num_classes, width)


@dataclass(frozen=True)
class FeatureBatches:
    """Shuffled training batches of features, in another order each epoch; none is smaller.

    Args:
        features, targets: ``(N, D)`` and ``(N,)``.
        batch_size: of each batch.
        generator: of the order.
        found: scores of the search for suspects.
        counts: ``(C,)``, examples of each class.
        balanced: draw each class equally often, with replacement.
    """

    features: Tensor
    targets: Tensor
    batch_size: int
    generator: torch.Generator
    found: dict[str, float] = field(default_factory=dict)
    counts: Tensor | None = None
    balanced: bool = False

    def __len__(self) -> int:
        return len(self.targets) // self.batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        size = len(self) * self.batch_size
        if self.balanced and self.counts is not None:
            weights = 1 / self.counts[self.targets]
            order = torch.multinomial(weights, size, replacement=True, generator=self.generator)
        else:
            order = torch.randperm(len(self.targets), generator=self.generator)[:size]
        for part in order.split(self.batch_size):
            yield self.features[part], self.targets[part]


# ---- Wrong labels.


def spoil_labels(data: Data, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Training labels of which a share is wrong, each another class at random.

    Args:
        share: of the training labels, in [0, 1].
        seed: decides which labels are wrong, and what they are.

    Returns:
        the labels ``(N,)`` int64, and which of them are wrong ``(N,)`` bool.
    """
    rng = np.random.default_rng(seed)
    labels = data.train.targets.copy()
    wrong = np.zeros(len(labels), dtype=bool)
    wrong[rng.choice(len(labels), round(share * len(labels)), replace=False)] = True
    shift = rng.integers(1, data.num_classes, wrong.sum())
    labels[wrong] = (labels[wrong] + shift) % data.num_classes
    return labels, wrong


@dataclass(frozen=True)
class Hunt:
    """How suspects are searched: by linear heads that have not seen the labels that they judge.

    Args:
        config: of the data and the pretrained network.
        folds: parts of the examples; each is judged by a head that is trained on the others.
        epochs, lr, batch_size: of each head; few epochs, because wrong labels are memorised late.
    """

    config: Config
    folds: int = 5
    epochs: int = 10
    lr: float = 0.005
    batch_size: int = 64


def train_judge(hunt: Hunt, features: Tensor, labels: Tensor, num_classes: int) -> nn.Module:
    """A linear head on features, trained with AdamW and a cosine."""
    head = make_head(num_classes, name=hunt.config.model, width=0)
    optimizer = AdamW(head.parameters(), lr=hunt.lr)
    batch_size = min(hunt.batch_size, len(labels))
    batches = FeatureBatches(features, labels, batch_size, torch.default_generator)
    schedule = warmup_cosine(optimizer, hunt.epochs * len(batches))
    for _ in range(hunt.epochs):
        for inputs, targets in batches:
            optimizer.zero_grad()
            F.cross_entropy(head(inputs), targets).backward()
            optimizer.step()
            schedule.step()
    return head.eval()


def predict_held_out(hunt: Hunt, labels: np.ndarray, seed: int) -> np.ndarray:
    """Probabilities ``(N, C)`` of the training examples, each by a head that has not seen it."""
    features, targets = read_features(hunt.config), torch.as_tensor(labels)
    num_classes = load(hunt.config).num_classes
    fold_of = torch.as_tensor(np.random.default_rng(seed).permutation(len(labels)) % hunt.folds)
    probabilities = torch.empty(len(labels), num_classes, dtype=torch.float64)
    with torch.random.fork_rng(devices=[]):  # of the training that asks, this changes nothing
        torch.manual_seed(seed)
        for fold in range(hunt.folds):
            inside = fold_of == fold
            judge = train_judge(hunt, features[~inside], targets[~inside], num_classes)
            with torch.no_grad():
                probabilities[inside] = judge(features[inside]).double().softmax(dim=1)
    return probabilities.numpy()


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

    labels: np.ndarray  # (N,) int: as they are given
    wrong: np.ndarray  # (N,) bool: planted
    suspects: np.ndarray  # (N,) bool
    predicted: np.ndarray  # (N,) int: the likeliest class, held out
    losses: np.ndarray  # (N,): of the labels, held out
    scores: dict[str, float]


@cache
def search_suspects(hunt: Hunt, share: float, seed: int) -> Suspects:
    """Plant wrong labels, search for them, and score the search by what was planted."""
    data = load(hunt.config)
    labels, wrong = spoil_labels(data, share, seed)
    probabilities = predict_held_out(hunt, labels, seed)
    suspects = find_suspects(labels, probabilities)
    predicted = probabilities.argmax(axis=1)
    right = predicted == data.train.targets
    scores = {
        "suspects": suspects.mean(),
        "precision": wrong[suspects].mean() if suspects.any() else 0.0,
        "recall": suspects[wrong].mean() if wrong.any() else 0.0,
        "relabelled_right": right[suspects].mean() if suspects.any() else 0.0,
        "held_out_accuracy": right.mean(),
    }
    given = probabilities[np.arange(len(labels)), labels]
    scores = {name: float(score) for name, score in scores.items()}
    return Suspects(labels, wrong, suspects, predicted, -np.log(given), scores)


def load_noisy(
    data: Data, seed: int, *, hunt: Hunt, share: float, fix: str = "keep"
) -> FeatureBatches:
    """Training batches of features with a share of wrong labels, or after a fix.

    Args:
        data: those of ``hunt.config``, whose batch size is used.
        seed: of the wrong labels, the search and the order.
        hunt: how suspects are searched.
        share: of wrong labels.
        fix: ``"keep"`` nothing is done; ``"drop suspects"``, ``"relabel suspects"`` to the class
            that the search finds likeliest; ``"drop at random"`` as many as there are suspects;
            ``"drop the wrong"`` ones exactly; ``"right labels"`` for them.
    """
    labels, wrong = spoil_labels(data, share, seed)
    kept, found = np.ones(len(labels), dtype=bool), {}
    if "suspects" in fix or "random" in fix:
        search = search_suspects(hunt, share, seed)
        found = search.scores
        if fix == "drop suspects":
            kept = ~search.suspects
        elif fix == "relabel suspects":
            labels = np.where(search.suspects, search.predicted, labels)
        else:
            kept = np.random.default_rng([seed, 1]).permutation(~search.suspects)
    elif fix == "drop the wrong":
        kept = ~wrong
    elif fix == "right labels":
        labels = data.train.targets
    chosen = torch.as_tensor(kept)
    features, targets = read_features(hunt.config)[chosen], torch.as_tensor(labels)[chosen]
    size = min(hunt.config.batch_size, len(targets))
    return FeatureBatches(features, targets, size, torch.Generator().manual_seed(seed), found)


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


def thin_out(data: Data, ratio: float, seed: int) -> np.ndarray:
    """Which training examples stay, so that class sizes fall geometrically to ``ratio``.

    The seed decides in which order, so that a class is rare at one seed and frequent at another.

    Returns:
        their indices, in order; two of each class at least.
    """
    targets = data.train.targets
    most = np.bincount(targets, minlength=data.num_classes).min()
    order = np.random.default_rng(seed).permutation(data.num_classes)
    kept = []
    for rank, label in enumerate(order):
        size = max(2, round(most * ratio ** (rank / max(1, data.num_classes - 1))))
        kept.append(np.flatnonzero(targets == label)[:size])
    return np.sort(np.concatenate(kept))


def load_rare(
    data: Data, seed: int, *, config: Config, ratio: float, balanced: bool = False
) -> FeatureBatches:
    """Training batches of features after `thin_out`.

    Args:
        data: those of ``config``, whose batch size is used.
        balanced: each class is drawn equally often.
    """
    chosen = torch.as_tensor(thin_out(data, ratio, seed))
    targets = torch.as_tensor(data.train.targets)[chosen]
    return FeatureBatches(
        read_features(config)[chosen],
        targets,
        min(config.batch_size, len(targets)),
        torch.Generator().manual_seed(seed),
        counts=torch.bincount(targets, minlength=data.num_classes),
        balanced=balanced,
    )


def adjust_logits(logits: Tensor, targets: Tensor, shares: Tensor) -> Tensor:
    """Cross-entropy of logits plus the logarithm of each class's share of the training data."""
    return F.cross_entropy(logits + shares.to(logits.device).log(), targets)


class ClassLoss(L.Callback):
    """The loss that is told how many training examples each class has, and accuracies by class.

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
        counts = trainer.train_dataloader.counts.float()
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
