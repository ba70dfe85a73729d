# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 21 · Text: do the techniques of this course work for text, too?
#
# All results so far belong to small networks and photographs of 32 × 32 pixels. Now you want to fine-tune a [transformer](glossary.md#transformer) on text. Which of those results may you take with you? This lesson compares the same techniques on both kinds of data, builds a transformer, and shows where texts go wrong.
#
# After this lesson you can build a transformer block with its two masks, compute a loss in which every token counts once, and say which of seven techniques have the same effect on text.
#
# Minutes: 90 · Prerequisites: [02 · Freezing](02_freezing.ipynb), [03 · LoRA](03_lora.ipynb), [08 · Accumulation](08_gradient_accumulation.ipynb) · Seam: *data*, batches `(tokens, targets)` · Budget: 180 s on two CPU cores in `quick` · **[Recipe ↓](#Recipe)**

# %% [markdown]
# ## Question
#
# We [fine-tune](glossary.md#fine-tuning) two small networks on 1,000 examples each: the convolutional network of the other lessons, which was [pretrained](glossary.md#pretrained) on labelled photographs of other classes, and a transformer that was pretrained on other definitions of the dictionary, by predicting the next word. Both get the same seven changes, such as a linear probe, [LoRA](glossary.md#LoRA), [label smoothing](glossary.md#label-smoothing) or gradient clipping. **How many of the seven have another effect on text than on photographs? And by how many points does the pretraining raise the accuracy on text?** Write both numbers into the cell below.

# %%
from course_utils.predictions import compare_prediction, record_prediction

prediction = record_prediction("21_text", changes=None, points=None)  # your numbers

# %% [markdown]
# Now open the answer that is nearest to your first number, and see what speaks for it:
#
# <details><summary>A. None or one of seven, because training is training</summary>Tempting, because the optimizer sees only numbers.</details>
# <details><summary>B. Two to four of seven, such as those that freeze a part of the network</summary>Reasonable, because the worth of a frozen part depends on what it has learned.</details>
# <details><summary>C. Five or more, because a transformer is another kind of network</summary>Tempting, because attention and convolution share no line of code.</details>

# %% [markdown] slideshow={"slide_type": "notes"}
# <details><summary>For the teacher</summary>
#
# Ask for both numbers before you open the First result, and collect them on the board. The masks are what students get wrong at home, so give the section Check the most time.
#
# </details>

# %% [markdown]
# ## Set-up
#
# The data set is `glosses`: definitions of WordNet, a dictionary. The task is to say of which kind the defined thing is. All texts are in lower case. `DATASET` may be a folder or a CSV file of your own texts.

# %% tags=["parameters"]
PROFILE = ""  # smoke, quick or full
DATASET = ""  # glosses if empty; or a CSV file or a folder of texts
FIRST_SEED = None  # first of the paired seeds, an integer
SHARE = 0.5  # of the profile's number of training texts
EPOCHS = 4  # of each live fine-tuning, at most
STEPS = 150  # of the tiny language models, at most

# %% cellView="form" jupyter={"source_hidden": true} tags=["imports", "hide-input"]
import copy
import math
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from scipy import stats
from torch import nn
from torch.optim import AdamW

from course_utils import plots
from course_utils.data.tokens import END, MASK, pad_texts
from course_utils.measure import count_parameters, time_calls
from course_utils.measure.paired import paired_difference
from course_utils.measure.statistics import adjust_holm
from course_utils.models import freeze_before
from course_utils.models.text_small import PADDING, Block, TextSmall
from course_utils.study_results import read_study
from course_utils.training import compare, warmup_cosine

# %%
from course_utils import claim, create_model, load_config, load_data

plots.use_style()
config = load_config(PROFILE, dataset=DATASET or "glosses", first_seed=FIRST_SEED)
num_train = int(SHARE * (config.num_train or 2000))
epochs = min(EPOCHS, config.epochs)
config = config.replace(model="text_small", num_train=num_train, epochs=epochs, batch_size=32)
data = load_data(config)
num_steps = STEPS if config.profile != "smoke" else 8
print(data.describe())
tokenizer = data.tokenizer
texts = [tokenizer.decode(tokens.tolist()) for tokens in data.train.tokens[:200]]
kinds = [data.class_names[target] for target in data.train.targets]
pd.DataFrame({"kind": kinds[:5], "definition": texts[:5]}).style.hide(axis="index")

# %% [markdown]
# ## First result
#
# A [study](glossary.md#study) trained both networks with each change, for five epochs and over ten paired [seeds](glossary.md#seed). Each variant was first trained with three learning rates on another seed, and the best of the three was then used for the ten seeds. Each row of the figure is one change, with the mean difference and its 95 % [interval](glossary.md#confidence-interval). Inside the grey band a difference is too small to matter to us, even where its interval excludes 0.

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
study = read_study("text")
BASELINE = "full fine-tuning"
CHANGES = {  # in words: (the variant that has it, the variant without it)
    "a cosine schedule": (BASELINE, "constant learning rate"),
    "averaged weights at a constant learning rate": (
        "constant, averaged weights",
        "constant learning rate",
    ),
    "label smoothing": ("label smoothing", BASELINE),
    "gradient clipping": ("clipping", BASELINE),
    "SGD instead of AdamW": ("SGD", BASELINE),
    "LoRA of rank 4": ("LoRA", BASELINE),
    "linear probe": ("linear probe", BASELINE),
}
REGIMES = ("photographs", "texts")
effects = {
    (change, regime): study.difference(regime, *pair)
    for change, pair in CHANGES.items()
    for regime in REGIMES
}
print(f"study, {study.describe_provenance()}")
for regime in REGIMES:
    print(f"full fine-tuning, {regime}: {100 * study.values(regime, BASELINE).mean():.1f} %")

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
figure, axis = plt.subplots(figsize=(7.2, 4.2))
axis.axvspan(-100 * study.margin, 100 * study.margin, color=plots.GREY, alpha=0.2, lw=0)
axis.axvline(0, color="black", lw=1)
for (change, regime), found in effects.items():
    number = REGIMES.index(regime)
    row = -list(CHANGES).index(change) - 0.25 * number
    half = 100 * (found.high - found.mean)
    style = {"fmt": "sD"[number], "color": plots.COLOURS[number], "capsize": 3, "ms": 5}
    label = regime if change == "label smoothing" else None
    axis.errorbar(100 * found.mean, row, xerr=half, label=label, **style)
