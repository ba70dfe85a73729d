"""Mixed precision: autocast to bf16."""

import copy
import math

import torch
import torch._dynamo  # the cards' optimizers need it, and it cannot be imported twice
import torch.nn.functional as F
from torch import nn

SEAM = {"trainer": {"precision": "bf16-mixed"}}


def invariant(record):
    """Activations are bf16; the loss, the weights and their gradients stay fp32."""
    assert {logits.dtype for logits, _, _ in record.losses} == {torch.bfloat16}
    assert {loss.dtype for _, _, loss in record.losses} == {torch.float32}
    assert {p.dtype for p in record.run.model.parameters()} == {torch.float32}
    assert {gradient.dtype for gradient in record.gradients} == {torch.float32}


FORMATS = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16, "32-true": torch.float32}
FAULTS = [("trainer", {"precision": "bf16-true"}), ("trainer", {"precision": "32-true"})]


def choose_precision():
    """What a card should take: bf16 with instructions for it, else fp16 on a GPU, fp32 on a CPU."""
    if torch.cuda.is_available():
        emulates = not torch.cuda.is_bf16_supported(including_emulation=False)
        return "16-mixed" if emulates else "bf16-mixed"
    able = torch.cpu.get_capabilities()
    names = ("avx512_bf16", "amx_bf16", "bf16")  # two of x86, one of ARM
    return "bf16-mixed" if any(able.get(name) for name in names) else "32-true"


def make_batches(factor=1.0):
    """Three batches of images, the second one multiplied by ``factor``, and their classes."""
    torch.manual_seed(1)
    batches = [(torch.randn(8, 3, 4, 4), torch.arange(8) % 5) for _ in range(3)]
    batches[1] = batches[1][0] * factor, batches[1][1]
    return batches


def train_by_hand(model, batches, dtype, max_norm, scale):
    """The card's loop without a scaler: casts, scale, clipping and skipped steps by hand."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, targets in batches:
        rounded = copy.deepcopy(model).to(dtype)
        loss = F.cross_entropy(rounded(images.to(dtype)).float(), targets)
        (scale * loss).backward()
        for parameter, other in zip(model.parameters(), rounded.parameters(), strict=True):
            parameter.grad = other.grad.float() / scale
        if all(parameter.grad.isfinite().all() for parameter in model.parameters()):
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
        else:
            scale /= 2
    return model


def check_pytorch_card(card):
    """Its steps are those by hand: bf16, fp32, fp16 with a scale; clipped, skipped if infinite."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.ReLU(), nn.Linear(6, 5))
    cases = (
        (torch.bfloat16, 1.0, 0.1, 1.0),
        (torch.bfloat16, 1.0, 100.0, 1.0),
        (torch.float32, 1.0, 0.1, 1.0),
        (torch.float16, 2.0**16, 0.1, 1.0),
        (torch.float16, 2.0**16, 0.1, math.inf),
    )
    for dtype, scale, max_norm, factor in cases:
        batches = make_batches(factor)
        expected = train_by_hand(copy.deepcopy(model), batches, dtype, max_norm, scale)
        trained = copy.deepcopy(model)
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
        options = {"device": "cpu", "dtype": dtype, "max_norm": max_norm}
        assert card["train_amp"](trained.eval(), batches, optimizer, scaler, **options) is None
        assert trained.training
        for parameter, other in zip(trained.parameters(), expected.parameters(), strict=True):
            assert parameter.isfinite().all()
            torch.testing.assert_close(parameter, other, atol=1e-6, rtol=1e-4)
    assert {p.dtype for p in card["net"].parameters()} == {torch.float32}
    assert card["device"] == ("cuda" if torch.cuda.is_available() else "cpu")
    assert card["dtype"] == FORMATS[choose_precision()]
    assert card["scaler"].is_enabled() == (card["dtype"] == torch.float16)
    assert card["optimizer"].param_groups[0]["lr"] == 1e-3
    steps = {int(state["step"]) for state in card["optimizer"].state.values()}
    assert steps == {2 * len(card["batches"])}, "two epochs with one scaler"


def check_lightning_card(card):
    """It trained in mixed precision, where it is fast, with clipping; its weights are fp32."""
    model = nn.Linear(6, 6)
    lit = card["LitMixed"](copy.deepcopy(model), lr=0.25)
    batch = torch.randn(9, 6), torch.arange(9) % 6
    expected = F.cross_entropy(model(batch[0]), batch[1])
    torch.testing.assert_close(lit.training_step(batch, 0), expected)
    assert lit.configure_optimizers().param_groups[0]["lr"] == 0.25
    assert card["lit"].lr == 1e-3
    assert {p.dtype for p in card["lit"].parameters()} == {torch.float32}
    trainer = card["trainer"]
    assert (trainer.precision, trainer.gradient_clip_val) == (choose_precision(), 1.0)
    assert trainer.global_step == len(card["rows"])
