"""Mixed precision: autocast to bf16."""

import torch

SEAM = {"trainer": {"precision": "bf16-mixed"}}


def invariant(record):
    """Activations are bf16; the loss, the weights and their gradients stay fp32."""
    assert {logits.dtype for logits, _, _ in record.losses} == {torch.bfloat16}
    assert {loss.dtype for _, _, loss in record.losses} == {torch.float32}
    assert {p.dtype for p in record.run.model.parameters()} == {torch.float32}
    assert {gradient.dtype for gradient in record.gradients} == {torch.float32}


FAULTS = [("trainer", {"precision": "bf16-true"}), ("trainer", {"precision": "32-true"})]
