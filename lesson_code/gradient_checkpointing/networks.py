"""The two deep networks of lesson 10, for images and for text, and the ways to run their blocks.

A network gets the function that runs its blocks: ``run(blocks, x)``, where each block is a
function of one tensor and returns one of the same shape.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import (
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

from course_utils.data.text_data import TextData
from course_utils.models.text_small import TextSmall

__all__ = [
    "CONVOLUTIONS",
    "PRODUCTS",
    "DeepNetwork",
    "DeepTransformer",
    "compute_whole_loss",
    "cut",
    "cut_texts",
    "keep",
    "run_each",
    "run_plain",
]

Blocks = Sequence[Callable[[Tensor], Tensor]]
Run = Callable[[Blocks, Tensor], Tensor]

aten = torch.ops.aten
CONVOLUTIONS = [aten.convolution.default]
PRODUCTS = [  # matrix products and attention, on a CPU and on a GPU
    aten.mm.default,
    aten.addmm.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
]


# ---- Ways to run blocks.


def run_plain(blocks: Blocks, x: Tensor) -> Tensor:
    """Without checkpointing."""
    for block in blocks:
        x = block(x)
    return x


def run_each(blocks: Blocks, x: Tensor, use_reentrant: bool = False, **options: object) -> Tensor:
    """Each block is recomputed in the backward pass; ``options`` of PyTorch's `checkpoint`."""
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=use_reentrant, **options)  # type: ignore[call-overload]
    return x


def cut(segments: int) -> Run:
    """So many segments are recomputed, all but the last one."""
    return lambda blocks, x: checkpoint_sequential(list(blocks), segments, x, use_reentrant=False)


def keep(operations: Sequence[object]) -> Run:
    """Each block is recomputed, without these operations, whose outputs are stored."""
    contexts = partial(create_selective_checkpoint_contexts, operations)
    return partial(run_each, context_fn=contexts, respect_saved_tensors_hooks=True)


# ---- Networks.


def make_group_norm(width: int) -> nn.GroupNorm:
    """Four groups of channels."""
    return nn.GroupNorm(4, width)


class ConvBlock(nn.Module):
    """``x + ReLU(norm(convolution(x)))``: ``(N, C, H, W)`` to the same shape."""

    def __init__(self, width: int, norm: Callable[[int], nn.Module]):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(width, width, 3, padding=1), norm(width)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.norm(self.convolution(x)))


class DeepNetwork(nn.Module):
    """A stem, equal blocks, a head: images ``(N, 3, 32, 32)`` to logits ``(N, C)``.

    Args:
        run: how its blocks are run.
        depth: number of blocks.
        width: channels of each block; the default norm has four groups of them.
        num_classes: C.
        norm: makes the norm of a block for a number of channels.
    """

    def __init__(
        self,
        run: Run = run_plain,
        depth: int = 24,
        width: int = 32,
        num_classes: int = 10,
        norm: Callable[[int], nn.Module] = make_group_norm,
    ):
        super().__init__()
        torch.manual_seed(0)  # the same weights at every call
        self.run = run
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(*(ConvBlock(width, norm) for _ in range(depth)))
        self.head = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.run(self.blocks, self.stem(images)).mean(dim=(2, 3)))  # type: ignore[arg-type]

    def compute_loss(self, images: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self(images), targets)


def compute_whole_loss(vectors: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of all logits at once.

    Vectors ``(M, D)`` and weights ``(V, D)`` give logits ``(M, V)``, for targets ``(M,)``.
    """
    return F.cross_entropy(F.linear(vectors, weight), targets)


class DeepTransformer(TextSmall):
    """The course's transformer as a language model, with any number of blocks.

    Args:
        run: how its blocks are run.
        depth: number of blocks.
        loss: ``(vectors, weight, targets) -> loss`` of the next tokens.
    """

    def __init__(
        self,
        run: Run = run_plain,
        depth: int = 24,
        loss: Callable[[Tensor, Tensor, Tensor], Tensor] = compute_whole_loss,
    ):
        torch.manual_seed(0)  # the same weights at every call
        super().__init__(depth=depth)
        self.run, self.loss = run, loss

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens ``(N, T)`` to vectors ``(N, T, D)``; each token sees those before it."""
        length = tokens.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
        x = self.tokens(tokens) + self.positions.weight[:length]
        return self.norm(self.run([partial(block, mask=mask) for block in self.blocks], x))

    def compute_loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Of the next tokens ``(N, T)``."""
        vectors = self(tokens).flatten(0, 1)  # (N T, D)
        return self.loss(vectors, self.tokens.weight, targets.flatten())


def cut_texts(data: TextData, count: int, length: int = 128) -> tuple[Tensor, Tensor]:
    """Rows ``(count, length)`` of tokens from the training texts, one text after another.

    Returns:
        The tokens, and for each of them the next one.
    """
    stream = torch.cat([torch.as_tensor(tokens) for tokens in data.train.tokens]).long()
    rows = stream[: count * (length + 1)].view(count, length + 1)
    return rows[:, :-1].clone(), rows[:, 1:].clone()  # without the rest of the stream
