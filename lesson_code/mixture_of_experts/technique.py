"""Mixture of experts: the MLP of each block, or a stage of a convolutional network, four times."""

import copy

import torch
from torch import nn

from course_utils.models.text_small import TextSmall
from lesson_code.mixture_of_experts.experts import (
    Experts,
    balance_loss,
    list_experts,
    split_stage,
    use_experts,
)

NUM_EXPERTS = 2


def add_experts(model, **options):
    if isinstance(model, TextSmall):
        return use_experts(model, NUM_EXPERTS, **options)
    return split_stage(model, "layer3", 128, NUM_EXPERTS, **options)


SEAM = {"model_transform": add_experts}
EXCLUDES = ("freezing", "lora")  # both freeze what comes before the last stage; the router trains


def invariant(record):
    """Routers and experts are trained; each token gets its gate times the output of its expert."""
    layers = list_experts(record.run.model)
    assert layers
    assert any(name.endswith("router.weight") for name in record.moved), "no router is trained"
    for number in range(NUM_EXPERTS):
        assert any(f".experts.{number}." in name for name in record.moved), "an expert is idle"
    gaps = []
    handles = [
        layer.register_forward_hook(lambda *a: gaps.append(find_gap(*a))) for layer in layers
    ]
    try:
        [(inputs, _)] = record.data.eval_loader()
        with torch.no_grad():
            record.run.model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    assert len(gaps) == len(layers)
    assert max(gaps) < 1e-4


def find_gap(layer, inputs, output):
    """How far the output of a layer is from the gate times the best expert, example by example."""
    (x,) = inputs
    features = x.mean(dim=(2, 3)) if x.ndim == 4 else x
    gate, best = layer.router(features).softmax(dim=1).max(dim=1)
    gap = 0.0
    for number, expert in enumerate(layer.experts):
        rows = best == number
        if rows.any():
            weight = gate[rows].view(-1, *[1] * (output.ndim - 1))
            gap = max(gap, (output[rows] - weight * expert(x[rows])).abs().max().item())
    return gap


class GateWithoutSoftmax(Experts):
    def choose(self, x):
        probabilities, chosen, _ = super().choose(x)
        logits = self.router(x.mean(dim=(2, 3)) if x.ndim == 4 else x)
        return probabilities, chosen, logits.gather(1, chosen)


class ChoiceAlone(Experts):
    """No gate multiplies the output, and nothing balances, so the router gets no gradient."""

    def choose(self, x):
        probabilities, chosen, gates = super().choose(x)
        return probabilities.detach(), chosen, torch.ones_like(gates)


class LittleCapacity(Experts):
    """Half of the choices are dropped without a word."""

    def forward(self, x):
        self.capacity = 0.5
        return super().forward(x)


def plant(kind):
    """A transform in which the layers are of another class."""

    def transform(model):
        model = add_experts(model)
        for layer in list_experts(model):
            layer.__class__ = kind
        return model

    return transform


FAULTS = [
    ("model_transform", plant(kind)) for kind in (GateWithoutSoftmax, ChoiceAlone, LittleCapacity)
]


# ---- Cards.


def make_experts(k):
    """The lesson's layer, whose experts differ much."""
    mlp = nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 6))
    layer = Experts(mlp, 6, num_experts=3, k=k)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.7)
    return layer


def check_layer(card_layer, layer, x):
    """The same output, and the same gradients of the output and of the balance loss."""
    state = layer.state_dict()
    if "router" in card_layer.state_dict():
        state["router"] = state.pop("router.weight")
    card_layer.load_state_dict(state)
    layer.balance = 0.0
    found, expected = card_layer(x), layer(x)
    torch.testing.assert_close(found, expected)
    balance = balance_loss(*layer.choose(x)[:2])
    torch.testing.assert_close(card_layer.balance, balance)
    (found.square().sum() + card_layer.balance).backward()
    (expected.square().sum() + balance).backward()
    pairs = zip(card_layer.named_parameters(), layer.named_parameters(), strict=True)
    for (name, mine), (_, theirs) in pairs:
        torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-5, rtol=1e-4, msg=name)
    check_precision(card_layer, x)


