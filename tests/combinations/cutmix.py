"""CutMix: a rectangle of each image is pasted from another image of the batch."""

import torch
from torchvision.transforms import v2

from tests.combinations.record import CLASSES, soften

SEAM = {"batch_transform": v2.CutMix(alpha=1.0, num_classes=CLASSES)}
NOT_FOR_TEXT = "it exchanges rectangles of pixels"


def invariant(record):
    """Every pixel is an image's or its neighbour's, and the targets have their shares."""
    for (images, targets), (cut, soft) in record.batches["cutmix"]:
        kept = (cut == images).all(dim=1)
        pasted = (cut == images.roll(1, 0)).all(dim=1)
        assert (kept | pasted).all()
        lam = kept.float().mean()
        expected = lam * targets + (1 - lam) * targets.roll(1, 0)
        torch.testing.assert_close(soft, expected, atol=1e-4, rtol=0)
    assert "train_accuracy" not in record.run.metrics


def paste_by_drawn_area(images, targets):
    cut = images.clone()
    cut[:, :, 24:48, :16] = images.roll(1, 0)[:, :, 24:48, :16]  # half of it lies outside
    lam = 1 - 24 * 16 / (32 * 32)
    soft = soften(targets)
    return cut, lam * soft + (1 - lam) * soft.roll(1, 0)


FAULTS = [("batch_transform", paste_by_drawn_area)]