axis.set_yticks([-n - 0.12 for n in range(len(CHANGES))], list(CHANGES))
title = "What a change does on photographs and on texts (points)"
axis.set(xlabel="accuracy with the change minus without it (points)", ylabel="", title=title)
axis.legend(fontsize=8, loc="upper left")
plt.show()

# %% [markdown]
# Here are the numbers of the figure, each with its [verdict](glossary.md#verdict). The last column answers our Question: it is the interval of the difference between the two effects. A change counts as different on text if this difference is larger than chance explains. We use Welch's *t* test with Holm's correction, because of seven tests one would often seem to find something.

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
def list_effects(change, regime):
    """The effect of a change at each seed, in points (10,)."""
    treated, untreated = CHANGES[change]
    return 100 * (study.values(regime, treated) - study.values(regime, untreated))


tests = {
    change: stats.ttest_ind(
        *(list_effects(change, regime) for regime in REGIMES[::-1]), equal_var=False
    )
    for change in CHANGES
}
p_values = adjust_holm([test.pvalue for test in tests.values()])
differing = [change for change, p in zip(CHANGES, p_values, strict=True) if p < 0.05]
rows = {}
for change, test in tests.items():
    for regime in REGIMES:
        effect = effects[change, regime]
        interval = f"{100 * effect.mean:+.1f} ({100 * effect.low:+.1f} to {100 * effect.high:+.1f})"
        verdict = effect.describe_verdict(margin=study.margin)
        rows.setdefault(change, {})[regime] = f"{interval}, {verdict}"
    low, high = test.confidence_interval(0.95)
    rows[change]["texts minus photographs"] = f"{low:+.1f} to {high:+.1f}"
pd.DataFrame(rows).T

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
brought = {regime: study.difference(regime, BASELINE, "from scratch") for regime in REGIMES}
print(
    f"Of {len(CHANGES)} changes, {len(differing)} have another effect on texts: {', '.join(differing) or 'none'}."
)
for regime, gain in brought.items():
    print(
        f"On {regime}, the pretraining brings {100 * gain.mean:.1f} points "
        f"({100 * gain.low:.1f} to {100 * gain.high:.1f})."
    )

# %% [markdown]
# Why do these three differ? A likely reason for the probe is that the convolutional network was pretrained to classify, and the transformer to predict words, so its last vectors are not made for classes. The cosine and the averaging both remove the noise of the last steps, and on texts there seems to be less of it. The study tests neither reason, because data, network and pretraining change together. The arguments of `fit` stayed the same, but the network did not. We build this network now.

# %% [markdown]
# ## Idea
#
# ### From a definition to numbers
#
# A network reads numbers, so a text is cut into [tokens](glossary.md#token), which are words or frequent parts of words. A *tokenizer* has learned 4,096 of them, each with a number. A rare word becomes several tokens. The mark ▁ stands for the space before a word. Each text ends with the token `[END]`.

# %%
example = data.train.tokens[0][:14]
names = [tokenizer.id_to_token(int(number)) for number in example]
pd.DataFrame({"token": names, "number": example}).T

# %% [markdown]
# Texts have different lengths, and a tensor is a rectangle. So the shorter texts of a batch are filled up with token 0, the [padding](glossary.md#padding). Padding costs time and teaches nothing, so the loader puts texts of similar length together.

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
random_batch = pad_texts(data.train.tokens[:32])
similar_batch = next(iter(data.train_loader()))[0]
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2))
for axis, batch, name in zip(
    axes, (random_batch, similar_batch), ("random texts", "texts of similar length"), strict=True
):
    axis.imshow(batch != PADDING, cmap="Blues", aspect="auto", vmin=0, vmax=1.4)
    share = (batch == PADDING).float().mean()
    axis.set(xlabel="token", ylabel="text", title=f"{name}: {share:.0%} is padding (white)")
    axis.grid(False)
plt.show()

# %% [markdown]
# ### Attention is a weighted mean
#
# A token alone says little: *bank* needs its neighbours. In [attention](glossary.md#attention) three linear layers compute a *query*, a *key* and a *value* from each token's vector. The score of two tokens is the product of the query of one and the key of the other. It is divided by the root of the number of entries, because a sum of more products is larger. A softmax turns the scores of a token into weights, and the token gets the weighted mean of all values, its own included. Three tokens with two numbers each can be followed by hand:

# %%
toy_q = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
toy_k = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
toy_v = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]])
toy_scores = toy_q @ toy_k.T / math.sqrt(2)  # row: who asks; column: who answers
toy_weights = toy_scores.softmax(dim=1)
print("weights:\n", toy_weights.round(decimals=2).numpy())
print("weighted means:\n", (toy_weights @ toy_v).round(decimals=2).numpy())

# %% [markdown]
# The first token asks for the first number and finds it in the first key, so most of its weight goes there. Every row of weights adds up to 1. What must a token *not* see? There are two rules, and both are a mask over the square of all scores: a forbidden score becomes −∞, so that its weight after the softmax is 0. No token sees padding, because it is not part of the text. And in a [causal](glossary.md#causal-mask) network, which predicts the next token, no token sees the tokens that come after it, because they are the answer.

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
toy_tokens = torch.tensor([[7, 8, 9, 10, PADDING, PADDING]])
not_padding = (toy_tokens != PADDING)[0].expand(6, 6)
not_future = torch.ones(6, 6, dtype=torch.bool).tril()
figure, axes = plt.subplots(1, 3, figsize=(8.6, 2.9))
masks = {"padding mask": not_padding, "causal mask": not_future, "both": not_padding & not_future}
labels = ["a", "large", "wild", "cat", "[PAD]", "[PAD]"]
for axis, (name, mask) in zip(axes, masks.items(), strict=True):
    axis.imshow(mask, cmap="Blues", vmin=0, vmax=1.4)
    axis.set_xticks(range(6), labels, rotation=60, fontsize=8)
    axis.set_yticks(range(6), labels if name == "padding mask" else [""] * 6, fontsize=8)
    axis.set(xlabel="is seen", ylabel="sees" if name == "padding mask" else "", title=name)
    axis.grid(False)
