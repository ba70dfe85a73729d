"""Freezing: only the last stage and the head are trained."""

from functools import partial

from course_utils.models.freeze import freeze_before

SEAM = {"model_transform": partial(freeze_before, first_trained="layer4")}


def invariant(record):
    """No tensor before layer4 moves, BatchNorm's statistics included."""
    assert all(name.startswith(("layer4", "fc")) for name in record.moved)


def freeze_weights_only(model):
    for name in ("conv1", "bn1", "layer1", "layer2", "layer3"):
        getattr(model, name).requires_grad_(False)
    return model


FAULTS = []
# LoRA freezes everything but the adapters and the head for itself, BatchNorm's statistics too.
MASKED_FAULTS = [("model_transform", freeze_weights_only, ("lora",))]
