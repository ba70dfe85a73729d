"""Networks with fewer weights: pruned ones, and a student that learns from a teacher."""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.models.convnet_small import conv_stage

__all__ = ["Distillation", "make_student", "prune_smallest"]

CHANNELS = (3, 16, 32, 64, 128)  # of the student's stages, each of which halves the side


def make_student(num_classes: int) -> nn.Sequential:
    """Images ``(N, 3, 32, 32)`` to logits ``(N, C)`` with a sixteenth of the teacher's weights."""
    stages = [conv_stage(*CHANNELS[n : n + 2]) for n in range(len(CHANNELS) - 1)]
    return nn.Sequential(*stages, nn.Flatten(), nn.Linear(4 * CHANNELS[-1], num_classes))


def prune_smallest(model: nn.Module, share: float) -> nn.Module:
    """A copy in which the smallest weights of all convolutions and linear layers are zero.

    Args:
        share: of these weights, in [0, 1). They are compared over the whole network. Biases and
            norms stay.

    Source: S. Han et al., Learning both Weights and Connections, 2015 (without its retraining).
    """
    model = copy.deepcopy(model)
    weights = [m.weight for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    sizes = torch.cat([weight.detach().abs().flatten() for weight in weights])
    threshold = sizes.kthvalue(int(share * len(sizes))).values if int(share * len(sizes)) else -1
    with torch.no_grad():
        for weight in weights:
            weight.mul_(weight.abs() > threshold)
    return model


class Distillation:
    """Batch seam and loss of a student: the teacher's probabilities take the place of labels.

    The student's probabilities are taken at the same temperature. The factor T² keeps the size
    of the gradient.

    Args:
        teacher: maps the same inputs to logits ``(N, C)``; it is put into eval mode.
        temperature: T, by which all logits are divided; 1: off.

    Source: G. Hinton, O. Vinyals and J. Dean, Distilling the Knowledge, 2015.
    """

    def __init__(self, teacher: nn.Module, temperature: float = 4.0):
        self.teacher, self.temperature = teacher.eval(), temperature

    def __call__(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return inputs, (self.teacher(inputs) / self.temperature).softmax(dim=1)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy at the temperature; ``targets`` are probabilities ``(N, C)``."""
        return self.temperature**2 * F.cross_entropy(logits / self.temperature, targets)
