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

<details><summary>Hint</summary>The softmax runs over the experts. <code>torch.bincount(…, minlength=n)</code> also counts the experts that nobody chose.</details>
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

Each device keeps some of the experts, and the tokens travel: to the device of their expert, and back. This is *expert parallel*. How many tokens go where is known only after the routing, so the two [all-to-all](glossary.md#collective) exchanges are uneven: first the ranks tell each other the numbers, then they send the rows. In the backward pass the gradients take the same way in the other direction. The function below does it with two processes; `_send` is `dist.all_to_all_single`.
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
