"""What a trained network answers, and how far its confidence is from its accuracy."""

from collections.abc import Iterable

import lightning as L
import torch

__all__ = ["FinalLogits", "calibration_error"]


class FinalLogits(L.Callback):
    """Record, at the end of a training, what the model answers to the batches of ``loader``.

    ``logits`` ``(N, C)`` and ``targets`` ``(N,)``, both on the CPU, are in the loader's order,
    which must not shuffle. The model answers in eval mode and in the trainer's precision. The
    time that takes is part of `Run.time_s`.
    """

    def __init__(self, loader: Iterable[tuple[torch.Tensor, torch.Tensor]]):
        self.loader = loader
        self.logits: torch.Tensor | None = None  # until a training has ended
        self.targets: torch.Tensor | None = None

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        pl_module.get_submodule("model").eval()
        precision, found = trainer.precision_plugin, []
        with torch.no_grad(), precision.forward_context():
            for images, targets in self.loader:
                images = precision.convert_input(images.to(pl_module.device))
                found.append((pl_module(images).float().cpu(), targets))
        self.logits, self.targets = (torch.cat(parts) for parts in zip(*found, strict=True))


def calibration_error(logits: torch.Tensor, targets: torch.Tensor, num_bins: int = 15) -> float:
    """Expected calibration error, in [0, 1]: how far confidence is from accuracy, on average.

    Args:
        logits: ``(N, C)``. They are turned into probabilities here: torchmetrics would take
            logits that happen to lie in [0, 1] for probabilities.
        targets: ``(N,)`` int64.
        num_bins: equal bins of confidence.

    Source: C. Guo et al., On Calibration of Modern Neural Networks, 2017 (torchmetrics).
    """
    from torchmetrics.functional.classification import multiclass_calibration_error

    return multiclass_calibration_error(
        logits.float().softmax(dim=1), targets, logits.shape[1], n_bins=num_bins
    ).item()
