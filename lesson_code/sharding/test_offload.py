"""AdamW with its state in the CPU's memory, and what a larger batch does for it."""

import nbformat
import pytest
import torch
from torch import nn
from torch.optim import AdamW

from lesson_code.sharding import memory, offload, zero
from tests.places import ROOT


def test_offloaded_steps_are_those_of_adamw_also_without_some_gradients():
    networks = [zero.make_model(depth=1) for _ in range(2)]
    options = {"lr": 1e-3, "weight_decay": 0.1}
    plain = AdamW(networks[0].parameters(), **options)
    ours = offload.OffloadedAdamW(networks[1].parameters(), **options)
    for number in range(3):
        for network, optimizer in zip(networks, (plain, ours), strict=True):
            network.zero_grad()
            zero.compute_loss(network, zero.make_batch(2, seed=number)).backward()
            if number == 1:
                network.tokens.weight.grad = None
            optimizer.step()
    assert torch.equal(*(zero.read_weights(network) for network in networks))


def test_gradients_go_down_and_weights_come_up():
    layer = nn.Linear(3, 2)
    optimizer = offload.OffloadedAdamW(layer.parameters())
    layer(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    assert optimizer.moved_bytes == 2 * 4 * 8


@pytest.mark.parametrize("name", ["1.3 B", "6.7 B"])
def test_the_link_takes_less_of_a_larger_step(name):
    plans = [offload.plan_tokens(memory.OPT[name], tokens, True) for tokens in (512, 4096, 32768)]
    shares = [plan.share for plan in plans]
    assert shares == sorted(shares, reverse=True)
    speeds = [plan.tokens_per_s for plan in plans]
    assert speeds == sorted(speeds)


def test_the_share_by_hand():
    """1 B parameters: 4 bytes each over 4 GB/s is a second; 8 operations for 250 tokens too."""
    shape, card = memory.Shape(1, 1, vocabulary=10**9), memory.Card(1e12, 2e12)
    plan = offload.plan_tokens(shape, 250, True, link=4e9, card=card)
    assert plan.share == pytest.approx(0.5, abs=1e-3)
    assert plan.tokens_per_s == pytest.approx(125, rel=1e-3)


def test_what_fits_is_what_the_text_says():
    notebook = nbformat.read(ROOT / "notebooks/20_sharding.ipynb", as_version=4)
    (text,) = [cell.source for cell in notebook.cells if cell.id == "offload-text"]
    assert "With 2,048 tokens in a step the link would take 60 % of it" in text
    assert "and with 131,072 tokens 2 %" in text
    assert "6.7 billion parameters, which does not fit on the GPU" in text
    assert "as that of 1.3 billion does, offload only costs time" in text
    plans = {
        (name, is_offloaded): offload.plan_tokens(memory.OPT[name], 131_072, is_offloaded)
        for name in ("1.3 B", "6.7 B", "13 B", "30 B")
        for is_offloaded in (False, True)
    }
    assert not plans["6.7 B", False].fits
    assert plans["6.7 B", True].fits
    assert round(100 * plans["6.7 B", True].share) == 2
    assert round(100 * offload.plan_tokens(memory.OPT["6.7 B"], 2048, True).share) == 60
    gone = plans["1.3 B", True].tokens_per_s / plans["1.3 B", False].tokens_per_s
    assert gone < 1
    assert not plans["30 B", True].fits
