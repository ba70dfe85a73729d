code("use-figure", """
def list_shares(variant, seed):
    \"\"\"Share of each expert after each step, in the first block: (steps, n).\"\"\"
    run = next(run for run in live.runs if (run.arm, run.seed) == (variant, seed))
    return np.array([step[0] for step in run.callback(ExpertUse).shares])


figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.2), sharey=True)
for axis, variant in zip(axes, ("experts", "experts, no balance loss"), strict=True):
    shares = list_shares(variant, config.first_seed)
    smooth = pd.DataFrame(shares).rolling(10, min_periods=1).mean()
    axis.stackplot(range(len(shares)), smooth.T, colors=plots.COLOURS[:4], alpha=0.8)
    title = "with the loss of balance" if variant == "experts" else "without it"
    axis.set(xlabel="step", ylabel="share of the tokens", title=f"First block, {title}")
    axis.set(ylim=(0, 1), xlim=(0, len(shares) - 1))
    axis.grid(False)
axes[1].set_ylabel("")
plt.show()
""", fold=True)
code("use-read", """
def find_least(variant):
    \"\"\"The smallest share of an expert over the last ten steps, mean over the seeds.\"\"\"
    return np.mean([list_shares(variant, seed)[-10:].mean(axis=0).min() for seed in config.seeds])


for variant in ("experts", "experts, no balance loss"):
    print(f"{variant}: the least used expert gets {find_least(variant):.0%} of the tokens")
idle = [x for x in pretraining.rows if x["variant"] == "experts, no balance loss"]
least = [min(min(layer) for layer in row["use"]) for row in idle]
print(
    f"study of pretraining, no balance loss: {min(least):.0%} to {max(least):.0%} "
    f"for the least used expert of a network, {len(least)} seeds"
)
""")
USE_READ
md("collapse", """
### Collapse, and its repair

A router collapses most easily when one expert has an advantage at the start. We give it one on purpose: the first expert's row of every router points along the mean of the tokens, so that it wins nearly all of them. Then we train as before, with and without the loss of balance.
""")
code("collapse-run", """
def favour_first(model, balance):
    \"\"\"Experts whose routers prefer the first one for nearly every token.\"\"\"
    model = use_experts(model, balance=balance)
    for number, layer in enumerate(list_experts(model)):
        mean = model.blocks[number].norm2.bias  # of what the router sees: made constant below
        nn.init.constant_(mean, 0.5)
        nn.init.constant_(layer.router.weight[0], 0.1)
    return model


favoured = {
    f"balance {balance:g}": plan_experts("experts", partial(favour_first, balance=balance))
    for balance in (0.0, BALANCE, 10 * BALANCE)
}
collapsed = compare(config, data, favoured, seeds=config.seeds[:1], name="collapse")
for run in collapsed.runs:
    shares = np.array([step[0] for step in run.callback(ExpertUse).shares])
    first, last = shares[0, 0], shares[-10:, 0].mean()
    print(f"{run.arm}: the first expert has {first:.0%} of the tokens at first, {last:.0%} at last")
""")
COLLAPSE_READ
md("specialise", """
### What do experts specialise in?

Sometimes it is said that one expert learns about animals and another one about food. We ask the trained network: for each token of the validation texts we note the expert in each block, which token it is, where it stands in its text, and the kind of the defined thing. How much of the choice does each of these explain? The measure is the mutual information, as a share of the choice's entropy: 0 % if they are independent, 100 % if the choice follows from it. Chance alone gives more than zero where there are many different tokens. So the control shuffles the choices among all tokens, and only what exceeds it counts.
""")
code("specialise-code", """
trained = next(run for run in live.runs if run.arm == "experts").model.eval()
val_tokens = pad_texts(data.val.tokens)
is_real = val_tokens != PADDING
known = {
    "the token": val_tokens[is_real],
    "its place in the text": torch.arange(val_tokens.shape[1]).expand_as(val_tokens)[is_real],
    "the kind of the thing": torch.tensor(data.val.targets)[:, None].expand_as(val_tokens)[is_real],
}
choices = []
hooks = [
    layer.register_forward_hook(lambda m, x, y: choices.append(m.choose(x[0])[1][:, 0].numpy()))
    for layer in list_experts(trained)
]
with torch.no_grad():
    trained(val_tokens)
for hook in hooks:
    hook.remove()
""")
code("specialise-table", """
rng = np.random.default_rng(config.first_seed)
explained = {
    f"block {number}, {control}": {
        name: 100 * explain_choices(order(chosen), value.numpy()) for name, value in known.items()
    }
    for number, chosen in enumerate(choices, 1)
    for control, order in (("as chosen", np.asarray), ("shuffled", rng.permutation))
}
explained = pd.DataFrame(explained).T.rename_axis("percent of the choice explained by", axis=1)
explained.round(1)
""")
SPECIALISE_READ
md("verdict", """
## Verdict

The cell answers the Question from the study of pretraining, and puts your prediction beside it.
""")
code("verdict-code", """
option = "A" if reached > 80 and slower < 1.1 else "C" if gain["experts"] <= 0 else "B"
print(f"{reached:.0f} % of the wide network's gain, in {slower:.2f} times the time (option {option})")
for baseline in ("dense", "wide", "dense, as long"):
    print(f"experts against {baseline}: {pretraining.describe_verdict('experts', baseline)}")
labels = few.difference("few labels", "experts")
print(
    f"few labels, against dense: {100 * labels.mean:+.1f} points "
    f"({labels.format_interval(100)}), {labels.describe_verdict(margin=few.margin)}"
)
compare_prediction(prediction, percent_of_the_gain=reached, times_as_long=slower)
""", fold=True)
VERDICT_READ
md("recipe", """
## Recipe

* **Use it when** you pretrain for long on much data, all experts fit into the memory, and the FLOPs are what limits you.
* **Not when** you have few examples or one small device: the memory and the optimizer state are those of all experts, and the small products are slow.
* **Defaults** 8 experts with two per token, and the weight 0.001 or 0.02 for the balance, as in [Mixtral](https://huggingface.co/docs/transformers/model_doc/mixtral); or one per token and 0.01, as in [Switch](https://arxiv.org/abs/2101.03961). The softmax of the router in fp32.
* **Cost** weights, gradients and optimizer state of all experts; FLOPs of k of them; the sorting of the tokens, and between devices two all-to-all exchanges per layer, twice.
* **Trap** one expert has nearly all tokens → the loss of balance is missing, or counts padding → log the largest share, and leave padding out.
* **Trap** the router's weights never change → the output is not multiplied by the gate, because a choice has no gradient → multiply, and look at the gradient of the router once.
""")
md("card-pytorch-md", """
### In plain PyTorch

Put `MoE` in place of an MLP, give it the mask of real tokens if there is padding, and add the balance of all layers to the loss.
""")
code("card-pytorch", """
import torch
import torch.nn.functional as F
from torch import nn


class MoE(nn.Module):
    def __init__(self, width, hidden, num_experts=4, k=1):
        super().__init__()
        self.k, self.router = k, nn.Linear(width, num_experts, bias=False)
        parts = lambda: (nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.experts = nn.ModuleList(nn.Sequential(*parts()) for _ in range(num_experts))

    def forward(self, x, is_real=None):  # (..., width); bool (...), False for padding
        if is_real is None:
            is_real = torch.ones(x.shape[:-1], dtype=torch.bool, device=x.device)
        tokens = x[is_real]  # (M, width)
        p = self.router(tokens).float().softmax(dim=1)  # (M, n)
        gates, chosen = p.topk(self.k, dim=1)
        if self.k > 1:
            gates = gates / gates.sum(dim=1, keepdim=True)
        share = F.one_hot(chosen, p.shape[1]).float().mean(dim=(0, 1))  # no gradient
        self.balance = p.shape[1] * (share * p.mean(dim=0)).sum()  # 1 if all are used alike
        y = torch.zeros_like(tokens, dtype=gates.dtype)
        for number, expert in enumerate(self.experts):
            rows, place = torch.where(chosen == number)
            y = y.index_add(0, rows, gates[rows, place, None] * expert(tokens[rows]))
        return torch.zeros_like(x).index_put((is_real,), y.to(x.dtype))


def find_loss(model, x, y, weight=0.01):
    loss = F.cross_entropy(model(x), y)
    return loss + weight * sum(m.balance for m in model.modules() if isinstance(m, MoE))


device = "cuda" if torch.cuda.is_available() else "cpu"
batches = [(torch.randn(64, 16), torch.randint(4, (64,))) for _ in range(8)]  # yours
model = nn.Sequential(nn.Linear(16, 32), MoE(32, 128), nn.Linear(32, 4)).to(device)  # yours
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches:
    optimizer.zero_grad()
    find_loss(model, x.to(device), y.to(device)).backward()
    optimizer.step()
""", "card", "card-pytorch")
md("card-lightning-md", """
### In Lightning

The layer copies an MLP that you have, so a pretrained one is upcycled; its gate is near 1 / n at first, so multiply the last layer's weights by n in this case. The module logs the balance, which should stay near 1.
""")
code("card-lightning", """
import copy

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Switch(nn.Module):  # one expert per token (M, width)
    def __init__(self, mlp, width, num_experts=4):
        super().__init__()
        self.router = nn.Linear(width, num_experts, bias=False)
        self.experts = nn.ModuleList(copy.deepcopy(mlp) for _ in range(num_experts))

    def forward(self, x):
        p = self.router(x).float().softmax(dim=1)  # (M, n)
        gate, chosen = p.max(dim=1)
        share = F.one_hot(chosen, p.shape[1]).float().mean(dim=0)
        self.balance = p.shape[1] * (share * p.mean(dim=0)).sum()
        y = torch.zeros_like(x, dtype=gate.dtype)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero()[:, 0]
            y = y.index_add(0, rows, gate[rows, None] * expert(x[rows]))
        return y.to(x.dtype)


class LitMoE(L.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.model(x), y)
        balance = sum(m.balance for m in self.model.modules() if isinstance(m, Switch))
        self.log("balance", balance)
        return loss + 0.01 * balance

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


mlp = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))
model = nn.Sequential(nn.Linear(16, 32), Switch(mlp, 32), nn.Linear(32, 4))  # yours
data = TensorDataset(torch.randn(256, 16), torch.randint(4, (256,)))  # yours
loader = DataLoader(data, batch_size=64, shuffle=True)
quiet = ["logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"]
trainer = L.Trainer(max_epochs=2, **dict.fromkeys(quiet, False))
lit = LitMoE(model)
trainer.fit(lit, loader)
""", "card", "card-lightning")