def check_precision(layer, x):
    """The router computes in fp32 under autocast; fp64 and more dimensions go through."""
    del layer.balance
    layer(x)
    balance = layer.balance
    with torch.autocast("cpu", torch.bfloat16):
        layer(x)
    assert layer.balance == balance, "the router computes in 16 bits under autocast"
    many = layer(x.view(2, -1, x.shape[-1]))
    torch.testing.assert_close(many.flatten(0, -2), layer(x))
    del layer.balance
    assert copy.deepcopy(layer).double()(x.double()).dtype == torch.float64


def check_router(weight):
    """Small weights, so that all gates begin near 1 / n."""
    gates = (torch.randn(100, weight.shape[1]) @ weight.T).softmax(dim=1)
    assert (gates - 1 / len(weight)).abs().max() < 0.1


def check_pytorch_card(card):
    """Its layer is the lesson's, padding goes to no expert, and the loss has the balance loss."""
    for k in (1, 2):
        check_layer(card["MoE"](6, 10, num_experts=3, k=k), make_experts(k), torch.randn(40, 6))
    layer = card["MoE"](6, 10)
    assert len(layer.experts) == 4
    assert layer.k == 1
    check_router(layer.router.weight.detach())
    x, is_real = torch.randn(3, 5, 6), torch.ones(3, 5, dtype=torch.bool)
    is_real[1, 2:] = False
    found = layer(x, is_real)
    balance = layer.balance
    assert found.shape == x.shape
    assert not found[~is_real].any(), "padding gets nothing"
    torch.testing.assert_close(found[is_real], layer(x[is_real]))
    torch.testing.assert_close(balance, layer.balance)  # padding does not count
    (group,) = card["optimizer"].param_groups
    assert group["lr"] == 1e-3
    assert len(group["params"]) == len(list(card["model"].parameters()))
    steps = {int(state["step"]) for state in card["optimizer"].state.values()}
    assert max(steps) == len(card["batches"])
    layers = [m for m in card["model"].modules() if isinstance(m, card["MoE"])]
    assert layers
    copy.deepcopy(card["model"])  # which keeps no graph
    x, y = (part.to(card["device"]) for part in card["batches"][0])
    with torch.no_grad():
        plain = nn.functional.cross_entropy(card["model"](x), y)
        balance = sum(layer.balance for layer in layers)
    loss = card["find_loss"](card["model"], x, y)
    torch.testing.assert_close(loss, plain + 0.01 * balance)


def check_lightning_card(card):
    """Its layer is the lesson's with k = 1, and the training loss has the balance loss."""
    mlp = nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 6))
    check_layer(card["Switch"](mlp, 6, num_experts=3), make_experts(1), torch.randn(40, 6))
    assert len(card["Switch"](mlp, 6).experts) == 4
    check_router(card["Switch"](mlp, 6).router.detach())
    check_upcycling(card["Switch"])
    lit, batch = card["lit"], next(iter(card["loader"]))
    logged = {}
    lit.log_dict = logged.update  # there is no trainer any more
    copy.deepcopy(lit.model)  # which keeps no graph
    layers = [m for m in lit.modules() if isinstance(m, card["Switch"])]
    assert layers
    x, y = batch
    with torch.no_grad():
        plain = nn.functional.cross_entropy(lit.eval().model(x), y)
        balances = [layer.balance for layer in layers]
    loss = lit.training_step(batch, 0)
    torch.testing.assert_close(loss, plain + 0.01 * sum(balances))
    torch.testing.assert_close(logged["balance"], sum(balances) / len(balances))
    assert 1 / len(layers[0].experts) <= logged["largest share"] <= 1
    assert card["trainer"].global_step == 2 * len(card["loader"])
    assert {"balance", "largest share"} <= set(card["trainer"].callback_metrics)
    (group,) = lit.configure_optimizers().param_groups
    assert group["lr"] == 1e-3


def check_upcycling(make_layer):
    """With weights and bias of the last layer times n, the layer begins as the MLP was."""
    mlp, x = nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 6)), torch.randn(40, 6)
    expected = mlp(x)
    with torch.no_grad():
        for parameter in mlp[-1].parameters():
            parameter *= 4
    torch.testing.assert_close(make_layer(mlp, 6)(x), expected, atol=0.01, rtol=0.02)
