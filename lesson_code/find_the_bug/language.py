"""Language models of lesson 90: a tiny network that predicts tokens, and a library's loss."""

import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.models.text_small import PADDING, TextSmall

__all__ = ["TokenPredictor", "next_token_loss"]


class TokenPredictor(nn.Module):
    """A causal transformer from tokens (N, T) to logits (N, T, V) of the token that comes next."""

    def __init__(self, network: TextSmall) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor) -> Tensor:
        return self.network.predict_tokens(self.network.encode(tokens))  # (N, T, V)


def next_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of logits (N, T, V), as models of a library compute it for labels (N, T).

    The labels are the very tokens that the network got: the loss shifts them by one place.
    Padding (0) is no target.
    """
    logits, labels = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    return F.cross_entropy(logits, labels, ignore_index=PADDING)