figure.suptitle("Blue: the token of the row may see the token of the column", x=0.01, ha="left")
plt.show()

# %% [markdown]
# ## From scratch
#
# A block has two parts. In attention, tokens read from each other, in several *heads*, each with its own queries, keys and values. A fourth linear layer, `o`, joins what the heads have read. Then two linear layers work on each token alone. Each part gets its input through a [LayerNorm](glossary.md#LayerNorm), and its output is *added* to the input.

# %%
class OwnBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)
        self.v, self.o = nn.Linear(width, width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (N, H, T, D / H)

    def forward(self, x, mask):  # (N, T, D), and bool (N, 1, T or 1, T)
        normed = self.norm1(x)
        q, k, v = (self.split(layer(normed)) for layer in (self.q, self.k, self.v))
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])  # (N, H, T, T)
        weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
        x = x + self.o((weights @ v).transpose(1, 2).flatten(2))  # (N, T, D)
        return x + self.down(F.gelu(self.up(self.norm2(x))))

# %% [markdown]
# The network around it is short. An embedding gives each token a vector, and a second one each position, because a weighted mean does not know the order. The blocks follow. For a class, the vectors of a text's tokens are averaged, without the padding, and go through one linear layer, `fc`. In this course its class is `TextSmall`, which calls PyTorch's attention. Its weights come from 92,708 definitions without a label, none of which is in our data. It is causal, because it was pretrained to predict the next token.

# %%
network = create_model("text_small", data.num_classes, pretrained=True).eval()
for name, child in network.named_children():
    print(f"{name:10} {count_parameters(child):>9,} parameters")

# %% [markdown]
# More than a third of the parameters is the table of tokens. Where a network predicts tokens, it needs a second one, from vectors back to tokens. *Weight tying* uses the first one for both, because tokens of similar meaning should have similar vectors in both places. Without it, this network would have more than a third more parameters:

# %%
table = network.tokens.weight  # (V, D)
vectors = network.encode(similar_batch)  # (N, T, D)
logits = network.predict_tokens(vectors)  # (N, T, V)
assert torch.equal(logits, vectors @ table.T)  # no other parameter
untied = count_parameters(network) + table.numel()
print(f"parameters: {count_parameters(network):,} tied, {untied:,} with a table of its own")

# %% [markdown]
# ## Check
#
# Our block should agree with the course's, which calls `scaled_dot_product_attention`, and with PyTorch's `nn.TransformerEncoderLayer`. The latter keeps q, k and v in one matrix, and its mask is True where a token is *hidden*. So PyTorch has both conventions, and swapped masks are a common fault.

# %% tags=["nbval-check-output"]
torch.manual_seed(0)
ours, course = OwnBlock(16, heads=2), Block(16, heads=2)
course.load_state_dict(ours.state_dict())
theirs = nn.TransformerEncoderLayer(
    16, 2, 64, dropout=0, activation=F.gelu, batch_first=True, norm_first=True
)
with torch.no_grad():
    attention = theirs.self_attn
    for kind in ("weight", "bias"):
        joined = torch.cat([getattr(layer, kind) for layer in (ours.q, ours.k, ours.v)])
        getattr(attention, f"in_proj_{kind}").copy_(joined)
names = {"o": attention.out_proj, "up": theirs.linear1, "down": theirs.linear2}
for name, layer in (names | {"norm1": theirs.norm1, "norm2": theirs.norm2}).items():
    layer.load_state_dict(getattr(ours, name).state_dict())
x, real = torch.randn(2, 6, 16), torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
expected = ours(x, real[:, None, None, :])[real]
same_as_course = course(x, real[:, None, None, :])[real]
claim("the course's block equals ours", torch.allclose(same_as_course, expected, atol=1e-5))
same_as_pytorch = theirs(x, src_key_padding_mask=~real)[real]
claim("PyTorch's layer equals ours", torch.allclose(same_as_pytorch, expected, atol=1e-5))

# %% [markdown]
# ### What goes wrong without the padding mask?
#
# Nothing that you would notice at once, because no error is raised. But the vectors of a text then depend on the *other* texts of the batch, because a longer neighbour brings more padding. The cell takes a text of four tokens alone, and then with two tokens of padding after it.

# %%
with torch.no_grad():
    alone = ours(x[1:, :4], torch.ones(1, 1, 1, 4, dtype=torch.bool))
    for is_hidden in (True, False):
        mask = real[1:, None, None, :] if is_hidden else torch.ones(1, 1, 1, 6, dtype=torch.bool)
        moved = (ours(x[1:], mask)[:, :4] - alone).abs().max()
        print(f"padding {'hidden' if is_hidden else 'seen'}: a vector moves by {moved:.1e} at most")

# %% [markdown]
# In a causal network such as ours, the tokens do not see the padding at the end anyway. Yet it must be left out of the mean over the tokens, and out of the loss.
#
# ### What goes wrong without the causal mask?
#
# A [language model](glossary.md#language-model) predicts each token from those before it. So the target at place t is the token at place t + 1. Padding gets the target −100, which PyTorch's cross-entropy ignores.

