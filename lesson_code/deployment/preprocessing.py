"""What a service does to its inputs, as in training and with one fault each.

A fault is a function of what the service receives, and returns what the network gets.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms.v2 import functional as TF

from course_utils.data.tokens import END, pad_texts
from course_utils.models.text_small import PADDING

__all__ = ["AS_TRAINED", "list_image_faults", "list_text_faults"]

AS_TRAINED = "as in training"
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and std, in units of 255
LAST = 4095  # the highest token number of the course's vocabulary
CENTRE = (36, 32)  # resize to the first, and cut the second out of its middle


def normalize(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Images ``(N, 3, H, W)`` in [0, 1] minus the mean of each channel, divided by its std."""
    middle, width = (torch.as_tensor(x, device=images.device).view(3, 1, 1) for x in (mean, std))
    return (images - middle) / width


def _cut_centre(pixels: Tensor) -> Tensor:
    larger, side = CENTRE
    return TF.center_crop(TF.resize(pixels, [larger, larger], antialias=True), [side, side])


def _halve(pixels: Tensor) -> Tensor:
    side = pixels.shape[-1]
    small = TF.resize(pixels, [side // 2, side // 2], antialias=True)
    return TF.resize(small, [side, side], antialias=True)


def list_image_faults(
    mean: Sequence[float], std: Sequence[float]
) -> dict[str, Callable[[Tensor], Tensor]]:
    """By name, from pixels ``(N, 3, H, W)`` uint8 in RGB to the network's input, float32.

    The first one, `AS_TRAINED`, has no fault.

    Args:
        mean, std: of the training photographs' channels, in units of 255.
    """

    def finish(pixels: Tensor) -> Tensor:
        return normalize(pixels.float() / 255, mean, std)

    return {
        AS_TRAINED: finish,
        "ImageNet's mean and std": lambda pixels: normalize(pixels.float() / 255, *IMAGENET),
        "resized to 36, middle 32": lambda pixels: finish(_cut_centre(pixels)),
        "sent at half the size": lambda pixels: finish(_halve(pixels)),
        "BGR": lambda pixels: finish(pixels.flip(1)),
        "not normalised": lambda pixels: pixels.float() / 255,
        "not divided by 255": lambda pixels: normalize(pixels.float(), mean, std),
        "divided by 255 twice": lambda pixels: normalize(pixels.float() / 255**2, mean, std),
        "rows and columns swapped": lambda pixels: finish(pixels.transpose(2, 3)),
        "channels last read as first": lambda pixels: finish(
            pixels.permute(0, 2, 3, 1).reshape(pixels.shape)
        ),
    }


def _pad_with(texts: Sequence[np.ndarray], token: int) -> Tensor:
    """Texts ``(N, T)`` that are filled up with another token than padding."""
    tokens = pad_texts(texts)
    return tokens.masked_fill(tokens == PADDING, token)


def list_text_faults() -> dict[str, Callable[[Sequence[np.ndarray]], Tensor]]:
    """By name, from N texts, arrays ``(T,)`` of tokens, to a batch ``(N, T)`` int64."""
    return {
        AS_TRAINED: pad_texts,
        "no [END]": lambda texts: pad_texts([text[:-1] for text in texts]),
        "cut after 8 tokens": lambda texts: pad_texts([text[:8] for text in texts]),
        "padded with [END]": lambda texts: _pad_with(texts, END),
        "padded in front": lambda texts: torch.stack(
            [F.pad(torch.from_numpy(text), (max(map(len, texts)) - len(text), 0)) for text in texts]
        ),
        "token numbers plus one": lambda texts: pad_texts(
            [np.minimum(text + 1, LAST) for text in texts]
        ),
    }
