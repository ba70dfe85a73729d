"""`text_small`: the course's transformer for short texts."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

__all__ = ["PADDING", "Block", "TextSmall"]

PADDING = 0  # the token that fills a text up to the length of its batch


class Block(nn.Module):
    """Self-attention and two linear layers, each behind a LayerNorm and added to its input.

    Sources: A. Vaswani et al., Attention Is All You Need, 2017; the norms come first, as in
    R. Xiong et al., On Layer Normalization in the Transformer Architecture, 2020.
    """

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.o = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (N, T, D) -> (N, H, T, D / H)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """``x`` ``(N, T, D)``; ``mask`` ``(N, 1, 1 or T, T)`` bool: which tokens each one sees."""
        normed = self.norm1(x)
        q, k, v = (self._split(layer(normed)) for layer in (self.q, self.k, self.v))
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(seen.transpose(1, 2).flatten(2))  # (N, H, T, D / H) -> (N, T, D)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class TextSmall(nn.Module):
    """A transformer that classifies texts of at most ``longest`` tokens.

    Args:
        num_classes: C, outputs of ``fc``.
        vocabulary: V, number of tokens; token 0 is padding.
        width: D, numbers per token.
        depth: blocks, which are the children ``layer1``, ``layer2`` …
        heads: of attention; they divide the width.
        longest: T at most.
        causal: whether a token sees only those before it, as in the pretraining of the weights.
            An attribute: a trained network can be asked either way.
    """

    def __init__(
        self,
        num_classes: int = 10,
        *,
        vocabulary: int = 4096,
        width: int = 128,
        depth: int = 4,
        heads: int = 4,
        longest: int = 128,
        causal: bool = True,
    ):
        super().__init__()
        self.causal = causal
        self.tokens = nn.Embedding(vocabulary, width, padding_idx=PADDING)
        self.positions = nn.Embedding(longest, width)
        for number in range(1, depth + 1):
            self.add_module(f"layer{number}", Block(width, heads))
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, num_classes)
        self.grad_checkpointing = False
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)
        for block in self.blocks:  # 2 L sums on the way: GPT-2's scale of what is added
            for layer in (block.o, block.down):
                nn.init.normal_(layer.weight, std=0.02 / (2 * depth) ** 0.5)

    @property
    def blocks(self) -> list[Block]:
        return [module for module in self.children() if isinstance(module, Block)]

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Save only the inputs of the blocks, and recompute the rest in the backward pass."""
        self.grad_checkpointing = enable

    def encode(self, tokens: Tensor) -> Tensor:
        """Tokens ``(N, T)`` int64 to vectors ``(N, T, D)``."""
        length = tokens.shape[1]
        is_real = tokens != PADDING
        mask = is_real[:, None, None, :]
        if self.causal:
            ones = torch.ones(length, length, dtype=torch.bool, device=tokens.device)
            mask = mask & ones.tril()
        x = self.tokens(tokens) + self.positions.weight[:length]
        for block in self.blocks:
            if self.grad_checkpointing and self.training:
                x = checkpoint(block, x, mask, use_reentrant=False)
            else:
                x = block(x, mask)
        return self.norm(x)

    def predict_tokens(self, vectors: Tensor) -> Tensor:
        """Vectors ``(…, D)`` of `encode` to logits ``(…, V)``: the embedding serves twice."""
        return F.linear(vectors, self.tokens.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens ``(N, T)`` int64 to logits ``(N, C)``: of the mean over the tokens of a text."""
        real = (tokens != PADDING).unsqueeze(-1)
        vectors = self.encode(tokens) * real
        return self.fc(vectors.sum(dim=1) / real.sum(dim=1).clamp(min=1))