# %%
def make_language_task(tokens, pad_target=-100):
    """Inputs and targets (N, T - 1): each token predicts the next one; -100 is not predicted."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    return inputs, targets.masked_fill(targets == PADDING, pad_target)


inputs, targets = make_language_task(torch.tensor([[7, 8, 9, END], [5, END, PADDING, PADDING]]))
print("inputs ", inputs.tolist(), "\ntargets", targets.tolist())

# %% [markdown]
# If the mask is missing, each token sees the very token that it has to predict. We train two tiny language models, which differ only in the mask. Then we ask the second one with the mask, as it would be used for writing.

# %%
def train_tiny(causal, pad_target=-100):
    """A tiny language model after some steps, and its loss at each step (nats per token)."""
    torch.manual_seed(0)
    model = TextSmall(width=64, depth=1, heads=2, causal=causal)
    optimizer = AdamW(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(num_steps):
        tokens = pad_texts([data.train.tokens[n] for n in torch.randint(len(data.train), (16,))])
        inputs, targets = make_language_task(tokens, pad_target)
        logits = model.predict_tokens(model.encode(inputs))
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


tiny, honest = train_tiny(causal=True)
leaky, leaking = train_tiny(causal=False)

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
_, axis = plt.subplots(figsize=(6.4, 3))
axis.plot(honest, color=plots.COLOURS[0], label="with the causal mask")
axis.plot(leaking, color=plots.COLOURS[1], label="without it")
title = "Loss of two language models that differ only in the causal mask"
axis.set(xlabel="step", ylabel="loss (nats per token)", title=title, ylim=(0, None))
axis.legend(fontsize=8)
plt.show()
inputs, targets = make_language_task(random_batch)
leaky.causal = True
with torch.no_grad():
    logits = leaky.predict_tokens(leaky.encode(inputs)).flatten(0, 1)
asked = F.cross_entropy(logits, targets.flatten())
print(
    f"last ten steps: {np.mean(honest[-10:]):.2f} with the mask, {np.mean(leaking[-10:]):.2f} without it"
)
print(f"the network that was trained without it, asked with it: {asked:.2f}")
print(
    f"a guess that gives all tokens the same probability: {math.log(len(tiny.tokens.weight)):.2f}"
)

# %% [markdown]
# The lower loss does not measure prediction, because the network can copy its target. When a text is written, the next token is not there yet, and then the network is no better than a guess. The symptom is a loss far below that of comparable networks.

# %% [markdown]
# ## The library way
#
# At work a library has the tokenizer, the network and its masks. In this course texts go through the same six seams as images: a batch is `(tokens, targets)`, and every argument of `fit` means the same. LoRA by `peft` takes the names of linear layers.

# %%
def add_adapters(model):
    """LoRA of rank 4 in every linear layer of the blocks; the head is trained as a whole."""
    layers = ["q", "k", "v", "o", "up", "down"]
    settings = LoraConfig(r=4, lora_alpha=8, target_modules=layers, modules_to_save=["fc"])
    return get_peft_model(model, settings)  # it freezes the rest


def plan_tuning(lr, model_transform=None, pretrained=True):
    """Arguments of `fit` for one way of fine-tuning, with one validation after the last epoch."""
    return {
        "pretrained": pretrained,
        "model_transform": model_transform,
        "make_optimizer": partial(AdamW, lr=lr),
        "make_schedule": warmup_cosine,
        "trainer": {"check_val_every_n_epoch": epochs},
    }

# %% [markdown]
# ## Experiment
#
# ### Live: how much does each way of fine-tuning bring?
#
# Here we have fewer definitions, epochs and seeds than the study, so that it takes seconds. The learning rates are those that the study found best. We expect the study's order, which the cell prints first. But from random weights a network cannot get far in so few steps, so the pretraining should bring even more than in the study.

# %%
variants = {
    "from scratch": plan_tuning(2e-3, pretrained=False),
    "linear probe": plan_tuning(1e-2, partial(freeze_before, first_trained="fc")),
    "LoRA": plan_tuning(8e-3, add_adapters),
    "full fine-tuning": plan_tuning(5e-4),
}
means = {variant: 100 * study.values("texts", variant).mean() for variant in variants}
print("study:", ", ".join(f"{name} {means[name]:.1f} %" for name in sorted(means, key=means.get)))
live = compare(config, data, variants, name="fine-tuning")
live.table()

# %%
title = "Live: each way of fine-tuning against the same training from scratch"
plots.plot_paired({arm: live.values(arm) for arm in live.arms}, "val_accuracy", title)
plt.show()
order = sorted(variants, key=lambda variant: live.values(variant).mean())
is_same = order == sorted(means, key=means.get)
print(f"the order is {'that' if is_same else 'not that'} of the study: {', '.join(order)}")

# %% [markdown]
# ### Does padding count as a target?
#
# It easily does, because nothing fails. Padding is easy to predict, so the reported loss is lower. We train the tiny language model once more, with padding as an ordinary target, and compute both losses on the same batch.

# %%
counting, _ = train_tiny(causal=True, pad_target=PADDING)
losses = {}
for name, model in {"padding ignored": tiny, "padding counted": counting}.items():
    with torch.no_grad():
        logits = model.predict_tokens(model.encode(random_batch[:, :-1])).flatten(0, 1)
    for pad_target in (-100, PADDING):
        _, targets = make_language_task(random_batch, pad_target)
        losses[name, pad_target] = F.cross_entropy(logits, targets.flatten()).item()
wrong, right = losses["padding counted", PADDING], losses["padding ignored", -100]
print(f"trained with padding as a target, it reports a loss of {wrong:.2f} nats per target")
print(f"its loss of the real tokens is {losses['padding counted', -100]:.2f}")
print(f"trained without, the loss of the real tokens is {right:.2f}")

# %% [markdown]
# Half of the targets are padding, so counting them halves the reported loss, although the real tokens are predicted no better.
#
# ### Does accumulation give the gradient of the large batch?
#
# In lesson 08 it did, because all micro-batches had equally many images. Micro-batches of texts have different numbers of tokens. If we average their mean losses, a token counts more in a micro-batch that has few tokens. The Trainer of Hugging Face's transformers did this until [October 2024](https://huggingface.co/blog/gradient_accumulation). The fix is to add the losses of all tokens up, and to divide by the number of tokens of *all* micro-batches.

# %%
by_length = sorted(data.train.tokens[:64], key=len)
micro_batches = [make_language_task(pad_texts(by_length[n : n + 16])) for n in (0, 16, 32, 48)]
whole = make_language_task(pad_texts(by_length))
counts = [int((targets != -100).sum()) for _, targets in micro_batches]
print("predicted tokens of the four micro-batches:", counts)

# %% [markdown]
# We compute the gradient of all 64 texts at once, and compare both ways of adding up the four micro-batches with it.

# %%
def find_gradient(batches, divisors):
    """The gradient (P,) of the sum of the batches' token losses, each divided by its divisor."""
    model = copy.deepcopy(tiny)
    for (inputs, targets), divisor in zip(batches, divisors, strict=True):
        logits = model.predict_tokens(model.encode(inputs)).flatten(0, 1)
        loss = F.cross_entropy(logits, targets.flatten(), reduction="sum")
        (loss / divisor).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


expected = find_gradient([whole], [sum(counts)])
for name, divisors in {
    "mean of means": [len(counts) * count for count in counts],
    "every token once": [sum(counts)] * len(counts),
}.items():
    error = (find_gradient(micro_batches, divisors) - expected).norm() / expected.norm()
    print(f"{name}: the gradient differs from the large batch's by {error:.1e} of its norm")

