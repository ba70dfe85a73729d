"""A mixture of experts in place of the MLP of a transformer's block, as the notebook explains it.

Sources: W. Fedus et al., Switch Transformers, 2021 (one expert for each token); D. Lepikhin et al.,
GShard, 2020 (two of them); A. Komatsuzaki et al., Sparse Upcycling, 2023.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.models.text_small import Block, TextSmall

__all__ = [
    "AddGradient",
    "Experts",
    "ExpertsBlock",
    "balance_loss",
    "list_experts",
    "route",
    "split_stage",
    "upcycle",
    "use_experts",
    "widen",
]

BALANCE = 0.01  # weight of the balance loss: Switch's default


class AddGradient(torch.autograd.Function):
    """Return ``y`` unchanged; the backward pass adds the gradient of the scalar ``loss``.

    So a layer can have a loss of its own in a loop that knows nothing about it. Megatron-LM does
    the same (`MoEAuxLossAutoScaler`). A scaler of gradients, or accumulation, does not scale this
    gradient.
    """

    @staticmethod
    def forward(ctx, y: Tensor, loss: Tensor) -> Tensor:
        ctx.save_for_backward(loss)
        return y.view_as(y)

    @staticmethod
    def backward(ctx, grad_y: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        (loss,) = ctx.saved_tensors
        return grad_y, torch.ones_like(loss)


def route(logits: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Choose ``k`` experts for each token.

    Args:
        logits: of the router, ``(M, n)``.
        k: experts of a token, from 1 to n.

    Returns:
        the probabilities ``(M, n)``, the chosen experts ``(M, k)``, best first, and their gates
        ``(M, k)``: for k = 1 the probability (Switch), else the probabilities divided by their sum
        (GShard, Mixtral).
    """
    probabilities = logits.softmax(dim=1)
    gates, chosen = probabilities.topk(k, dim=1)
    return probabilities, chosen, gates if k == 1 else gates / gates.sum(dim=1, keepdim=True)


def balance_loss(probabilities: Tensor, chosen: Tensor) -> Tensor:
    """``n Σ f_i P_i``: 1 where all experts are used alike, and n where one expert has everything.

    ``f_i`` is the share of the choices ``(M, k)`` that are expert i, which has no gradient, and
    ``P_i`` its mean probability, of ``(M, n)``. If all P are equal, it is 1 for any choices.
    Without a token it is 0.
    """
    if not len(probabilities):
        return probabilities.sum()
    num_experts = probabilities.shape[1]
    share = torch.bincount(chosen.flatten(), minlength=num_experts) / chosen.numel()  # (n,)
    return num_experts * (share * probabilities.mean(dim=0)).sum()


