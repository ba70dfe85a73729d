"""Padding changes nothing, a causal network does not see the future, blocks equal PyTorch's."""

import pytest
import torch
from torch import nn

from course_utils.models.freeze import freeze_before
from course_utils.models.text_small import PADDING, Block, TextSmall

VOCABULARY, LONGEST = 50, 12


@pytest.fixture
def make():
    def make_network(**options):
        torch.manual_seed(0)
        sizes = {"vocabulary": VOCABULARY, "width": 16, "depth": 2, "heads": 2, "longest": LONGEST}
        return TextSmall(3, **sizes | options).eval()

    return make_network


def draw_tokens(*shape):
    return torch.randint(1, VOCABULARY, shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("causal", [False, True])
def test_padding_changes_nothing(make, causal):
    network, tokens = make(causal=causal), draw_tokens(4, 7)
    padded = nn.functional.pad(tokens, (0, 5), value=PADDING)
    torch.testing.assert_close(network(padded), network(tokens))


def test_a_causal_network_does_not_see_what_comes_later(make):
    tokens = draw_tokens(4, 7)
    changed = tokens.clone()
    changed[:, 4] = 1 + tokens[:, 4] % (VOCABULARY - 1)  # another token
    for causal in (True, False):
        network = make(causal=causal)
        is_moved = (network.encode(changed) - network.encode(tokens)).abs().amax(dim=(0, 2)) > 1e-6
        assert is_moved.tolist() == [not causal] * 4 + [True] * 3


def test_a_text_of_one_token_gives_no_nan_in_training(make):
    network = make().train()
    tokens = draw_tokens(2, 5)
    tokens[0, 1:] = PADDING
    network(tokens).sum().backward()
    assert all(p.grad.isfinite().all() for p in network.parameters() if p.grad is not None)


def test_a_block_is_that_of_pytorch():
    torch.manual_seed(0)
    ours = Block(width=16, heads=2).eval()
    theirs = nn.TransformerEncoderLayer(
        16, 2, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    ).eval()
    state = {
        "self_attn.in_proj_weight": torch.cat([x.weight for x in (ours.q, ours.k, ours.v)]),
        "self_attn.in_proj_bias": torch.cat([x.bias for x in (ours.q, ours.k, ours.v)]),
    }
    names = {"self_attn.out_proj": "o", "linear1": "up", "linear2": "down"}
    for theirs_name, name in (names | {"norm1": "norm1", "norm2": "norm2"}).items():
        for kind in ("weight", "bias"):
            state[f"{theirs_name}.{kind}"] = ours.get_parameter(f"{name}.{kind}")
    theirs.load_state_dict(state)
    x = torch.randn(3, 7, 16)
    is_real = torch.ones(3, 7, dtype=torch.bool)
    is_real[0, 4:] = False
    expected = theirs(x, src_key_padding_mask=~is_real)
    found = ours(x, is_real[:, None, None, :])
    torch.testing.assert_close(found[is_real], expected[is_real])


def test_checkpointing_changes_no_gradient(make):
    gradients = []
    for enable in (False, True):
        network = make().train()
        network.set_grad_checkpointing(enable)
        network(draw_tokens(2, 5)).sum().backward()
        gradients.append(network.tokens.weight.grad)
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


def test_stages_can_be_frozen(make):
    network = freeze_before(make(), "layer2")
    trained = {name.partition(".")[0] for name, p in network.named_parameters() if p.requires_grad}
    assert trained == {"layer2", "norm", "fc"}


def test_it_is_as_large_as_it_says():
    network = TextSmall()
    assert sum(p.numel() for p in network.parameters()) <= 2_500_000