# %% [markdown]
# ## Verdict
#
# Three of seven, and eighteen points: the cell computes both from the study, and puts your prediction beside them.

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
option = "A" if len(differing) <= 1 else "B" if len(differing) <= 4 else "C"
print(f"{len(differing)} of {len(CHANGES)} changes have another effect on texts (option {option}).")
intervals = [
    tests[change].confidence_interval(0.95) for change in CHANGES if change not in differing
]
furthest = max(abs(edge) for interval in intervals for edge in interval)
print(f"The intervals of the others reach to {furthest:.1f} points at most.")
gain = brought["texts"]
interval = f"{100 * gain.low:+.1f} to {100 * gain.high:+.1f}"
print(f"The pretraining brings {100 * gain.mean:+.1f} points ({interval}) on texts.")
compare_prediction(prediction, changes=len(differing), points=100 * gain.mean)

# %% [markdown]
# For the other four we found no difference, and the intervals exclude a large one: on both kinds of data label smoothing and clipping changed little, SGD was as good as AdamW once its learning rate was tuned, and LoRA of rank 4 cost one to two points. Measure the schedule again, because the cosine and the averaged weights helped on photographs, and not on texts. Measure the linear probe again, too: it cost more on texts.
#
# * An answer changes with the batch → padding is seen, or is in the mean → classify one text alone and beside a longer one.
# * A run with accumulation differs from one with a large batch → mean of means → divide the sum by all predicted tokens.
#
# **What this lesson does not show.** Data, network and pretraining differ together. The network has 1.3 million parameters and a text has about 19 tokens, so nothing here says what happens in models a thousand times as large, or where attention over thousands of tokens takes most of the time.

# %% [markdown]
# ## Recipe
#
# * **Use it when** you accumulate, and texts differ in length: in a mean of means, a token of a micro-batch of 10 weighs nine times one of 90.
# * **Not when** each text has one label, or all micro-batches have equally many tokens.
# * **Defaults** AdamW, a gradient norm of at most 1, the label −100 for what is not predicted, and one division by the predicted tokens of the whole step, as [the Trainer of transformers](https://huggingface.co/blog/gradient_accumulation) does for causal networks. For [T5](https://huggingface.co/docs/transformers/model_doc/t5) a learning rate of 1e-4 to 3e-4.
# * **Cost** padding: texts of 10 and of 100 tokens in one batch take 200 positions, 45 % of them padding. Sorting the texts of a step by length avoids most of it.
# * **Trap** the loss is low, and falls when batches get longer → padding counts as a target → give it the label −100 by length: its id may be the end token's.
# * **Trap** the loss is near zero, and generated text is nonsense → the network sees what it has to predict → test it: if one token changes, no logits before it may. Shift labels in one place only.

# %% [markdown]
# ### In plain PyTorch
#
# The loader gives the texts of a whole step, whose predicted tokens are counted before the first backward pass. The network gets no labels, because it would shift them once more.

# %% tags=["card", "card-pytorch"]
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel


def collate(texts):  # token ids with an end token; shifted here, and nowhere else
    inputs = pad_sequence([text[:-1] for text in texts], batch_first=True)
    following = [text[1:] for text in texts]
    labels = pad_sequence(following, batch_first=True, padding_value=-100)
    return inputs, labels == -100, labels  # what is padding, for the attention


def train_step(model, optimizer, micro_batches, max_norm=1.0):
    count = sum((y != -100).sum() for _, _, y in micro_batches).to(device)
    if torch.distributed.is_initialized():  # DDP takes the mean of processes
        torch.distributed.all_reduce(count)
        count = count / torch.distributed.get_world_size()
    optimizer.zero_grad()
    total = 0
    for batch in micro_batches:
        inputs, padding, labels = (part.to(device) for part in batch)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits = model.train()(inputs, attention_mask=~padding).logits
        loss = F.cross_entropy(logits.float().mT, labels, reduction="sum") / count
        loss.backward()  # adds to .grad; labels of -100 count as 0
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return total  # the loss per token (under DDP, the part of this process)


device = "cuda" if torch.cuda.is_available() else "cpu"
texts = [torch.arange(length) % 7 for length in range(4, 68)]  # yours
sizes = {"vocab_size": 50, "n_embd": 32, "n_layer": 1, "n_head": 4}  # yours
small = GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)  # yours
model = GPT2LMHeadModel(small).to(device)  # or .from_pretrained("gpt2")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for whole in DataLoader(texts, 16, shuffle=True, collate_fn=list):  # of one step
    whole.sort(key=len)  # less padding
    micro_batches = [collate(whole[i : i + 4]) for i in range(0, len(whole), 4)]
    loss = train_step(model, optimizer, micro_batches)

# %% [markdown]
# ### In Lightning
#
# T5 shifts its labels itself. `from_pretrained` leaves dropout off, so the module calls `train()`; call `eval()` before you generate. With accumulation or DDP, divide by a count, as above.

# %% tags=["card", "card-lightning"]
import lightning as L
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import T5Config, T5ForConditionalGeneration
from transformers.utils.logging import disable_progress_bar


def collate(pairs):  # ids of source and target, each with T5's end token, 1
    sources, targets = zip(*pairs, strict=True)
    x = pad_sequence(sources, batch_first=True)  # 0 is padding, and nothing else
    y = pad_sequence(targets, batch_first=True, padding_value=-100)
    return {"input_ids": x, "attention_mask": (x != 0).long(), "labels": y}


class LitT5(L.LightningModule):
    def __init__(self, model, lr=3e-4):
        super().__init__()
        self.model, self.lr = model.train(), lr

    def training_step(self, batch, batch_idx):
        return self.model(**batch).loss  # shifts; a mean without the -100

    def validation_step(self, batch, batch_idx):
        weight = (batch["labels"] != -100).sum().item()
        self.log("val_loss", self.model(**batch).loss, batch_size=weight)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