class Experts(nn.Module):
    """``num_experts`` copies of a layer, of which each token, or each image, passes ``k``.

    Args:
        layer: one expert, such as an MLP from ``(M, D)`` to ``(M, D)`` or a stage of convolutions;
            it is copied, weights included.
        width: D, the numbers of a token, or the channels of an image.
        num_experts: n.
        k: experts of a token.
        balance: weight of `balance_loss`, whose gradient the layer adds itself; 0: off.
        capacity: an expert takes at most ``capacity · k · M / n`` tokens of a batch, rounded up,
            the first ones; for what is beyond, its output is zero. None: no limit.
    """

    def __init__(
        self,
        layer: nn.Module,
        width: int,
        num_experts: int = 4,
        k: int = 1,
        balance: float = BALANCE,
        capacity: float | None = None,
    ):
        super().__init__()
        self.k, self.balance, self.capacity = k, balance, capacity
        self.router = nn.Linear(width, num_experts, bias=False)
        self.experts = nn.ModuleList(copy.deepcopy(layer) for _ in range(num_experts))
        nn.init.normal_(self.router.weight, std=0.02)
        self.sizes: list[int] = []  # of the last batch: choices of each expert
        self.dropped = 0  # of the last batch: choices beyond the capacity

    def choose(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`route` by the vector of each token, or by the mean over the pixels of each image.

        Under autocast too, the router computes in the precision of its weights: a probability of
        16 bits is too coarse to choose by.
        """
        features = x.mean(dim=(2, 3)) if x.ndim == 4 else x
        with torch.autocast(x.device.type, enabled=False):
            logits = self.router(features.to(self.router.weight.dtype))
        return route(logits, self.k)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens ``(M, D)``, without padding, or images ``(M, D, H, W)``; M outputs."""
        probabilities, chosen, gates = self.choose(x)
        order = chosen.flatten().argsort(stable=True)  # (M k,): choices, sorted by expert
        self.sizes = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        parts = order.split(self.sizes)
        if self.capacity is not None:
            limit = math.ceil(self.capacity * len(order) / len(self.experts))
            parts = tuple(part[:limit] for part in parts)
        kept = torch.cat(parts)
        self.dropped = len(order) - len(kept)
        pairs = zip(self.experts, parts, strict=True)
        outputs = torch.cat([e(x[part // self.k]) for e, part in pairs if len(part)])
        gate = gates.flatten()[kept].view(-1, *[1] * (outputs.ndim - 1))
        weighted = gate * outputs
        y = weighted.new_zeros(len(x), *weighted.shape[1:])
        y = y.index_add(0, kept // self.k, weighted)
        if self.training and self.balance:
            y = AddGradient.apply(y, self.balance * balance_loss(probabilities, chosen))
        return y


class ExpertsBlock(Block):
    """A block of `TextSmall` whose MLP is `Experts`. Padding goes to no expert."""

    def __init__(self, block: Block, experts: Experts):
        nn.Module.__init__(self)
        self.heads = block.heads
        for name, module in block.named_children():
            if name not in ("up", "down"):
                self.add_module(name, module)
        self.experts = experts

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        normed = self.norm1(x)
        q, k, v = (self._split(layer(normed)) for layer in (self.q, self.k, self.v))
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(seen.transpose(1, 2).flatten(2))  # up to here as in a dense block
        is_real = mask.any(dim=-2).squeeze(1)  # (N, T): a token that none sees is padding
        y = torch.zeros_like(x)
        y[is_real] = self.experts(self.norm2(x[is_real])).to(y.dtype)  # (M, D)
        return x + y


def _initialise(mlp: nn.Module, std: float) -> None:
    """Give both layers of an MLP new random weights, as `TextSmall` makes them."""
    for layer in mlp.children():
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()
            down = layer
    nn.init.normal_(down.weight, std=std)


def use_experts(model: TextSmall, num_experts: int = 4, k: int = 1, **options) -> TextSmall:
    """Replace the MLP of every block by experts with random weights, in place.

    Args:
        model: a `TextSmall`.
        num_experts, k, options: of `Experts`.
    """
    for name, block in list(model.named_children()):
        if isinstance(block, Block):
            width, std = block.up.in_features, float(block.down.weight.detach().std())
            mlp = nn.Sequential(block.up, nn.GELU(), block.down)
            experts = Experts(mlp, width, num_experts, k, **options)
            for expert in experts.experts:
                _initialise(expert, std)
            setattr(model, name, ExpertsBlock(block, experts))
    return model


def upcycle(model: TextSmall, num_experts: int = 4, k: int = 1, **options) -> TextSmall:
    """Replace the MLP of every block by copies of itself, in place.

    With ``k`` ≥ 2 the gates sum to one, so the network computes what it did before. With ``k`` = 1
    the gate is near 1 / n, so the copies give n times as much: then it is nearly the same.
    """
    for name, block in list(model.named_children()):
        if isinstance(block, Block):
            mlp = nn.Sequential(block.up, nn.GELU(), block.down)
            experts = Experts(mlp, block.up.in_features, num_experts, k, **options)
            nn.init.normal_(experts.router.weight, std=1e-3)
            with torch.no_grad():
                for expert in experts.experts if k == 1 else []:
                    for parameter in expert.get_submodule("2").parameters():
                        parameter.mul_(num_experts)
            setattr(model, name, ExpertsBlock(block, experts))
    return model


def widen(model: TextSmall, factor: int = 4, keep: bool = False) -> TextSmall:
    """Make the MLP of every block ``factor`` times as wide, in place: the parameters of experts.

    Args:
        model: a `TextSmall`.
        factor: as many experts have these parameters, without their router.
        keep: whether the network computes what it did before, because what is new starts with
            zeros behind it; False: all new weights are random.
    """
    for block in model.blocks:
        width, hidden = block.up.in_features, block.up.out_features
        up, down = nn.Linear(width, factor * hidden), nn.Linear(factor * hidden, width)
        _initialise(nn.Sequential(up, down), float(block.down.weight.detach().std()))
        if keep:
            with torch.no_grad():
                up.weight[:hidden], up.bias[:hidden] = block.up.weight, block.up.bias
                down.weight.zero_()
                down.weight[:, :hidden] = block.down.weight
                down.bias.copy_(block.down.bias)
        block.up, block.down = up, down
    return model


def split_stage(model: nn.Module, name: str, width: int, num_experts: int = 4, **options):
    """Replace a stage of a convolutional network by copies of itself, in place.

    Args:
        model: such as `ConvNetSmall`.
        name: of a child that is a stage in an `nn.Sequential`.
        width: channels of its input.
        num_experts, options: of `Experts`; the router reads the mean over an image's pixels.
    """
    stage = Experts(getattr(model, name), width, num_experts, **options)
    setattr(model, name, nn.Sequential(stage))
    return model


def list_experts(model: nn.Module) -> list[Experts]:
    """The layers of experts of a network, in order."""
    return [module for module in model.modules() if isinstance(module, Experts)]
