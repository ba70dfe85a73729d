"""mixup: images and targets averaged with those of another image of the batch."""

import torch
from torchvision.transforms import v2

from tests.techniques.record import CLASSES, soften

SEAM = {"batch_transform": v2.MixUp(alpha=1.0, num_classes=CLASSES)}


def invariant(record):
    """Images and targets are mixed with the same neighbours by the same λ."""
    for (images, targets), (mixed, soft) in record.batches["mixup"]:
        rolled, rolled_targets = images.roll(1, 0), targets.roll(1, 0)
        lam = ((mixed - rolled) * (images - rolled)).sum() / (images - rolled).square().sum()
        torch.testing.assert_close(mixed, lam * images + (1 - lam) * rolled, atol=1e-4, rtol=0)
        expected = lam * targets + (1 - lam) * rolled_targets
        torch.testing.assert_close(soft, expected, atol=1e-4, rtol=0)
    assert "train_accuracy" not in record.run.metrics


def permute_images_only(images, targets):
    return 0.7 * images + 0.3 * images.roll(1, 0), soften(targets)


def swap_lam(images, targets):
    soft = soften(targets)
    return 0.7 * images + 0.3 * images.roll(1, 0), 0.3 * soft + 0.7 * soft.roll(1, 0)


FAULTS = [("batch_transform", permute_images_only), ("batch_transform", swap_lam)]