tiny = T5Config(vocab_size=64, d_model=16, num_layers=1, decoder_start_token_id=0)
t5 = T5ForConditionalGeneration(tiny)  # yours: .from_pretrained("t5-small")
pairs = [(torch.tensor([5] * (i % 4) + [1]),) * 2 for i in range(32)]  # yours
train = DataLoader(pairs, 8, shuffle=True, collate_fn=collate)
val = DataLoader(pairs, 8, collate_fn=collate)  # yours: held-out pairs
disable_progress_bar()
quiet = ["logger", "enable_progress_bar", "enable_model_summary"]
options = {"precision": "bf16-mixed", "gradient_clip_val": 1.0}  # fp16 overflows
trainer = L.Trainer(max_epochs=2, **options, **dict.fromkeys(quiet, False))
trainer.fit(LitT5(t5), train, val)
t5.save_pretrained("t5-tuned")
generated = t5.eval().generate(collate(pairs)["input_ids"], max_new_tokens=8)


# %% [markdown] slideshow={"slide_type": "skip"}
# ## Exercises
#
# Write each function yourself, in place of the body that stands there, and run the check below it. An answer may use the lesson's imports and what you define from here on, nothing else of the notebook.
#
# ### ☆ Experiment: a technique on texts (15 minutes)
#
# Choose one technique of this course, for example label smoothing, a schedule or gradient clipping. **Predict first**: how many points does it bring if the pretrained network is fine-tuned on definitions? Then write `text_experiment(config, data)`, which trains without and with it over three paired seeds or more. It returns four things: the accuracies without, the accuracies with, and the two edges of the 95 % interval of the mean difference. The check trains on fewer than 200 definitions, recomputes the interval and prints the verdict. To measure on all of this lesson's definitions, call `text_experiment(config, data)` in a cell of your own. If your technique stands in the table of the First result, compare: does the study's mean difference lie in your interval, and how much wider is yours? The study's baseline has a cosine and a tuned learning rate, so give yours both.
#
# <details><summary>Hint</summary>A variant is <code>{"pretrained": True, "make_schedule": warmup_cosine}</code>, and <code>compare</code> trains two of them at the same seeds. <code>comparison.difference(…)</code> has <code>low</code> and <code>high</code>.</details>

# %% nbgrader={"grade": false, "grade_id": "text_experiment", "locked": false, "schema_version": 3, "solution": true, "task": false} slideshow={"slide_type": "skip"}
def text_experiment(config, data):
    """Accuracies without and with a technique over the same seeds, and the interval's edges."""
    ### BEGIN SOLUTION
    technique = {"loss": partial(F.cross_entropy, label_smoothing=0.1)}
    variants = {"without": {"pretrained": True}, "with": {"pretrained": True} | technique}
    measured = compare(config, data, variants, seeds=(0, 1, 2), name="my technique on texts")
    difference = measured.difference("with")
    without, with_it = (measured.values(variant) for variant in measured.arms)
    return without, with_it, difference.low, difference.high
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "check_text_experiment", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false} slideshow={"slide_type": "skip"}
from lesson_code.text import checks

checks.check_text_experiment(text_experiment)

# %% [markdown] slideshow={"slide_type": "skip"}
# <details><summary>Worked answer</summary>Both variants start from the same pretrained weights and see the same batches, so their differences are paired. The study has ten seeds, and yours are three. An interval becomes narrower with the root of the number of seeds, and with three of them Student's t makes it wider still. So if the effect is about one point, your interval will mostly contain both 0 and the study's number. This is no contradiction: three seeds cannot decide a difference of one point.</details>
#
# ### ★ Exercise 1: the mask (5 minutes)
#
# Write `make_mask(tokens, is_causal)`. `tokens` has the shape `(N, T)`. It returns a mask of type `bool` and shape `(N, 1, T, T)`, as `scaled_dot_product_attention` takes it: True where token `t` (the row) may see token `s` (the column). No token sees `PADDING`, wherever it stands in a text. If `is_causal`, a token sees only itself and what stands before it. The rows of padding follow the same rules as all others.
#
# <details><summary>Hint</summary>Which tokens are real is a tensor <code>(N, T)</code>. Give it the shape <code>(N, 1, 1, T)</code>, and broadcasting hides a column in every row. <code>tril()</code> keeps the diagonal and what is below it.</details>

# %% nbgrader={"grade": false, "grade_id": "make_mask", "locked": false, "schema_version": 3, "solution": true, "task": false} slideshow={"slide_type": "skip"}
def make_mask(tokens, is_causal):
    """Mask (N, 1, T, T) of type bool: True where the token of the row sees that of the column."""
    ### BEGIN SOLUTION
    length = tokens.shape[1]
    mask = (tokens != PADDING)[:, None, None, :].expand(-1, 1, length, length)
    return mask.tril() if is_causal else mask
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "check_make_mask", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false} slideshow={"slide_type": "skip"}
from lesson_code.text import checks

checks.check_make_mask(make_mask)

# %% [markdown] slideshow={"slide_type": "skip"}
# <details><summary>Worked answer</summary>The padding mask hides columns, because it says who is seen. With the causal mask and padding at the end, a forgotten padding mask changes nothing for the real tokens, because the padding stands behind them. So the fault stays unnoticed until a program generates texts for several beginnings at once, and pads in front so that all end at the same place. There, a causal row of padding sees no token at all, and the softmax of our own block gives nan for it.</details>
#
# ### ★★ Exercise 2: accumulate by tokens (15 minutes)
#
# Write `accumulate_by_tokens(model, micro_batches)`. `micro_batches` yields pairs `(tokens, targets)`, both `(N, T)`, where N and T differ from pair to pair. `model(tokens)` gives logits `(N, T, V)`, and a target of −100 is not predicted. As with a loader, the pairs can be read only **once**, so the number of predicted tokens is not known before the last of them. Call `backward` for each micro-batch. At the end, the gradients of the parameters are those of the mean loss over all predicted tokens of all micro-batches. Return this loss as a float. All gradients are None at the beginning, and those of frozen parameters stay None.
#
# <details><summary>Hint</summary><code>F.cross_entropy(…, reduction="sum")</code> leaves out −100 by itself. A gradient that is already accumulated can still be divided.</details>

