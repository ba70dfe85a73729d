exec(open("/root/n/d22/reads.py").read())
HEADLINE = [{"study": "mixture_of_experts/study", "regime": "few labels", "arm": "experts", "baseline": "dense", "label": "2,000 definitions from scratch: four experts against the dense network of equal FLOPs"}, {"study": "mixture_of_experts/study", "regime": "few labels", "arm": "experts", "baseline": "wide", "label": "the same against the dense network of equal parameters"}]

md("title", """
# 22 · Mixture of experts: more parameters for the same work per token

Large language models are trained with more parameters than any token uses. In a [mixture of experts](glossary.md#mixture-of-experts) each block has several MLPs in place of one, the *experts*, and a small *router* chooses one or two of them for each [token](glossary.md#token). So parameters can grow while the operations per token stay the same. You want to know what this brings, and what it costs.

After this lesson you can build a mixture of experts, keep its experts in use, and compare it with the right dense networks.

Minutes: 90 · Prerequisites: [03 · LoRA](03_lora.ipynb), [21 · Text](21_text.ipynb) · Seam: *model*, the MLP of each block is replaced · Budget: 90 s on two CPU cores in `quick` · **[Recipe ↓](#Recipe)**
""")
md("question", """
## Question

We [pretrain](glossary.md#pretrained) a small [transformer](glossary.md#transformer) to predict the next token of definitions. Then we replace each MLP by four experts of the same size, of which a token uses one. The operations per token stay the same but for the router, and the MLPs have four times the parameters. There are two fair opponents. One is the dense network with equal [FLOPs](glossary.md#FLOP), and the other is a dense network with equal parameters, whose MLPs are four times as wide. **Which part of the gain of the wide network do the experts reach? And how many times as long does a training with experts take as that of the small dense network?**

Predict two numbers: the percentage of the wide network's gain, and the time as a multiple.
""")
code("prediction", """
from course_utils.predictions import compare_prediction, record_prediction

prediction = record_prediction(
    "22_mixture_of_experts",
    percent_of_the_gain=None,  # your number instead of None
    times_as_long=None,  # and here
)
""")
md("prediction-options", """
Now open the answer that is nearest to your numbers, and see what speaks for it:

<details><summary>A. Nearly all of the gain, in nearly the same time</summary>Tempting, because the parameters are those of the wide network and the FLOPs those of the small one.</details>
<details><summary>B. A part of the gain, and noticeably more time</summary>Reasonable, because each expert sees a quarter of the tokens, and sorting tokens is work that no FLOP counts.</details>
<details><summary>C. Nothing, because one token uses no more than before</summary>Tempting, because the path of one token has the size of the small network.</details>
""")
md("notes", """
<details><summary>For the teacher</summary>

Let the students vote before the First result. Ask those who chose A why all of the gain should come if a token still passes one MLP of the small size. Ask those who chose C what the router can do that one MLP cannot.

</details>
""", slide="notes")
md("set-up", """
## Set-up

The layer, its [seam](glossary.md#seam) and both studies stand in `lesson_code/mixture_of_experts`. Live we train on `glosses`, definitions of WordNet whose kind is to be recognised. `DATASET` may be a folder or a CSV file of your own texts.
""")
code("parameters", """
PROFILE = ""  # smoke, quick or full
DATASET = ""  # glosses if empty; or a CSV file or a folder of texts
FIRST_SEED = None  # first of the paired seeds, an integer
NUM_TRAIN = 640  # definitions of each live training, at most
EPOCHS = 3  # of each live training, at most
BALANCE = 0.01  # weight of the loss of balance
""", "parameters")
code("imports", """
import copy
import inspect
import math
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import AdamW
from torch.utils.flop_counter import FlopCounterMode
from transformers import SwitchTransformersConfig
from transformers.models.switch_transformers import modeling_switch_transformers as switch

from course_utils import plots
from course_utils.data.tokens import pad_texts
from course_utils.measure import count_parameters, time_calls
from course_utils.models.text_small import PADDING, TextSmall
from course_utils.ranks import ON_CPU, run_ranks
from course_utils.results import STUDIES, read_file
from course_utils.study_results import read_study
from course_utils.training import compare, fit, warmup_cosine
from lesson_code.mixture_of_experts import parallel
from lesson_code.mixture_of_experts.experts import (
    AddGradient,
    Experts,
    balance_loss,
    list_experts,
    split_stage,
    upcycle,
    use_experts,
    widen,
)
from lesson_code.mixture_of_experts.pretraining import ExpertUse, Pretraining, explain_choices
""", "imports", fold=True)
code("load", """
from course_utils import claim, create_model, load_config, load_data

plots.use_style()
config = load_config(PROFILE, dataset=DATASET or "glosses", first_seed=FIRST_SEED)
epochs = min(EPOCHS, config.epochs)
num_train = min(NUM_TRAIN, config.num_train or NUM_TRAIN)
config = config.replace(model="text_small", num_train=num_train, epochs=epochs, batch_size=32)
data = load_data(config)
SMALL = partial(TextSmall, width=64, depth=2)  # the network of both studies
print(data.describe())
""")
md("first", """
## First result

A [study](glossary.md#study) pretrained each network on the same definitions over ten paired [seeds](glossary.md#seed), each with the best of three learning rates from another seed. A point of the figure is one variant. Its height is the held-out loss minus that of the small dense network, with the 95 % [interval](glossary.md#confidence-interval), and its place to the right is the processor time of the training. Inside the grey band a difference is too small to matter to us. One variant trains the small dense network on a third more definitions, which takes about as long as the experts do.
""")
code("first-read", """
pretraining = Pretraining(read_file(STUDIES / "mixture_of_experts/study_pretraining.json"))
few = read_study("mixture_of_experts")
print("study of pretraining,", pretraining.describe_provenance())
recipe = pretraining.recipe
print(
    f"{recipe['depth']} blocks of width {recipe['width']}, {recipe['definitions']:,} definitions, "
    f"{recipe['vocabulary']} different tokens, {recipe['batch_tokens']} tokens in a batch"
)
loss = pretraining.values("dense")
print(f"dense: {loss.mean():.3f} nats per token, standard deviation {loss.std(ddof=1):.3f}")
""", fold=True)
code("first-figure", """
figure, axis = plt.subplots(figsize=(7.2, 4))
axis.axhspan(-pretraining.margin, pretraining.margin, color=plots.GREY, alpha=0.2, lw=0)
axis.axhline(0, color="black", lw=1)
for number, variant in enumerate(pretraining.variants):
    times = pretraining.time_ratio(variant)
    effect = pretraining.difference(variant, "dense")
    half = 0 if variant == "dense" else effect.high - effect.mean
    look = {"fmt": "osD^v"[number], "color": plots.COLOURS[number], "capsize": 3, "ms": 7}
    axis.errorbar(times, effect.mean, yerr=half, label=variant, **look)
title = "Loss and time of pretraining, against the small dense network"
axis.set(xlabel="processor time, as a multiple", ylabel="loss minus dense (nats)", title=title)
axis.legend(fontsize=8)
plt.show()
""", fold=True)
md("first-table-md", """
Here are the comparisons that answer our Question, with the [verdict](glossary.md#verdict) of each. A negative difference means a lower loss, so that the first of the pair is better.
""")
code("first-table", """
PAIRS = [
    ("experts", "dense"),
    ("experts", "wide"),
    ("experts", "dense, as long"),
    ("wide", "dense"),
]
rows = {}
for treated, baseline in PAIRS:
    effect = pretraining.difference(treated, baseline)
    rows[f"{treated} − {baseline}"] = {
        "loss (nats)": f"{effect.mean:+.3f} ({effect.format_interval()})",
        "verdict": pretraining.describe_verdict(treated, baseline),
        "time, as a multiple": round(pretraining.time_ratio(treated, baseline), 2),
    }
pd.DataFrame(rows).T
""", fold=True)
code("first-sentences", """
gain = {x: -pretraining.difference(x, "dense").mean for x in ("experts", "wide", "dense, as long")}
reached = 100 * gain["experts"] / gain["wide"]
slower = pretraining.time_ratio("experts")
print(
    f"The experts reach {reached:.0f} % of the gain of the wide network, and take {slower:.2f} "
    f"times as long as the small dense one; the wide one takes {pretraining.time_ratio('wide'):.2f}."
)
""", fold=True)
md("first-after", READ["FIRST_READ"])
md("idea", """
## Idea

### A router chooses, and its probability weighs the answer

The router is one linear layer without bias. For each token it computes a number for each expert, and a softmax turns them into probabilities. The token goes to the expert with the highest one, and the expert's output is multiplied by this probability, the *gate*. We follow five tokens and three experts by hand. The experts are simple here: they multiply by 1, 10 and 100.
""")
code("toy", """
toy_logits = torch.tensor([[2.0, 0, 0], [0, 1, 0], [3, 0, 0], [0, 0, 2], [1, 0.5, 0]])
toy_gates, toy_chosen = toy_logits.softmax(dim=1).max(dim=1)
toy_x = torch.tensor([1.0, 2, 3, 4, 5])
toy_outputs = toy_x * torch.tensor([1.0, 10, 100])[toy_chosen]
toy = {"token": toy_x, "expert": toy_chosen, "gate": toy_gates, "output": toy_gates * toy_outputs}
pd.DataFrame(toy).round(2)
""")
md("idea-gradient", """
Why is the output multiplied by the gate? Because the choice itself has no gradient: a slightly different number chooses the same expert. Only through the gate does the loss tell the router whether this expert was useful for this token. With two experts per token, their two probabilities are divided by their sum, so that the gates add up to one.

### Why experts must be kept in use

An expert that gets many tokens learns fast, so its outputs become useful, and the router sends it still more. An expert that gets none learns nothing. In the worst case all tokens go to one expert: the router has *collapsed*, and the network is the small dense one again. The [load-balance loss](glossary.md#load-balance-loss) of the Switch transformer works against it. With the share $f_i$ of the tokens that choose expert $i$, and its mean probability $P_i$, it is $n \\sum_i f_i P_i$ for $n$ experts. It is 1 if all are used alike, and grows up to $n$ if one has everything. The share is a count without a gradient, so the gradient goes through $P_i$, and is largest where $f_i$ is large.
""")
code("toy-balance", """
toy_probabilities = toy_logits.softmax(dim=1)
toy_share = torch.bincount(toy_chosen, minlength=3) / len(toy_chosen)
print("share f:           ", toy_share.numpy())
print("mean probability P:", toy_probabilities.mean(dim=0).numpy().round(2))
print(f"loss of balance: {3 * (toy_share * toy_probabilities.mean(dim=0)).sum():.2f}")
""")
md("idea-capacity", """
### Capacity, and tokens that are dropped

On an accelerator each expert is a matrix product whose size should be fixed beforehand. So each expert gets a *capacity*: the tokens of the batch divided by the experts, times a factor such as 1.25. What is beyond is *dropped*: the MLP gives it nothing, and only the residual connection carries it on. No error is raised. In the toy, a factor of 1 gives each expert ⌈5 / 3⌉ = 2 places. Three tokens want the first expert, so the last of them is dropped. Newer kernels, such as those of MegaBlocks, need no capacity, and our layer has none unless you ask for it.
""")
md("scratch", """
## From scratch

The layer gets tokens without padding. It asks each expert for the tokens that chose it, and adds the weighted outputs up at their places. `torch.where` gives the numbers of the tokens, and for each the place among its `k` choices.
""")
code("own-layer", """
class OwnExperts(nn.Module):
    def __init__(self, mlp, width, num_experts=4, k=1):
        super().__init__()
        self.router = nn.Linear(width, num_experts, bias=False)
        self.experts = nn.ModuleList(copy.deepcopy(mlp) for _ in range(num_experts))
        self.k = k

    def forward(self, x):  # (M, D)
        probabilities = self.router(x).softmax(dim=1)  # (M, n)
        gates, chosen = probabilities.topk(self.k, dim=1)  # (M, k)
        if self.k > 1:
            gates = gates / gates.sum(dim=1, keepdim=True)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, place = torch.where(chosen == number)
            y = y.index_add(0, rows, gates[rows, place, None] * expert(x[rows]))
        self.balance = own_balance_loss(probabilities, chosen)
        return y
""")
code("own-balance", """
def own_balance_loss(probabilities, chosen):
    \"\"\"n Σ f P: probabilities (M, n), chosen experts (M, k).\"\"\"
    num_experts = probabilities.shape[1]
    share = F.one_hot(chosen, num_experts).float().mean(dim=(0, 1))  # (n,)
    return num_experts * (share * probabilities.mean(dim=0)).sum()
""")
md("scratch-padding", """
A text of three tokens in a batch of length ten has seven tokens of [padding](glossary.md#padding). They all look alike, so they would all choose the same expert, take its capacity, and count in the balance. So they are taken out before: `x[is_real]` has the shape `(M, D)`, where M is the number of real tokens of the whole batch.
""")
md("check", """
## Check

Three identities tell whether the layer is right. One expert is the dense MLP, because its gate is 1. Equal experts with gates that add up to one are the dense MLP, whatever the router chooses. And the library's layer with our weights gives our outputs: here that of the Switch transformer in [transformers](https://huggingface.co/docs/transformers/model_doc/switch_transformers).
""")
code("check-dense", """
torch.manual_seed(0)
mlp = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
x = torch.randn(50, 16)
same = torch.allclose(OwnExperts(mlp, 16, num_experts=1)(x), mlp(x), atol=1e-6)
claim("one expert is the dense MLP (tolerance 1e-6)", same)
same = all(torch.allclose(OwnExperts(mlp, 16, k=k)(x), mlp(x), atol=1e-6) for k in (2, 3, 4))
claim("equal experts, of which a token uses 2, 3 or 4, are the dense MLP (1e-6)", same)
""", "nbval-check-output")
code("check-library", """
sizes = {"d_model": 16, "d_ff": 64, "num_experts": 4, "expert_capacity": 50, "dropout_rate": 0.0}
library = switch.SwitchTransformersSparseMLP(SwitchTransformersConfig(**sizes)).eval()
relu = nn.Sequential(nn.Linear(16, 64, bias=False), nn.ReLU(), nn.Linear(64, 16, bias=False))
ours = OwnExperts(relu, 16)
ours.router.weight = library.router.classifier.weight
for mine, theirs in zip(ours.experts, library.experts.values(), strict=True):
    mine[0].weight, mine[2].weight = theirs.wi.weight, theirs.wo.weight
close = torch.allclose(ours(x), library(x[None])[0], atol=1e-6)
claim("with one expert per token it equals transformers' Switch layer (1e-6)", close)
probabilities = ours.router(x).softmax(dim=1)
theirs = switch.load_balancing_loss_func(probabilities[None], probabilities.argmax(dim=1)[None])
claim("and the loss of balance equals the library's (1e-6)", abs(ours.balance - theirs) < 1e-6)
""", "nbval-check-output")
md("library", """
## The library way

From here on we use the course's layer, `Experts`. It sorts the tokens by expert and cuts them into one part for each, which is faster than asking for them one after the other. It has a capacity, too. `use_experts` puts it into every block of `TextSmall`, in place of `up` and `down`, and takes the padding out. It goes into the model seam of `fit`.

### Where does the loss of balance go?

It belongs to the total loss. But the loss seam sees the logits of the classifier, and the probabilities of the router stay inside of the network. A loop of your own collects them from the layers, as the cards do. In a loop that you cannot change, the layer can add the *gradient* itself: an autograd function returns its input unchanged, and in the backward pass it also starts the gradient of a second tensor. [Megatron-LM](https://github.com/NVIDIA/Megatron-LM) does the same.
""")
code("add-gradient", """
print(inspect.getsource(AddGradient.backward))
layer = Experts(mlp, 16).train()
layer.balance = BALANCE
layer(x).square().mean().backward()
added = layer.router.weight.grad.clone()
layer.zero_grad()
layer.balance = 0.0
probabilities, chosen, _ = layer.choose(x)
total = layer(x).square().mean() + BALANCE * balance_loss(probabilities, chosen)
total.backward()
same = torch.allclose(added, layer.router.weight.grad, atol=1e-7)
claim("the gradient is that of the sum of both losses (1e-7)", same)
""", "nbval-check-output")
md("library-limit", """
The price is that nothing outside can scale this gradient. With [gradient accumulation](glossary.md#gradient-accumulation) over four [micro-batches](glossary.md#micro-batch) it is added four times and not divided, so divide the weight by four. With fp16 and a [GradScaler](glossary.md#GradScaler) it would nearly vanish, because the rest of the gradient is multiplied by the loss scale and this is not. Megatron-LM therefore tells the function the scale.

### What does it cost?

We count the parameters and the FLOPs of one batch, forward and backward, and time the same step. Two experts per token and the wide MLP stand beside it.
""")
code("costs", """
WAYS = {"dense": nn.Identity(), "experts": use_experts}
WAYS |= {"two of four experts": partial(use_experts, k=2), "wide": widen}
tokens, targets = next(iter(data.train_loader(config.first_seed, batch_size=64)))
tokens = tokens[:, : (tokens != PADDING).sum(dim=1).min()]  # cut, so that there is no padding


def count_costs(model):
    def take_pass():
        model.zero_grad()
        F.cross_entropy(model(tokens), targets).backward()

    with FlopCounterMode(display=False) as counter:
        take_pass()
    in_blocks = sum(count_parameters(block) for block in model.blocks)
    found = {"parameters of the blocks": in_blocks, "FLOPs": counter.get_total_flops()}
    return found | {"ms": time_calls(take_pass, torch.device("cpu"))}


costs = {name: count_costs(change(SMALL(data.num_classes))) for name, change in WAYS.items()}
costs = pd.DataFrame(costs).T
(costs / costs.loc["dense"]).round(2).rename_axis("as a multiple of dense", axis=1)
""")
code("costs-claim", """
flops, ms = (costs.loc["experts", x] / costs.loc["dense", x] for x in ("FLOPs", "ms"))
print(f"experts: {flops:.2f} times the FLOPs of the dense network, and {ms:.2f} times the time")
claim("one expert per token has the FLOPs of the dense network (±10 %)", abs(flops - 1) < 0.1)
""")
md("costs-read", """
Equal FLOPs are not equal time. The products are as many, but each of them is smaller, and the tokens have to be sorted, gathered and put back, which the counter does not see. The larger the MLP, the smaller the share of this work. On the other hand all experts have to be in memory, and the optimizer keeps its state for all of them.
""")
md("experiment", """
## Experiment

### Live: few labels

The second regime of our study is small enough to be repeated here: the same network learns from random weights to classify a few thousand definitions. We expect little from experts, because with so few examples more parameters can also [overfit](glossary.md#overfitting). The table is the study's, and the cell below it trains three seeds on fewer definitions.
""")
code("few-table", """
few.table("few labels")
""")
code("live", """
def plan_experts(variant, change):
    \"\"\"Arguments of `fit` for one variant, with the learning rate that the study found best.\"\"\"
    return {
        "model": SMALL,
        "model_transform": change,
        "make_optimizer": partial(AdamW, lr=float(few.best["few labels"][variant].split()[1])),
        "make_schedule": warmup_cosine,
        "trainer": {"check_val_every_n_epoch": epochs, "callbacks": [ExpertUse()]},
    }


variants = {
    "dense": plan_experts("dense", None),
    "experts": plan_experts("experts", partial(use_experts, balance=BALANCE)),
}
live = compare(config, data, variants, name="experts")
live.table()
""")
md("live-after", READ["LIVE_READ"])
md("collapse", """
### Does a router collapse, and what brings it back?

We draw which share of the tokens each expert of the first block gets, step by step. The first picture is the training from above, and the second one the same without the loss of balance. A router collapses most easily if one expert has an advantage at the start, so for the last two pictures we give it one: the first expert's row of each router points along the mean of the tokens, and wins them all.
""")
code("favour", """
def favour_first(model, balance):
    \"\"\"Experts whose routers prefer the first one for every token.\"\"\"
    model = use_experts(model, balance=balance)
    for block in model.blocks:
        nn.init.constant_(block.norm2.bias, 0.5)  # what the router sees has this mean
        nn.init.constant_(block.experts.router.weight[0], 0.1)
    return model


changes = {
    "no balance loss": partial(use_experts, balance=0.0),
    "advantage, no balance loss": partial(favour_first, balance=0.0),
    "advantage, balance loss": partial(favour_first, balance=BALANCE),
}
unbalanced = {name: plan_experts("experts", change) for name, change in changes.items()}
pictures = compare(config, data, unbalanced, seeds=config.seeds[:1], name="collapse")
""")
code("use-figure", """
def list_shares(run):
    \"\"\"Share of each expert after each step, in the first block: (steps, n).\"\"\"
    return np.array([step[0] for step in run.callback(ExpertUse).shares])


balanced = next(run for run in live.runs if run.arm == "experts")
figure, axes = plt.subplots(1, 4, figsize=(11, 2.8), sharey=True)
for axis, run in zip(axes, (balanced, *pictures.runs), strict=True):
    smooth = pd.DataFrame(list_shares(run)).rolling(5, min_periods=1).mean()
    axis.stackplot(smooth.index, smooth.T, colors=plots.COLOURS[:4], alpha=0.8)
    name = "balance loss" if run is balanced else run.arm
    axis.set(xlabel="step", ylabel="", title=name, ylim=(0, 1), xlim=(0, len(smooth) - 1))
    axis.grid(False)
axes[0].set_ylabel("share of the tokens")
plt.show()
""", fold=True)
code("use-read", """
for run in (balanced, *pictures.runs):
    last = list_shares(run)[-10:].mean(axis=0)
    name = "balance loss" if run is balanced else run.arm
    print(f"{name}: at last the experts get {', '.join(f'{x:.0%}' for x in np.sort(last)[::-1])}")
shares = [min(min(layer) for layer in x["use"]) for x in pretraining.rows if x["variant"] == "experts"]
print(f"study of pretraining: the least used expert of a network gets {min(shares):.0%} or more")
""")
md("use-md", READ["USE_READ"])
md("specialise", """
### What do experts specialise in?

Sometimes it is said that one expert learns about animals and another one about food. We ask the trained network: for each token of the validation texts we note the expert in each block, which token it is, where it stands in its text, and the kind of the defined thing. How much of the choice does each of these explain? The measure is the mutual information, as a share of the choice's entropy: 0 % if they are independent, 100 % if the choice follows from it. Chance alone gives more than zero where there are many different tokens. So the control shuffles the choices among all tokens, and only what exceeds it counts.
""")
code("specialise-code", """
trained = fit(config, data, seed=config.first_seed, **variants["experts"]).model.eval()
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
md("specialise-after", READ["SPECIALISE_READ"])
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
md("verdict-after", READ["VERDICT_READ"])
md("recipe", """
## Recipe

* **Use it when** you pretrain for long on much data, all experts fit into the memory, and the FLOPs are what limits you.
* **Not when** you have few examples or one small device: the memory and the optimizer state are those of all experts, and the small products are slow.
* **Defaults** 8 experts with two per token, and the weight 0.001 or 0.02 for the balance, as in [Mixtral](https://huggingface.co/docs/transformers/model_doc/mixtral); or one per token and 0.01, as in [Switch](https://arxiv.org/abs/2101.03961). The softmax of the router in fp32.
* **Cost** weights, gradients and optimizer state of all experts; FLOPs of k of them; the sorting of the tokens, and between devices two all-to-all messages per layer, forward and backward.
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
        mlps = [(nn.Linear(width, hidden), nn.Linear(hidden, width)) for _ in range(num_experts)]
        self.experts = nn.ModuleList(nn.Sequential(up, nn.GELU(), down) for up, down in mlps)

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
lit = LitMoE(nn.Sequential(nn.Linear(16, 32), Switch(mlp, 32), nn.Linear(32, 4)))  # yours
examples = TensorDataset(torch.randn(256, 16), torch.randint(4, (256,)))  # yours
loader = DataLoader(examples, batch_size=64, shuffle=True)
quiet = ["logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"]
trainer = L.Trainer(max_epochs=2, **dict.fromkeys(quiet, False))
trainer.fit(lit, loader)
""", "card", "card-lightning")

md("exercises", """
## Exercises

Write each function yourself, in place of the body that stands there, and run the check below it. An answer may use the lesson's imports and what you define from here on, nothing else of the notebook.

### ☆ Experiment: change the mixture (15 minutes)

Choose one thing: the number of experts, how many of them a token uses, the weight of the balance, or the capacity. **Predict first**: by how many points does the accuracy change? Then write `experts_experiment(config, data)`, which trains four experts as in this lesson, and the same with your change, over three paired seeds or more. It returns four things: the accuracies without the change, those with it, and the two edges of the 95 % interval of the mean difference. The check trains on fewer than 200 definitions, recomputes the interval and prints the verdict. To measure on all of this lesson's definitions, call `experts_experiment(config, data)` in a cell of your own.

<details><summary>Hint</summary>A variant is <code>{"model": partial(TextSmall, width=64, depth=2), "model_transform": partial(use_experts, balance=0.0)}</code>, and <code>compare</code> trains two of them at the same seeds. <code>comparison.difference(…)</code> has <code>low</code> and <code>high</code>.</details>
""")
code("answer-experts_experiment", """
def experts_experiment(config, data):
    \"\"\"Accuracies of four experts and of a change, over the same seeds, and the interval's edges.\"\"\"
    ### BEGIN SOLUTION
    small = {"model": partial(TextSmall, width=64, depth=2)}
    variants = {
        "as in the lesson": small | {"model_transform": use_experts},
        "changed": small | {"model_transform": partial(use_experts, balance=0.0)},
    }
    measured = compare(config, data, variants, seeds=(0, 1, 2), name="my mixture")
    difference = measured.difference("changed")
    usual, changed = (measured.values(variant) for variant in measured.arms)
    return usual, changed, difference.low, difference.high
    ### END SOLUTION
""", nb=("experts_experiment", "solution"))
code("check-experts_experiment", """
from lesson_code.mixture_of_experts import checks

checks.check_experts_experiment(experts_experiment)
""", nb=("experts_experiment", "check"))
md("worked-experiment", """
<details><summary>Worked answer</summary>Both variants begin with the same attention and the same embeddings, because the seed makes the network before the experts are added, and they see the same batches. In so short a training a change of the mixture moves the accuracy by less than the seeds do, so that the interval contains zero. Look at the study for ten seeds.</details>

### ★ Exercise 1: which tokens are dropped? (10 minutes)

Write `list_dropped(chosen, num_experts, factor)`. `chosen` `(M,)` holds the expert of each token. An expert takes at most `factor · M / num_experts` tokens, rounded up, and the first ones of the batch come first. Return a tensor `(M,)` of type bool, True where a token is dropped.

<details><summary>Hint</summary>The running count of each expert is <code>F.one_hot(chosen, num_experts).cumsum(dim=0)</code>: at a token's own expert it says the how many-th it is.</details>
""", slide="skip")
code("answer-list_dropped", """
def list_dropped(chosen, num_experts, factor):
    \"\"\"Which tokens (M,) are beyond the capacity of the expert that they chose.\"\"\"
    ### BEGIN SOLUTION
    limit = math.ceil(factor * len(chosen) / num_experts)
    one_hot = F.one_hot(chosen, num_experts)  # (M, n)
    place = (one_hot.cumsum(dim=0) * one_hot).sum(dim=1)  # 1 for the first token of an expert
    return place > limit
    ### END SOLUTION
""", nb=("list_dropped", "solution"))
code("check-list_dropped", """
from lesson_code.mixture_of_experts import checks

checks.check_list_dropped(list_dropped)
""", nb=("list_dropped", "check"))
md("worked-dropped", """
<details><summary>Worked answer</summary>The capacity belongs to an expert and not to the batch, so an idle expert does not help the tokens of a full one. Which tokens are dropped depends on the order of the batch, so with a capacity the answer to a text depends on the other texts. Therefore many programs raise the factor or turn it off for evaluation.</details>

### ★★ Exercise 2: the loss of balance (15 minutes)

Write `find_balance(logits, is_real)`. `logits` `(M, n)` are the router's, and `is_real` `(M,)` is False for padding. Each real token chooses its most probable expert. Return n Σ f P over the real tokens, as a tensor with a gradient.

<details><summary>Hint</summary>The softmax runs over the experts. <code>torch.bincount(…, minlength=n)</code> also counts the experts that no token chose.</details>
""", slide="skip")
code("answer-find_balance", """
def find_balance(logits, is_real):
    \"\"\"n Σ f P of the real tokens; 1 if all experts are used alike.\"\"\"
    ### BEGIN SOLUTION
    count = logits.shape[1]
    probabilities = logits[is_real].softmax(dim=1)
    share = torch.bincount(probabilities.argmax(dim=1), minlength=count) / len(probabilities)
    return count * (share * probabilities.mean(dim=0)).sum()
    ### END SOLUTION
""", nb=("find_balance", "solution"))
code("check-find_balance", """
from lesson_code.mixture_of_experts import checks

checks.check_find_balance(find_balance)
""", nb=("find_balance", "check"))
md("worked-balance", """
<details><summary>Worked answer</summary>The share f has no gradient, because a count does not change with a small step. The gradient goes through P and is weighted with f, so the probability of the expert that is used most is lowered most. With padding in the mean, the router would be asked to spread the padding, too.</details>

### ★★★ Exercise 3: find the bugs (20 minutes)

This function should compute a mixture in which each token uses `k` experts, with gates that add up to one. It has **four** faults, and none of them raises an error. Write `mix_experts` without them.

```python
def mix_experts(x, router, experts, k):
    logits = router(x)
    gates, chosen = logits.topk(k, dim=1)
    gates = gates.detach() / k
    y = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        rows, place = torch.where(chosen == number)
        y = y.index_copy(0, rows, gates[rows, place, None] * expert(x[rows]))
    return y
```

<details><summary>Hint</summary>What is a gate between? What happens to a token whose second expert comes later in the loop? Which parameter of the router gets a gradient?</details>
""", slide="skip")
code("answer-mix_experts", """
def mix_experts(x, router, experts, k):
    \"\"\"Outputs (M, D) of tokens (M, D): the k best experts of each, weighted by their gates.\"\"\"
    ### BEGIN SOLUTION
    probabilities = router(x).softmax(dim=1)
    gates, chosen = probabilities.topk(k, dim=1)
    gates = gates / gates.sum(dim=1, keepdim=True)
    y = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        rows, place = torch.where(chosen == number)
        y = y.index_add(0, rows, gates[rows, place, None] * expert(x[rows]))
    return y
    ### END SOLUTION
""", nb=("mix_experts", "solution"))
code("check-mix_experts", """
from lesson_code.mixture_of_experts import checks

checks.check_mix_experts(mix_experts)
""", nb=("mix_experts", "check"))
md("worked-mix", """
<details><summary>Worked answer</summary>(1) There is no softmax, so the gates are logits, which may be negative. (2) They are divided by k and not by their sum, so they do not add up to one. (3) They are detached, so the router gets no gradient and never learns. (4) <code>index_copy</code> replaces what the first expert of a token gave: <code>index_add</code> adds. A test with equal experts finds all but the third, because the mixture must then be the dense layer; for the third, look at the router's gradient.</details>
""", slide="skip")
md("deeper", """
## Going deeper

Each of these parts stands alone.

### Can a pretrained dense network become a mixture of experts?

Yes: in *sparse upcycling* every expert begins as a copy of the dense MLP. With two experts per token the gates add up to one, so the new network computes exactly what the old one did, up to rounding, and the training goes on from there. With one expert per token the gate is near 1 / n at the start, so `upcycle` multiplies the last layer of the copies by n, and the equality is approximate.
""")
code("upcycle", """
backbone = create_model("text_small", data.num_classes, pretrained=config.dataset == "glosses").eval()
few_tokens = tokens[:16]
with torch.no_grad():
    expected = backbone(few_tokens)
    for k in (2, 1):
        found = upcycle(copy.deepcopy(backbone), k=k).eval()(few_tokens)
        gap = ((found - expected).norm() / expected.norm()).item()
        print(f"{k} of 4 experts: the logits differ by {gap:.1e} of their norm")
        if k == 2:
            claim("upcycled, two of four experts compute what the dense network did", gap < 1e-5)
print(f"parameters: {count_parameters(backbone):,}, upcycled {count_parameters(upcycle(backbone)):,}")
""")
md("upcycle-read", """
Equal copies would stay equal if they saw the same tokens. The router gives them different ones, so they drift apart. Whether this is worth it is another question, which our study does not answer: A. Komatsuzaki et al. found it worth it for large networks that are trained on for long.

### What are router noise and the z-loss for?

Noise makes the router try other experts, and the z-loss keeps its logits small. Switch multiplies the router's input by random numbers between 0.99 and 1.01 in training (*jitter*), so that a token near the border between two experts is sent to both over time. The *z-loss* of ST-MoE is the mean of the squared logarithm of $\\sum_i e^{z_i}$ over the logits $z$. Why should logits be small? In bf16 a number near 100 is rounded to a multiple of 0.5, and the softmax turns a difference of 0.5 into another probability:
""")
code("z-loss", """
def find_z_loss(logits):
    \"\"\"Mean of the squared log of the sum of exponentials, over tokens (M, n).\"\"\"
    return logits.logsumexp(dim=1).square().mean()


logits = torch.randn(1000, 4)
same = torch.allclose(find_z_loss(logits), switch.router_z_loss_func(logits[None]), atol=1e-5)
claim("the z-loss is that of transformers (1e-5)", same)
for size in (1, 10, 100):
    shifted = logits + size
    rounded = shifted.bfloat16().float()
    moved = (shifted.softmax(dim=1) - rounded.softmax(dim=1)).abs().max()
    print(f"logits near {size}: bf16 moves a probability by up to {moved:.3f}")
""")
md("parallel", """
### How do experts live on several devices?

Each device keeps some of the experts, and the tokens travel: to the device of their expert, and back. This is *expert parallel*. How many tokens go where is known only after the routing, so the two [all-to-all](glossary.md#collective) steps are uneven: first the ranks tell each other the numbers, then they send the rows. In the backward pass the gradients take the same way in the other direction. The function below does it with two processes; `_send` is `dist.all_to_all_single`.
""")
code("parallel-source", """
print(inspect.getsource(parallel.run_experts_of_all_ranks))
""")
code("parallel-run", """
found = run_ranks(parallel, arguments={"tokens": 32, "k": 2}, processes=2, environment=ON_CPU)
gap = max(found["output gap"], found["gradient gap"])
claim("two ranks have the outputs and gradients of one process (1e-6)", gap < 1e-6)
travelled = [sum(rows) - rows[rank] for rank, rows in enumerate(found["rows"])]
came = [sum(rows[rank] for rows in found["rows"]) - found["rows"][rank][rank] for rank in (0, 1)]
predicted = [2 * (out + into) * found["row_bytes"] for out, into in zip(travelled, came, strict=True)]
print("rows from each rank to each rank:", found["rows"])
print("bytes sent by each rank:", found["sent_bytes"])
claim("a rank sends each row out and back, forward and backward", predicted == found["sent_bytes"])
""")
md("parallel-read", """
A row is sent once for each of its experts that lives elsewhere, so the bytes grow with k and with the width, and not with the size of the experts. If one expert is chosen too often, its device has more work than the others, and all wait for it. This is a second reason for the loss of balance.

### Does it work for convolutions?

Yes, if whole images are routed and not pixels. The router reads the mean over the pixels of a feature map, and the experts are copies of a stage. An image passes one of them. Each expert's [BatchNorm](glossary.md#BatchNorm) then sees only its own images, so with few images per expert its statistics become noisy.
""")
code("convolutions", """
network = create_model("convnet_small", 10).eval()
images = torch.rand(32, 3, 32, 32)
with torch.no_grad():
    expected = network(images)
    mixed = split_stage(copy.deepcopy(network), "layer3", width=128, k=2).eval()
    same = torch.allclose(mixed(images), expected, atol=1e-4)
claim("copies of a stage, two per image, compute what the stage did (1e-4)", same)
print(f"parameters: {count_parameters(network):,}, with experts {count_parameters(mixed):,}")
print("images of each expert:", list_experts(mixed)[0].sizes, "of", len(images), "with two each")
""")
md("libraries", """
### Which library would you take?

It depends on how many devices hold the experts. The layers of [transformers](https://huggingface.co/docs/transformers/model_doc/mixtral), such as Mixtral's, come with pretrained weights, and add the loss of balance if `output_router_logits=True`. [DeepSpeed-MoE](https://www.deepspeed.ai/tutorials/mixture-of-experts/) adds expert parallel together with ZeRO, a capacity, and the *residual* form, in which each token passes one dense MLP and one expert. [MegaBlocks](https://github.com/databricks/megablocks) computes experts of different sizes in one block-sparse product on a GPU, so that no token is dropped. We used none but the first, so the rest is what their authors say.

### Why did the experts not win by more?

Our experts are few and see few tokens. Each of them gets a quarter of the batch, so its gradient is noisier, and the router is random at first. Published gains grow with the length of the training and the number of experts: W. Fedus et al. report that with 64 experts or more a Switch network reaches the loss of a dense one of the same FLOPs in a seventh of the steps. Their smallest networks are a hundred times as large as ours.
""")
md("recap", """
## Recap and sources

* A router sends each token to one or two of several experts, and the gate multiplies the output, because only so does the router learn.
* The loss of balance keeps all experts in use. It belongs into the total loss, or its gradient into the layer.
* Leave padding out, and know whether tokens are dropped.
* Compare with two dense networks: one of equal FLOPs and one of equal parameters. Then compare at equal time.

Sources: N. Shazeer et al., [Outrageously Large Neural Networks](https://arxiv.org/abs/1701.06538), 2017 · D. Lepikhin et al., [GShard](https://arxiv.org/abs/2006.16668), 2020 (two experts, capacity) · W. Fedus, B. Zoph and N. Shazeer, [Switch Transformers](https://arxiv.org/abs/2101.03961), 2021 (one expert, the loss of balance) · B. Zoph et al., [ST-MoE](https://arxiv.org/abs/2202.08906), 2022 (z-loss) · A. Komatsuzaki et al., [Sparse Upcycling](https://arxiv.org/abs/2212.05055), 2023 · S. Rajbhandari et al., [DeepSpeed-MoE](https://arxiv.org/abs/2201.05596), 2022 · T. Gale et al., [MegaBlocks](https://arxiv.org/abs/2211.15841), 2022 · A. Q. Jiang et al., [Mixtral of Experts](https://arxiv.org/abs/2401.04088), 2024.

Back: [21 · Text](21_text.ipynb) · Next: [25 · Choose and judge](25_choose_and_judge.ipynb)
""")
