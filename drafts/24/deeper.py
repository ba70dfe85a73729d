md("deeper", f"""
## Going deeper

Each of these parts stands alone.

### How few bits are enough?

About six, for these networks, if every row of a weight has a scale of its own. The study rounded the weights of three networks of each kind to fewer and fewer bits. With one scale per row, 4 bits cost {lost('photographs','4 bits, one scale per row')} points on photographs and {lost('texts','4 bits, one scale per row')} on texts; with one scale for a whole weight they cost {lost('photographs','4 bits, one scale per weight')} and {lost('texts','4 bits, one scale per weight')}. So the axis of the scales is worth about as much as one bit. Only weights are rounded here, and activations are not. Thin lines are single networks, and thick ones their means.
""")
code("bits", """
BITS = (2, 3, 4, 6, 8)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
for axis, kind in zip(axes, KINDS, strict=True):
    four = []
    for unit, colour in zip(("row", "weight"), plots.COLOURS, strict=False):
        names = [f"{bits} bits, one scale per {unit}" for bits in BITS]
        lines = 100 * np.array([study.values(kind, name) for name in names])  # (bits, networks)
        axis.plot(BITS, lines, color=colour, lw=0.7, alpha=0.6)
        axis.plot(BITS, lines.mean(axis=1), "o-", color=colour, label=f"one scale per {unit}")
        four.append(f"{-100 * study.difference(kind, names[2]).mean:.1f}")
    axis.set(xlabel="bits of a weight", ylabel="accuracy (%)" if axis is axes[0] else "")
    axis.set_title(f"{kind}: 4 bits cost {four[0]} or {four[1]} points", fontsize=10)
axes[0].legend(fontsize=8)
plt.show()
""", hide=True)
md("calibration-md", f"""
### Does the calibration set matter?

Less than expected. Eight photographs in place of 256 change the accuracy by {f1(pts('photographs','int8, calibrated on 8'))} points against fp32, and even random noise by {f1(pts('photographs','int8, calibrated on noise'))} ({iv('photographs','int8, calibrated on noise')}), because BatchNorm makes the range of each layer similar for all inputs. Without BatchNorm, or with outliers, it would matter more. The table has the study's changes of the networks for photographs.
""")
code("calibration-table", """
names = ["int8", "int8, one scale per weight", "int8, calibrated on 8", "int8, calibrated on noise"]
study.table("photographs", ["fp32", *names, "mirrored, too"])
""")
code("texts-table", """
study.table("texts", ["fp32", "int8", "int8, embeddings too", *study.list_faults("texts")])
""")
md("texts-read", f"""
Texts have faults of preprocessing, too. Padding in front in place of behind costs {lost('texts','fault: padded in front')} points, padding with another token {lost('texts','fault: padded with [END]')}, although attention hides it in training, and numbers of tokens that are off by one leave {mean('texts','fault: token numbers plus one'):.1f} %. The embedding is {4*4096*128/1e6:.1f} MB of the file, so linear layers in int8 alone do not make it a quarter.

### Does pruning make a network smaller and faster?

Neither, as long as the zeros are stored and multiplied like other numbers. The study set the smallest weights of three networks of each kind to zero, without training afterwards. Without half of the weights, photographs change by {f1(pts('photographs','pruned, 50%'))} points ({iv('photographs','pruned, 50%')}), and texts by {f1(pts('texts','pruned, 50%'))} ({iv('texts','pruned, 50%')}). But the file has the same size, and each call takes the same time. Zeros are worth something if they are compressed on their way, if whole channels are removed, or in the patterns that some GPUs support.
""")
code("pruning", """
shares = ("30%", "50%", "70%", "90%")
table = {kind: {share: study.describe(kind, f"pruned, {share}") for share in shares} for kind in KINDS}
pd.DataFrame(table).rename_axis("pruned")
""")
md("distil-md", f"""
### Is a small student better than a large network made small?

It is smaller and faster, and here much worse. A student with a sixteenth of the weights learns from scratch, at three seeds, from labels or from the network's probabilities at temperature 4, which is called *distillation*. With three seeds the difference is a first number and no verdict: the teacher brings {mean('photographs','student, teacher')-mean('photographs','student, labels'):.1f} points over labels ({iv2('photographs','student, teacher','student, labels')}), on the same photographs. But the student reaches {mean('photographs','student, teacher'):.1f} %, and the pretrained network in int8 {mean('photographs','int8'):.1f} % in a file four times as large. Distillation is at its best with many unlabelled photographs, which we did not try.
""")
code("distil", """
students = [f"student, {source}" for source in ("labels", "teacher")]
gain = study.difference("photographs", "student, teacher", baseline="student, labels")
for name in ("fp32", "int8", *students):
    size = study.values("photographs", name, "bytes")[0] / 1e6
    print(f"{name}: {100 * study.values('photographs', name).mean():.1f} %, {size:.2f} MB")
print(f"teacher against labels: {100 * gain.mean:+.1f} ({gain.format_interval(100)}) points")
""")
md("tta-md", f"""
### Does a second look at the mirrored photograph help?

Yes, {f1(pts('photographs','mirrored, too'))} points ({iv('photographs','mirrored, too')}), for twice the time. The probabilities of the photograph and of its mirror image are averaged, which is *test-time augmentation*. It helps where the training mirrored photographs, as ours did. Put it into the graph, or the service will not do what you validated.

### How does a service notice that its inputs have changed?

By its [confidence](glossary.md#confidence), which needs no labels. We compare each window of 50 answers with the confidences of validation photographs, in two ways: a mean below the lowest 2.5 % of such windows, and a Kolmogorov-Smirnov test at 5 %. Half of the validation photographs set the threshold, and the other half measures the false alarms.
""".replace("each window of 50 answers", "each group of 50 answers").replace("of such windows", "of such groups"))
code("drift", """
rng = np.random.default_rng(config.first_seed)
order = rng.permutation(len(pixels))
known, later = order[::2], order[1::2]
shifted = preprocessing.list_image_faults(data.mean, data.std)


@torch.inference_mode()
def list_confidences(prepare, places):
    \"\"\"The largest probability of each answer (N,).\"\"\"
    return network(prepare(pixels[places])).softmax(dim=1).amax(dim=1).numpy()


def draw_groups(confidences, count=200, size=50):
    \"\"\"Random groups of answers.\"\"\"
    return [rng.choice(confidences, size) for _ in range(count)]
""")
md("drift-table-md", """
Each fault of preprocessing is a shift of the inputs that we know. The first row has none, so its alarms are false.
""")
code("drift-table", """
reference = list_confidences(shifted[preprocessing.AS_TRAINED], known)
threshold = np.quantile([group.mean() for group in draw_groups(reference)], 0.025)
table = {}
for name, prepare in shifted.items():
    groups = draw_groups(list_confidences(prepare, later))
    low = [group.mean() < threshold for group in groups]
    other = [stats.ks_2samp(group, reference).pvalue < 0.05 for group in groups]
    table[name] = {"mean is low": f"{np.mean(low):.0%}", "KS test": f"{np.mean(other):.0%}"}
pd.DataFrame(table).T.rename_axis("alarms, of groups of 50")
""")
md("drift-read", """
The false alarms of the test are not 5 %, because the two halves are two samples of photographs, and each group is compared with one of them. A low mean notices what makes the network doubt, and is blind where a fault makes it more confident: pixels that were not divided by 255 give logits in the hundreds. The test looks at both sides, and notices this as well. Small shifts, such as ImageNet's normalisation, are found by neither, and by parity at once. So confidence is for inputs that change by themselves, after parity has excluded the faults of your own program.

### Is the compiled network faster for inference?

`torch.compile` fuses layers, for which it needs a C++ compiler. `torch._inductor.aoti_compile_and_package` writes the same code into a file, for services without Python.
""")
code("compiled", """
if shutil.which("g++") is None:
    print("no g++ here: torch.compile cannot write machine code")
elif config.profile == "smoke":
    print("not compiled in smoke, because it takes long")
else:
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # notices about CUDA
    compiled = torch.compile(folded)
    start = time.perf_counter()
    with torch.inference_mode():
        off = (compiled(prepared[:1]) - folded(prepared[:1])).abs().max().item()
    print(f"compiled in {time.perf_counter() - start:.0f} s, logits differ by {off:.1e}")
    pair = {"folded": folded, "compiled": compiled}
    for name, ms in list_latencies(pair, dict.fromkeys(pair, prepared[:1]), calls, 1).items():
        print(f"{name}: p50 {np.median(ms):.2f} ms")
    claim("the compiled network has the same logits (1e-3)", off < 1e-3)
""")
md("cache-md", """
### What does a key-value cache save?

Most of the work of writing a text. A [causal](glossary.md#causal-mask) network that has written twenty tokens has computed their keys and values already, and later tokens cannot change them. So the cache keeps both for each block, and only the newest token goes through the network. Without it all tokens go through it again for each new one.
""")
code("cache", """
def attend_cached(block, x, cache):
    \"\"\"A block for the newest token (N, 1, D); its key and value are added to the cache.\"\"\"
    normed = block.norm1(x)
    q, k, v = (block._split(layer(normed)) for layer in (block.q, block.k, block.v))
    if cache:
        k, v = (torch.cat(pair, dim=2) for pair in zip(cache, (k, v), strict=True))
    cache[:] = [k, v]  # (N, H, T, D / H)
    seen = F.scaled_dot_product_attention(q, k, v)  # the newest token sees all
    x = x + block.o(seen.transpose(1, 2).flatten(2))
    return x + block.down(F.gelu(block.up(block.norm2(x))))
""")
md("cache-write-md", """
For each new token the loop below calls every block once, with its own cache. The tokens of the beginning go through in the same way.
""")
code("cache-write", """
@torch.inference_mode()
def write_cached(model, start, count):
    \"\"\"The likeliest tokens after ``start``, one by one, each computed once.\"\"\"
    tokens, caches = list(start), [[] for _ in model.blocks]
    for place in range(len(start) + count - 1):
        x = model.tokens(torch.tensor([[tokens[place]]])) + model.positions.weight[place]
        for block, cache in zip(model.blocks, caches, strict=True):
            x = attend_cached(block, x, cache)
        if place == len(tokens) - 1:
            tokens.append(model.predict_tokens(model.norm(x))[0, -1, 4:].argmax().item() + 4)
    return tokens
""")
md("cache-run-md", """
Both ways write a hundred tokens after the same beginning. They always take the likeliest one, so that the outputs can be compared.
""")
code("cache-run", """
@torch.inference_mode()
def write_again(model, start, count):
    \"\"\"The same without a cache: all tokens, for each new one.\"\"\"
    tokens = list(start)
    for _ in range(count):
        logits = model.predict_tokens(model.encode(torch.tensor([tokens]))[:, -1])
        tokens.append(logits[0, 4:].argmax().item() + 4)  # no padding, mask, end or unknown token
    return tokens


count, start_tokens = (8 if config.profile == "smoke" else 100), [79, 2339, 89]
found = {}
for write in (write_again, write_cached):
    start = time.perf_counter()
    found[write] = write(reader, start_tokens, count)
    per_second = count / (time.perf_counter() - start)
    print(f"{write.__name__}: {per_second:.0f} tokens per second")
claim("both write the same tokens", found[write_again] == found[write_cached])
""")
md("cache-read", """
The longer the text, the more it saves: without a cache the work for a token grows with all that was written before. The price is memory, two vectors of width D for each block and token. And it holds for causal networks only, because in others a new token would change all keys.

### What do ONNX Runtime, torchao and FastAPI change?

Nothing about the answers. They are not among this course's packages, so a stored script, `study_extras.py`, ran them on one network of the study, in a folder of their own. ONNX Runtime runs an exported graph without PyTorch, and is what many services on a CPU use. torchao holds the successor of the tools above, and its int8 network *can* be exported, although its file is larger than that of fp32. The lesson's service behind FastAPI, in eight lines, gave the same status to the bad requests.
""")
code("extras", """
extras = read_file(STUDIES / "deployment/study_extras.json")
rows = {
    name: {
        "accuracy (%)": f"{100 * row['accuracy']:.1f}",
        "same answers (%)": f"{100 * row['agreement']:.1f}",
        "largest difference of a logit": f"{row['largest_difference']:.1g}",
        "file (MB)": f"{row['bytes'] / 1e6:.2f}" if "bytes" in row else "–",
    }
    for name, row in extras["programs"].items()
}
asked = extras["fastapi"]
print(", ".join(f"{name} {number}" for name, number in extras["packages"].items()))
print(f"FastAPI: {asked['same_status']} of {asked['requests']} bad requests get the same status")
pd.DataFrame(rows).T
""", hide=True)
md("framework-md", """
This is the route. In front of it, or of our own service, stands a proxy such as nginx, which ends slow connections, and something that starts the process again when it dies. A request that was being answered is lost then, so clients need a time-out and a second try.

```python
@app.post("/predict")
async def predict(request: Request):
    body = await request.body()  # behind a proxy that limits its size and time
    kind = request.headers.get("content-type", "").partition(";")[0]
    try:
        with serving.enter():
            return await run_in_threadpool(serving.predict, body, kind)
    except service.Refusal as refusal:
        raise HTTPException(refusal.status, str(refusal)) from None
```
""")
md("recap", """
## Recap and sources

* Serve the function that you validated: it begins at the pixels.
* Compare logits, from the same files, after every step; accuracy is a weak test.
* Load strictly, call `eval()`, name the sizes that change.
* int8 was equivalent to fp32 within one point, for photographs and texts, also in its calibration.
* A service refuses early: type, bytes, pixels, number, time.

Sources: B. Jacob et al., [Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference](https://arxiv.org/abs/1712.05877), 2018 · S. Han et al., [Learning both Weights and Connections](https://arxiv.org/abs/1506.02626), 2015 · G. Hinton et al., [Distilling the Knowledge in a Neural Network](https://arxiv.org/abs/1503.02531), 2015 · T. Dettmers et al., [LLM.int8()](https://arxiv.org/abs/2208.07339), 2022 (outliers) · S. Rabanser et al., [Failing Loudly](https://arxiv.org/abs/1810.11953), 2019 (drift) · [torch.export](https://docs.pytorch.org/docs/stable/export.html) · [PyTorch: quantization](https://docs.pytorch.org/docs/stable/quantization.html).

Back: [21 · Text](21_text.ipynb) · Next: [25 · Choose and judge](25_choose_and_judge.ipynb)
""", "slide")