# %% nbgrader={"grade": false, "grade_id": "accumulate_by_tokens", "locked": false, "schema_version": 3, "solution": true, "task": false} slideshow={"slide_type": "skip"}
def accumulate_by_tokens(model, micro_batches):
    """Leave the gradients of the mean loss over all predicted tokens; returns that loss."""
    ### BEGIN SOLUTION
    total, count = 0.0, 0
    for tokens, targets in micro_batches:
        logits = model(tokens).flatten(0, 1)  # (N T, V)
        loss = F.cross_entropy(logits, targets.flatten(), reduction="sum")
        loss.backward()
        total += loss.item()
        count += (targets != -100).sum().item()
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= count
    return total / count
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "check_accumulate_by_tokens", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false} slideshow={"slide_type": "skip"}
from lesson_code.text import checks

checks.check_accumulate_by_tokens(accumulate_by_tokens)

# %% [markdown] slideshow={"slide_type": "skip"}
# <details><summary>Worked answer</summary>The gradient is linear in the loss, so the sum can be divided after the last <code>backward</code> as well as before the first. Mean losses per micro-batch would weigh a token more where few are predicted, and a micro-batch that predicts nothing would give nan. The gradients are correct only after the division, so clip them afterwards.</details>
#
# ### ★★★ Exercise 3: find the bugs (15 minutes)
#
# This function should train a network to predict the next token, with one step on all texts in each epoch. It returns the loss after each epoch, as the mean over the real tokens in evaluation mode. It has **four** faults. Write `train_language_model` without them.
#
# ```python
# def train_language_model(model, texts, epochs, lr):
#     optimizer = torch.optim.SGD(model.parameters(), lr=lr)
#     tokens = pad_texts(texts)
#     inputs, targets = tokens[:, :-1], tokens[:, 1:]
#
#     def find_loss():
#         logits = model(inputs)[:, :-1].flatten(0, 1)
#         return F.cross_entropy(logits, targets[:, 1:].flatten())
#
#     losses = []
#     model.train()
#     for _ in range(epochs):
#         optimizer.zero_grad()
#         find_loss().backward()
#         optimizer.step()
#         model.eval()
#         with torch.no_grad():
#             losses.append(find_loss().item())
#     return losses
# ```
#
# `model` maps tokens `(N, T)` to logits `(N, T, V)`. As in `TextSmall`, `model.causal` says whether a token sees only itself and what stands before it. It may be False at first: leave it at the end as you found it.
#
# <details><summary>Hint</summary>Which token is compared with the logits of the first one? What does a short text add to the loss? In which mode does the second epoch train? And which tokens does the network see while it predicts?</details>

# %% nbgrader={"grade": false, "grade_id": "train_language_model", "locked": false, "schema_version": 3, "solution": true, "task": false} slideshow={"slide_type": "skip"}
def train_language_model(model, texts, epochs, lr):
    """Train it in place to predict the next token; returns the loss after each epoch."""
    ### BEGIN SOLUTION
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    tokens = pad_texts(texts)  # (N, T)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    targets = targets.masked_fill(targets == PADDING, -100)
    losses = []
    was_causal, model.causal = model.causal, True
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(inputs).transpose(1, 2), targets).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            losses.append(F.cross_entropy(model(inputs).transpose(1, 2), targets).item())
    model.causal = was_causal
    return losses
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "check_train_language_model", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false} slideshow={"slide_type": "skip"}
from lesson_code.text import checks

checks.check_train_language_model(train_language_model)


# %% [markdown] slideshow={"slide_type": "skip"}
# <details><summary>Worked answer</summary>(1) The targets are shifted twice, in the data and again in the loss, so each token predicts the one after the next. Some libraries shift the labels inside the model, so give them labels that are not shifted. (2) Padding is a target. It is easy to predict, so the loss is too low: make it −100. (3) <code>model.train()</code> stands before the loop, and the first measurement calls <code>eval()</code>, so dropout is on in the first epoch only. (4) <code>model.causal</code> is not set, so the network copies its targets from the input. None of the four raises an error.</details>

# %% [markdown]
# ## Going deeper
#
# Each of these parts stands alone.
#
# ### Can the network write definitions?
#
# A little, as the ten definitions below show. A causal network gives a probability to each next token. To write, we draw a token, append it, and ask again, until `[END]` comes. Before the softmax the logits are divided by a *temperature*. Below 1 the likely tokens become likelier, above 1 the text becomes wilder.

# %%
@torch.no_grad()
def write_texts(model, start, temperature, count=5, longest=30):
    """Texts that begin with the tokens ``start``, drawn token by token."""
    tokens = torch.tensor([start] * count)
    for _ in range(longest):
        logits = model.predict_tokens(model.encode(tokens)[:, -1])
        logits[:, [PADDING, MASK]] = -torch.inf
        drawn = torch.multinomial((logits / temperature).softmax(dim=-1), 1)
        ended = (tokens == END).any(dim=1, keepdim=True)
        tokens = torch.cat([tokens, drawn.masked_fill(ended, END)], dim=1)
    return [tokenizer.decode(row.tolist()) for row in tokens]


writer = create_model("text_small", 10, pretrained=True).eval()
writer.causal = True
torch.manual_seed(0)
start = tokenizer.encode("a small").ids
for temperature in (0.5, 1.0):
    print(f"temperature {temperature}:")
    print("\n".join(f"  {text}" for text in write_texts(writer, start, temperature)))

# %% [markdown]
# ### Is packing faster than padding?
#
# Yes; how much it saves depends on how the texts would otherwise be put together. *Packing* writes several texts into one row, one after the other. Texts in one row must not influence each other. So the positions start again with each text, and a mask lets a token see its own text only. For a language model, the last token of a text must not predict the first of the next one, so its target is −100. Then packed vectors equal padded ones:

# %%
def pack_texts(texts, length):
    """Rows (R, length) of tokens, and for each the number of its text and its position in it."""
    rows, numbers, positions = [[]], [[]], [[]]
    for number, text in enumerate(texts, 1):
        if len(rows[-1]) + len(text) > length:
            for part in (rows, numbers, positions):
                part.append([])
        rows[-1] += text.tolist()
        numbers[-1] += [number] * len(text)
        positions[-1] += range(len(text))
    return [pad_texts([np.array(row) for row in part]) for part in (rows, numbers, positions)]


# %%
def encode_packed(model, tokens, numbers, positions):
    mask = numbers[:, None, :, None] == numbers[:, None, None, :]  # (R, 1, T, T): the same text
    if model.causal:
        mask = mask.tril()
    x = model.tokens(tokens) + model.positions(positions)
    for block in model.blocks:
        x = block(x, mask)
    return model.norm(x)


