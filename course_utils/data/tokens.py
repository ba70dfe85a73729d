"""Texts as numbers: the course's tokenizer, padding, and batches of texts of similar length."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from torch.utils.data import Sampler

from course_utils.data.glosses import GLOSSES, describe_glosses, read_checked
from course_utils.models.text_small import PADDING

__all__ = [
    "END",
    "LONGEST",
    "MASK",
    "SPECIAL",
    "TOKENIZER",
    "LengthSampler",
    "encode_texts",
    "make_tokenizer",
    "pad_texts",
    "read_tokenizer",
]

TOKENIZER = "tokenizer.json"  # in the folder of the glosses
SPECIAL = ("[PAD]", "[MASK]", "[END]", "[UNK]")  # their places are their numbers
MASK, END = 1, 2
LONGEST = 128  # tokens of a text: as many as the network has positions
POOL = 50  # batches that are sorted by length together


def make_tokenizer(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """Learn byte-pair encoding from texts, in lower case and without accents.

    Source: R. Sennrich et al., Neural Machine Translation of Rare Words with Subword Units, 2016.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[3]))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(SPECIAL), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def read_tokenizer(folder: Path = GLOSSES) -> Tokenizer:
    """The tokenizer of the text network, from the folder of the glosses.

    Raises:
        CourseError: the file is missing, or its sha256 is not that of the description.
    """
    content = read_checked(folder / TOKENIZER, describe_glosses(folder)["tokenizer"]["sha256"])
    return Tokenizer.from_str(content.decode("utf-8"))


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    """Each text as its tokens ``(T,)`` int64, `END` behind them; at most `LONGEST` of them."""
    found = tokenizer.encode_batch(list(texts))
    return [np.array([*encoding.ids[: LONGEST - 1], END]) for encoding in found]


def pad_texts(texts: Sequence[np.ndarray]) -> Tensor:
    """Texts as one tensor ``(N, T)`` int64: the shorter ones are filled up with `PADDING`."""
    tensors = [torch.from_numpy(text) for text in texts]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PADDING)


class LengthSampler(Sampler[int]):
    """A random order in which texts of similar length come in one batch, to save padding.

    The shuffled texts are cut into pools of fifty batches, each pool is sorted by length, and its
    batches come in a random order. What does not fill a batch is left out, other texts each epoch.

    Args:
        lengths: ``(N,)``, tokens of each text.
        batch_size: of the loader that asks.
        generator: of the order.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, generator: torch.Generator):
        self.lengths = torch.as_tensor(lengths)
        self.batch_size = batch_size
        self.generator = generator

    def __len__(self) -> int:
        return len(self.lengths) // self.batch_size * self.batch_size

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(len(self.lengths), generator=self.generator)[: len(self)]
        batches = [
            batch
            for pool in order.split(POOL * self.batch_size)
            for batch in pool[self.lengths[pool].argsort(stable=True)].split(self.batch_size)
        ]
        for number in torch.randperm(len(batches), generator=self.generator).tolist():
            yield from batches[number].tolist()
