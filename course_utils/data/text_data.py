"""Texts: `Texts` holds them as tokens, `TextData` serves batches of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from course_utils.config import Config
from course_utils.data.own_texts import FEWEST, open_texts
from course_utils.data.split import check_classes, split_stratified
from course_utils.data.tokens import LengthSampler, encode_texts, pad_texts, read_tokenizer
from course_utils.errors import CourseError

__all__ = ["TextData", "Texts", "load_texts"]


@dataclass(frozen=True)
class Texts(Dataset):
    """Texts in memory: ``tokens``, N arrays ``(T,)`` int64, and ``targets`` ``(N,)`` int64."""

    tokens: Sequence[np.ndarray]
    targets: np.ndarray

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.tokens[index], int(self.targets[index])


def _collate(texts: Sequence[tuple[np.ndarray, int]]) -> tuple[Tensor, Tensor]:
    tokens, targets = zip(*texts, strict=True)
    return pad_texts(tokens), torch.tensor(targets)


@dataclass(frozen=True)
class TextData:
    """The splits of one data set of texts, and the loaders over them, as in `ImageData`.

    ``open_test`` reads the test split. ``batch_size`` is at most the number of training texts.
    """

    name: str
    class_names: tuple[str, ...]
    train: Texts
    val: Texts
    tokenizer: Tokenizer
    open_test: Callable[[], Texts]
    batch_size: int

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def train_loader(self, seed: int = 0, batch_size: int | None = None) -> DataLoader:
        """Batches ``(tokens (B, T) int64, targets (B,) int64)``, in a random order.

        T is the length of the longest text of the batch, and the texts of a batch have similar
        lengths (`LengthSampler`). No batch is smaller than B.

        Args:
            seed: of the order.
            batch_size: B; None: that of these data. Never more than there are texts.
        """
        size = min(batch_size or self.batch_size, len(self.train))
        generator = torch.Generator().manual_seed(seed)
        sampler = LengthSampler([len(text) for text in self.train.tokens], size, generator)
        return DataLoader(self.train, size, sampler=sampler, collate_fn=_collate)

    def eval_loader(self, texts: Texts | None = None) -> DataLoader:
        """Batches of the validation split (or of ``texts``), in order."""
        return DataLoader(texts or self.val, 256, collate_fn=_collate)

    def take_train(self, num_texts: int) -> "TextData":
        """The same data with the first ``num_texts`` training texts only, classes in proportion.

        Raises:
            CourseError: when a class would be left without a text.
        """
        num_texts = max(0, num_texts)
        train = Texts(self.train.tokens[:num_texts], self.train.targets[:num_texts])
        check_classes(train.targets, self.class_names, f"{num_texts} training texts")
        return replace(self, train=train, batch_size=min(self.batch_size, len(train)))

    def summarize(self) -> dict[str, object]:
        """Name, sizes and classes, as runs record them."""
        return {
            "name": self.name,
            "train": len(self.train),
            "val": len(self.val),
            "classes": self.num_classes,
            "vocabulary": self.tokenizer.get_vocab_size(),
        }

    def describe(self) -> str:
        """One line: sizes, classes and lengths."""
        length = np.mean([len(text) for text in self.train.tokens])
        return (
            f"{self.name}: {len(self.train):,} training and {len(self.val):,} validation texts "
            f"of {self.num_classes} classes, {length:.0f} tokens on average"
        )


def _encode(tokenizer: Tokenizer, texts: Sequence[str], targets: np.ndarray) -> Texts:
    return Texts(encode_texts(tokenizer, texts), targets)


def _read_test(dataset: str) -> Texts:
    opened = open_texts(dataset, "test")
    return _encode(read_tokenizer(), opened.texts, opened.targets)


def load_texts(config: Config) -> TextData:
    """Read the texts of ``config`` and split them, once and stratified.

    Raises:
        CourseError: what `open_texts` refuses; too few texts.
    """
    class_names, targets, texts = open_texts(config.dataset)
    if len(targets) < FEWEST:
        raise CourseError(
            f"{config.dataset} has {len(targets)} training texts, and the lessons need {FEWEST} or "
            "more: add texts"
        )
    parts = split_stratified(
        targets, config.num_train, config.num_val, class_names=class_names, unit="texts"
    )
    tokenizer = read_tokenizer()
    train, val = (_encode(tokenizer, [texts[i] for i in part], targets[part]) for part in parts)
    return TextData(
        name=config.dataset,
        class_names=class_names,
        train=train,
        val=val,
        tokenizer=tokenizer,
        open_test=partial(_read_test, config.dataset),
        batch_size=min(config.batch_size, len(train)),
    )