few = data.train.tokens[:64]
packed = pack_texts(few, 128)
halves = [pack_texts(few[:32], 128), pack_texts(few[32:], 128)]
with torch.no_grad():
    padded_vectors = network.encode(pad_texts(few))[pad_texts(few) != PADDING]
    packed_vectors = encode_packed(network, *packed)[packed[0] != PADDING]
claim("packing changes no vector", torch.allclose(packed_vectors, padded_vectors, atol=1e-4))

# %% [markdown]
# How much time does it save? We measure forward and backward on the same 64 texts, in one run. Padding does not count as a token, and each way encodes two batches:

# %%
def measure_throughput(encode):
    """Real tokens per second, forward and backward over the 64 texts."""

    def step():
        network.zero_grad()
        sum(vectors.square().mean() for vectors in encode()).backward()

    return 1000 * sum(map(len, few)) / time_calls(step, network.fc.weight.device)


sorted_few = sorted(few, key=len)
ways = {
    "padded, random batches": lambda: [network.encode(pad_texts(few[n : n + 32])) for n in (0, 32)],
    "padded, similar lengths": lambda: [
        network.encode(pad_texts(sorted_few[n : n + 32])) for n in (0, 32)
    ],
    "packed": lambda: [encode_packed(network, *half) for half in halves],
}
throughput = pd.Series({name: measure_throughput(encode) for name, encode in ways.items()})
(throughput / throughput.iloc[0]).round(2).rename("throughput, as a multiple of the first")

# %% [markdown]
# ### May one dropout module stand in two places?
#
# It may, but it is better to give each place a module of its own. A module without parameters, such as `nn.Dropout` or `nn.ReLU`, computes the same either way. But tools that work with modules by name, such as hooks, quantization and profilers, see one module instead of two: its hook runs twice, and if you replace the dropout of one place, the other changes, too.

# %%
class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.drop = nn.Linear(8, 32), nn.Linear(32, 8), nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(self.second(self.drop(self.first(x))))


shared = Shared()
shapes = []
shared.drop.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape)))
shared(torch.randn(4, 8))
print("one module, two shapes in its hook:", shapes)

# %% [markdown]
# ### Does mixup work on texts?
#
# It can be computed, and with so few texts we cannot say whether it helps: see the interval below. Tokens cannot be averaged, but their vectors can. The batch seam draws λ and the partners, and mixes the targets as in lesson 05. A hook mixes the embeddings of the same pairs. Where the partner is longer, its last tokens fall on padding and are lost, although its label counts. The full fine-tuning of the Experiment is the baseline.

# %%
class EmbeddingMixup:
    """Mixup of embeddings: the batch seam mixes targets, and a hook mixes what they belong to."""

    def __init__(self, alpha, num_classes):
        self.beta, self.num_classes = torch.distributions.Beta(alpha, alpha), num_classes

    def __call__(self, tokens, targets):
        self.lam, self.partners = self.beta.sample(), torch.randperm(len(tokens))
        hard = F.one_hot(targets, self.num_classes).float()
        return tokens, torch.lerp(hard[self.partners], hard, self.lam)

    def attach(self, model):
        def mix(module, inputs, vectors):
            if not module.training:
                return vectors
            return torch.lerp(vectors[self.partners], vectors, self.lam)

        model.tokens.register_forward_hook(mix)
        return model


# %%
mixup = EmbeddingMixup(0.4, data.num_classes)
mixed = plan_tuning(5e-4, mixup.attach) | {"batch_transform": mixup}
mixing = compare(config, data, {"mixup": mixed}, name="mixup")
gain = paired_difference(live.values("full fine-tuning"), mixing.values("mixup"))
print(f"mixup: {100 * gain.mean:+.1f} points (95 % interval {gain.format_interval(100)})")

# %% [markdown]
# ### What does a T5 do differently?
#
# It has two halves. An *encoder* without a causal mask reads the input, and a causal *decoder* writes the output. In every block of the decoder a second attention, the *cross-attention*, takes its keys and values from the encoder. It was pretrained on gaps: several tokens in a row are replaced by one mark, and the decoder writes what is missing. Positions enter as a bias of the attention scores. Every task is written as "text in, text out", so the targets of its fine-tuning are tokens with −100 for padding, as above. The card for Lightning trains one.
#
# ### What do large language models do against divergence?
#
# The authors of [YaLM](https://github.com/yandex/YaLM-100B), a model of 100 billion parameters, report what made their training stable: bf16 for the weights, higher precision for what is sensitive, a norm before each part of a block and one more after the embedding, and short texts at first. Lesson 15 shows how to go back from a spike. We measured none of it, so these are their findings, not ours.

# %% [markdown]
# ## Recap and sources
#
# * A text becomes tokens, and a batch of texts a rectangle with padding, which must be hidden from attention, loss and mean.
# * A causal mask hides the future. Without it a language model copies its answer, and its loss is too good.
# * Count tokens, not batches: the loss of a step is the sum over all predicted tokens, divided by their number.
# * The six seams carry text unchanged. The verdicts have to be measured again.
#
# Sources: A. Vaswani et al., [Attention Is All You Need](https://arxiv.org/abs/1706.03762), 2017 · R. Xiong et al., [On Layer Normalization in the Transformer Architecture](https://arxiv.org/abs/2002.04745), 2020 · J. Devlin et al., [BERT](https://arxiv.org/abs/1810.04805), 2019 (hidden tokens) · O. Press and L. Wolf, [Using the Output Embedding to Improve Language Models](https://arxiv.org/abs/1608.05859), 2017 (weight tying) · C. Raffel et al., [Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer](https://arxiv.org/abs/1910.10683), 2020 (T5) · M. Krell et al., [Efficient Sequence Packing without Cross-contamination](https://arxiv.org/abs/2107.02027), 2021 · H. Guo, Y. Mao and R. Zhang, [Augmenting Data with Mixup for Sentence Classification](https://arxiv.org/abs/1905.08941), 2019 · C. Fellbaum (ed.), *WordNet: An Electronic Lexical Database*, MIT Press, 1998 · [PyTorch: scaled_dot_product_attention](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html).
#
# Back: [20 · Sharding](20_sharding.ipynb) · Next: [25 · Choose and judge](25_choose_and_judge.ipynb)
