def said(kind, metric):
    if not study_path.is_file(): return "?"
    return C.difference(kind, "int8", metric).verdict(metric == "accuracy", 0.01)
both = [said(k, "accuracy") for k in ("photographs", "texts")]
ece = [said(k, "calibration_error") for k in ("photographs", "texts")]
if both == ["equivalent"] * 2:
    VERDICTS = "So both are equivalent to fp32 within ±1 point"
    VERDICTS += ", and so is the [calibration error](glossary.md#calibration-error)." if ece == ["equivalent"] * 2 else f". The [calibration error](glossary.md#calibration-error) of photographs is {ece[0]}, that of texts {ece[1]}."
else:
    VERDICTS = f"So the verdict on photographs is {both[0]}, that on texts {both[1]}. The [calibration error](glossary.md#calibration-error) is {ece[0]} and {ece[1]}."
print(both, ece)
md("title", """
# 24 · Deployment: serve what you validated

The network is trained, and somebody wants to ask it questions. It must answer from a small file, in milliseconds, and exactly as it did in your validation. This lesson exports a network together with its preprocessing, stores it in [int8](glossary.md#int8), puts it behind HTTP, and checks after every step that the answers are still the same.

After this lesson you can turn a checkpoint into one file that reads pixels, find a wrong service by a parity check, and say what int8 costs and saves.

Minutes: 90 · Prerequisites: [01 · The baseline](01_baseline.ipynb), [06 · Label smoothing](06_label_smoothing.ipynb), [13 · Weight averaging](13_weight_averaging.ipynb) · Seam: *model*, after the training · Budget: 75 s on two CPU cores in [`quick`](glossary.md#profile) · **[Recipe ↓](#Recipe)**
""", "slide")
md("question", """
## Question

Two things happen to a network on its way to a service. It is made smaller, for instance by storing its weights and activations as whole numbers of 8 bits. And its inputs are prepared by another program, which somebody else wrote. **How many points of accuracy does int8 cost? How many does a service lose that gives the network BGR, because OpenCV reads images so, although it was trained on RGB? And how many times as fast does the int8 network answer one photograph?** Predict all three.
""", "slide")
code("prediction", """
from course_utils.predictions import compare_prediction, record_prediction

prediction = record_prediction(
    "24_deployment",
    points_lost_by_int8=None,  # your number instead of None
    points_lost_by_bgr=None,  # and here
    times_as_fast=None,  # and here
)
""")
md("notes-prediction", """
<details><summary>For the teacher</summary>

Ask which of the two the students fear more. Most fear int8, because it throws away three of four bytes, and few have ever compared the pixels that a service receives with those of the training.

</details>

<details><summary>What speaks for a small loss by BGR?</summary>A cat is a cat in any colours, and the training images were varied in other ways.</details>

<details><summary>What speaks for a large one?</summary>The first layer has learned that skies are blue. In BGR they are orange.</details>
""", "notes")
md("set-up", """
## Set-up

The lesson trains one network on photographs. `DATASET` may be a folder of your own images. Texts are read from the study, and their network is only timed.
""", "skip")
code("parameters", """
PROFILE = ""  # smoke, quick or full
DATASET = ""  # photos if empty; or shapes, cifar10, a folder of images
FIRST_SEED = None  # first of the paired seeds, an integer
EPOCHS = 5  # of the training, at most
CALLS = 60  # timed calls of each network
""", ["parameters"], "skip")
code("imports", """
import copy
import logging
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint
from PIL import Image
from scipy import stats
from torch import nn
from torch.export import Dim
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.optim import AdamW

from course_utils import plots
from course_utils.measure.paired import paired_difference
from course_utils.results import STUDIES, read_file
from course_utils.training import fit, warmup_cosine
from lesson_code.deployment import client, preprocessing, quantized, service
from lesson_code.deployment.changes import FAULT, Changes
from lesson_code.deployment.planted import scale_wrong_axis
""", ["imports"], "skip", hide=True)
code("load", """
from course_utils import claim, create_model, load_config, load_data

plots.use_style()
config = load_config(PROFILE, dataset=DATASET, first_seed=FIRST_SEED)
config = config.replace(epochs=min(EPOCHS, config.epochs))
calls = 5 if config.profile == "smoke" else CALLS
data = load_data(config)
folder = Path(tempfile.mkdtemp())  # of the files that this lesson writes
print(config.describe())
print(data.describe())
""", slide="skip")
md("first-md", """
## First result

A stored [study](glossary.md#study) trained ten networks for photographs and ten for texts, and made each of them int8 by the defaults of PyTorch. On the left, each dot is one network: its accuracy in int8 minus that in [fp32](glossary.md#fp32), on the same 1,000 [validation images](glossary.md#validation-images) or texts. The bars are 95 % [intervals](glossary.md#confidence-interval), and inside the grey band (±1 point) a difference is too small to matter. On the right the weights of the ten networks for photographs are untouched, and the pixels are prepared in another way.
""")
code("first-read", """
study = Changes(read_file(STUDIES / "deployment/study.json"))
KINDS = ("photographs", "texts")
int8 = {kind: study.difference(kind, "int8") for kind in KINDS}
faults = {name: study.difference("photographs", name) for name in study.list_faults("photographs")}
print(study.describe_provenance())
for kind in KINDS:
    print(f"{kind}: {100 * study.values(kind, 'fp32').mean():.1f} % in fp32")
    print(f"  int8: {study.describe(kind, 'int8')}")
    print(f"  calibration error: {study.describe(kind, 'int8', 'calibration_error')}")
""", hide=True)
code("first-figure", """
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), width_ratios=(2, 3))
for axis in (left, right):
    axis.axvline(0, color="black", lw=1)
    axis.axvspan(-1, 1, color=plots.GREY, alpha=0.2, lw=0)
for row, kind in enumerate(KINDS):
    dots = 100 * (study.values(kind, "int8") - study.values(kind, "fp32"))
    left.plot(dots, np.full(len(dots), -row - 0.15), "o", color=plots.COLOURS[row], alpha=0.4, ms=4)
    found = int8[kind]
    half = 100 * (found.high - found.mean)
    left.errorbar(100 * found.mean, -row, xerr=half, fmt="s", color=plots.COLOURS[row], capsize=3)
left.set_yticks([0, -1], KINDS)
left.set(xlabel="int8 minus fp32 (points)", ylabel="", ylim=(-1.5, 0.5))
left.set_title("int8: less than one point")
for row, found in enumerate(faults.values()):
    half = 100 * (found.high - found.mean)
    right.errorbar(100 * found.mean, -row, xerr=half, fmt="o", color=plots.COLOURS[3], capsize=3)
right.set_yticks([-row for row in range(len(faults))], [x.removeprefix(FAULT) for x in faults])
right.set(xlabel="points, against the preprocessing of the training", ylabel="")
right.set_title(f"Other preprocessing: up to {-100 * found.mean:.0f} points are lost")
plt.show()
""", hide=True)
md("first-read-md", f"""
In int8, photographs change by {f1(pts('photographs','int8'))} points ({iv('photographs','int8')}), and texts by {f1(pts('texts','int8'))} ({iv('texts','int8')}). {VERDICTS} Preprocessing is another matter. BGR costs {lost('photographs','fault: BGR')} points, a photograph that was sent at half its size {lost('photographs','fault: sent at half the size')}, and pixels that were divided by 255 twice leave {mean('photographs','fault: divided by 255 twice'):.1f} % of right answers, which is guessing among ten classes. Only ImageNet's mean and standard deviation, which are close to ours, cost little: {f1(pts('photographs',"fault: ImageNet's mean and std"))} ({iv('photographs',"fault: ImageNet's mean and std")}).

None of these faults raises an error. So a service needs two things: a file in which the preprocessing is part of the network, and a check that compares its answers with those that were validated.
""")
md("idea", """
## Idea

### The function that you validated begins at the pixels

Accuracy was measured for a chain: a file is decoded, resized, divided by 255, normalised, and then comes the network. A checkpoint holds the last link alone. Whoever writes the service builds the others again, in another library, from memory. The way out is to move all links but the first into one module, which takes pixels as `uint8` and is exported as a whole.

The [parity check](glossary.md#parity-check) is the test of it: the same photographs go through the training's own pipeline and through the service, and the [logits](glossary.md#logits) must agree within a tolerance. Accuracy is a weak test, because a fault that changes every logit a little changes few answers.

### int8 is a grid of 256 numbers

A tensor in int8 holds whole numbers $q$ of 8 bits and stands for $x \\approx s\\,(q - z)$, with a scale $s$ and a zero point $z$. The scale is the distance of two neighbours in the grid, so no number is off by more than half of it. Six activations of a ReLU can be followed by hand.
""", "slide")
code("toy", """
toy = torch.tensor([0.0, 0.31, 0.98, 1.73, 2.49, 5.1])
toy_scale = toy.max() / 255  # a ReLU's output begins at 0, so z = 0
whole = (toy / toy_scale).round()
back = whole * toy_scale
pd.DataFrame({"x": toy, "q": whole.int(), "s q": back, "error / s": (back - toy) / toy_scale}).T.round(3)
""")
md("toy-read", """
One number that is ten times as large as the others would make the grid ten times as coarse for all of them. Therefore each output channel of a weight gets a scale of its own, and the range of an activation is measured beforehand on some training examples, which is called *calibration*.
""")
md("scratch", """
## From scratch

### From a checkpoint to a bare network

Lightning's file holds a LightningModule: its names begin with `model.`, and beside the weights lie optimizer and callbacks. We train with an [exponential moving average](glossary.md#exponential-moving-average) of the weights and take the file apart. `strict=True` raises an error if a single name is missing or left over.
""", "slide")
code("train", """
callbacks = [EMAWeightAveraging(decay=0.95), ModelCheckpoint(dirpath=folder, filename="trained")]
run = fit(
    config,
    data,
    seed=config.first_seed,
    pretrained=config.model == "convnet_small",
    make_optimizer=partial(AdamW, lr=2e-3),
    make_schedule=warmup_cosine,
    trainer={"callbacks": callbacks, "check_val_every_n_epoch": config.epochs},
)
checkpoint = torch.load(folder / "trained.ckpt", map_location="cpu", weights_only=True)
print(f"validated: {run.metrics['val_accuracy']:.1%}")
print("the file has", ", ".join(checkpoint))
print("its first weight is called", next(iter(checkpoint["state_dict"])))
""")
code("bare", """
def load_bare(state, model, prefix="model."):
    \"\"\"The network of a LightningModule's ``state_dict``, in eval mode.\"\"\"
    weights = {name.removeprefix(prefix): x for name, x in state.items() if name.startswith(prefix)}
    model.load_state_dict(weights, strict=True)
    return model.eval()


make_network = partial(create_model, config.model, data.num_classes)
network = load_bare(checkpoint["state_dict"], make_network())
forgiving = make_network()
problems = forgiving.load_state_dict(checkpoint["state_dict"], strict=False)
print(f"strict=False with the prefix: {len(problems.missing_keys)} weights are missing, no error")
""")
md("bare-md", """
`strict=False` would have loaded nothing, and served random weights. And `state_dict` holds the average, which was validated. The last weights, which were not, lie under `current_model_state`.

### Preprocessing inside of the graph

`Served` takes pixels, so no service has to remember a mean. It resizes as well, with the filter that the course's reader of images uses. A photograph of the right size passes unchanged. Decoding stays outside, because a graph has no bytes of JPEG.
""")
code("served", """
class Served(nn.Module):
    \"\"\"Pixels (N, 3, S, S) uint8 in RGB, of any size S, to logits (N, C).\"\"\"

    def __init__(self, model, mean, std, side):
        super().__init__()
        self.model, self.side = model, side
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1))

    def forward(self, pixels):
        size = (self.side, self.side)
        x = F.interpolate(pixels.float(), size, mode="bicubic", antialias=True)
        x = x.round().clamp(0, 255) / 255  # a cubic filter overshoots
        return self.model((x - self.mean) / self.std)
""")
code("served-make", """
pixels = torch.from_numpy(data.val.images).permute(0, 3, 1, 2).contiguous()  # (N, 3, H, W) uint8


def make_served(model, mean=data.mean, std=data.std):
    return Served(model, mean, std, pixels.shape[-1]).eval()


served = make_served(network)
""")
md("parity-md", """
### The parity check

The validated logits come from the training's own loader, and the other ones from pixels. The function below compares them. Because it knows nothing of how a program works inside, it serves for every step of this lesson.
""")
code("parity", """
@torch.inference_mode()
def find_parity(program, pixels, logits, batch_size=256):
    \"\"\"Largest difference of a logit (N, C), and the share of equal answers.\"\"\"
    found = torch.cat([program(batch) for batch in pixels.split(batch_size)])
    same = (found.argmax(dim=1) == logits.argmax(dim=1)).float().mean()
    return (found - logits).abs().max().item(), same.item()


with torch.inference_mode():
    validated = torch.cat([network(inputs) for inputs, _ in data.eval_loader()])
targets = torch.from_numpy(data.val.targets)
accuracy = (validated.argmax(dim=1) == targets).float().mean().item()
difference, same = find_parity(served, pixels, validated)
print(f"from pixels: logits differ by at most {difference:.1e}, {same:.0%} of the answers are equal")
""")
md("check", """
## Check

### Exported, and loaded again

`torch.export` traces the module to one graph, without Python. Sizes are constants in it, unless we name those that may change. Here these are the number of photographs and the side of a square. The file needs neither our classes nor this course.
""", "slide")
code("export", """
side = Dim("side", min=8, max=4096)
example = torch.randint(0, 256, (2, 3, 48, 48), dtype=torch.uint8)
shapes = ({0: Dim.DYNAMIC, 2: side, 3: side},)
exported = torch.export.export(served, (example,), dynamic_shapes=shapes)
torch.export.save(exported, folder / "served.pt2")
program = torch.export.load(folder / "served.pt2").module()
claim("the bare network has the validated accuracy", abs(accuracy - run.metrics["val_accuracy"]) < 1e-6)
claim("from pixels it has the same logits (1e-3)", difference < 1e-3)
for size in (1, 7, 256):
    off, _ = find_parity(program, pixels[:256], validated[:256], size)
    claim(f"the exported program has them in batches of {size} (1e-3)", off < 1e-3)
""", ["nbval-check-output"])
md("resize-md", """
Larger photographs are resized by the program itself. We enlarge some by Pillow, and let Pillow and the program reduce them again.
""")
code("resize", """
large = [Image.fromarray(x).resize((80, 80), Image.Resampling.BICUBIC) for x in data.val.images[:64]]
size = (served.side, served.side)
by_pillow = np.stack([np.asarray(x.resize(size, Image.Resampling.BICUBIC)) for x in large])
as_uploaded = torch.from_numpy(np.stack([np.asarray(x) for x in large])).permute(0, 3, 1, 2)
with torch.inference_mode():
    expected = served(torch.from_numpy(by_pillow).permute(0, 3, 1, 2))
    found = program(as_uploaded)
equal = (found.argmax(dim=1) == expected.argmax(dim=1)).float().mean().item()
print(f"largest difference of a logit {(found - expected).abs().max():.3f}, {equal:.0%} equal answers")
claim("resized in the graph or by Pillow, nine of ten answers or more agree", equal >= 0.9)
""")
md("fold-md", """
### BatchNorm folded

In eval mode [BatchNorm](glossary.md#BatchNorm) multiplies each channel by a constant and adds another. A convolution before it can do both, so that a layer disappears. Behind a max pool this holds only where the factor is positive, because only then the largest value stays the largest. PyTorch has the arithmetic, and exercise 1 writes it.
""")
code("fold", """
def fold_norms(model):
    \"\"\"A copy of a network whose BatchNorms are part of the convolutions before them.\"\"\"
    folded = copy.deepcopy(model).eval()
    for block in folded.modules():
        layers = dict(block.named_children())
        for end in ("", "1", "2"):
            conv, norm = layers.get(f"conv{end}"), layers.get(f"bn{end}")
            if conv is None or norm is None or ("pool" in layers and norm.weight.min() <= 0):
                continue
            setattr(block, f"conv{end}", fuse_conv_bn_eval(conv, norm))
            setattr(block, f"bn{end}", nn.Identity())
    return folded


folded = fold_norms(network)
left = sum(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
off, _ = find_parity(make_served(folded), pixels, validated)
print(f"{left} BatchNorms are left, and no logit differs by more than {off:.1e}")
claim("with folded BatchNorm the logits are the same (1e-3)", off < 1e-3)
""")
md("faults-md", """
### Planted faults are found

A check that never failed has shown nothing. So we plant five faults that are known from practice, and look at what accuracy says of them and what parity says.
""")
code("plant", """
twice = fold_norms(network)
if config.model == "convnet_small":
    twice.stem.bn = copy.deepcopy(network.stem.bn)  # folded, and still there
planted = {
    "as validated": served,
    "train mode": make_served(copy.deepcopy(network)).train(),
    "BatchNorm folded twice": make_served(twice),
    "int8 scales of the wrong axis": make_served(scale_wrong_axis(network)),
    "ImageNet's mean and std": make_served(network, *preprocessing.IMAGENET),
    "BGR": lambda pixels: served(pixels.flip(1)),
}
""")
md("faults-table-md", """
The first row is the network as it was validated. The other five run without an error or a warning.
""")
code("faults", """
table = {}
for name, wrong in planted.items():
    off, same = find_parity(wrong, pixels, validated)
    with torch.inference_mode():
        right = torch.cat([wrong(x) for x in pixels.split(256)]).argmax(dim=1) == targets
    table[name] = {
        "accuracy (%)": 100 * right.float().mean().item(),
        "equal answers (%)": 100 * same,
        "largest difference of a logit": off,
    }
table = pd.DataFrame(table).T
found = table["largest difference of a logit"] > 1e-3
claim("parity finds the five faults, and nothing where there is none", list(found) == [False] + 5 * [True])
table.round(2)
""", hide=True)
md("faults-read", """
Train mode and the wrong axis would pass a test of accuracy, because it asks whether a service is good, and parity asks whether it is the same. In train mode an answer even depends on who else is in the batch, so the same photograph gets another answer tomorrow.
""")
md("int-md", """
### A linear layer of whole numbers

What is fast about int8 is not the file: the products themselves are taken between whole numbers, and added up in 32 bits. Only the sum is multiplied by both scales. We write this for the last layer, whose inputs are those that calibration would see.
""")
code("int", """
def to_integers(x, scale, zero, low, high):
    \"\"\"Whole numbers q between low and high, with x ≈ scale (q − zero).\"\"\"
    return ((x / scale).round() + zero).clamp(low, high).int()


features = []
network.fc.register_forward_pre_hook(lambda module, inputs: features.append(inputs[0]))
with torch.inference_mode():
    served(pixels[:64])
network.fc._forward_pre_hooks.clear()
x, weight = features[0], network.fc.weight.detach()  # (64, 256), (C, 256)
x_low, x_high = x.min().clamp(max=0), x.max()
x_scale = (x_high - x_low) / 255
x_zero = (-x_low / x_scale).round()
w_scale = weight.abs().amax(dim=1) / 127  # one for each output
x_q = to_integers(x, x_scale, x_zero, 0, 255)
w_q = to_integers(weight, w_scale[:, None], 0, -127, 127)
sums = (x_q - x_zero.int()) @ w_q.T  # int32 (64, C)
by_integers = sums * x_scale * w_scale + network.fc.bias.detach()
""")
md("int-check-md", """
PyTorch's *fake quantization* rounds in the same way and stays in fp32, so it should find the same values and the same products. The last line compares with the layer as it is.
""")
code("int-check", """
x_torch = torch.fake_quantize_per_tensor_affine(x, x_scale.item(), int(x_zero), 0, 255)
zeros = torch.zeros(len(w_scale), dtype=torch.int32)
w_torch = torch.fake_quantize_per_channel_affine(weight, w_scale, zeros, 0, -127, 127)
close = partial(torch.allclose, atol=1e-5)
same = close((x_q - x_zero) * x_scale, x_torch) and close(w_q * w_scale[:, None], w_torch)
claim("our whole numbers stand for the same values as PyTorch's (1e-5)", same)
in_floats = F.linear(x_torch, w_torch, network.fc.bias.detach())
exact = torch.allclose(by_integers, in_floats, atol=1e-3)
claim("products of whole numbers are those of the rounded tensors in fp32 (1e-3)", exact)
moved = (by_integers - F.linear(x, weight, network.fc.bias.detach())).abs().max()
print(f"rounding moves a logit by {moved:.3f} at most")
""")
md("library", """
## The library way

PyTorch's own tools make the whole network int8. Convolution, BatchNorm and ReLU become one layer, and histograms of 256 training photographs give the ranges. For texts only the linear layers change, and each batch brings its own range, so that no calibration is needed. PyTorch marks these tools as deprecated, because they move to a package of its own, [torchao](https://docs.pytorch.org/ao/stable/pt2e_quantization/index.html). The arithmetic stays the same.
""", "slide")
code("library-int8", """
calibration = torch.from_numpy(data.train.images[:256]).permute(0, 3, 1, 2)
as_trained = preprocessing.list_image_faults(data.mean, data.std)[preprocessing.AS_TRAINED]
missing = quantized.find_missing_engine()
print(missing or "int8 kernels are here")
if not missing:
    small = quantized.quantize_convolutions(network, as_trained(calibration).split(64))
    off, same = find_parity(make_served(small), pixels, validated)
    print(f"int8: a logit differs by up to {off:.2f}, and {same:.1%} of the answers are equal")
    for name, model in {"fp32": network, "int8": small}.items():
        print(f"{name}: {quantized.count_file_bytes(model) / 1e6:.2f} MB")
    print(small.layer4 if hasattr(small, "layer4") else "")
""")
md("library-read", """
For int8 the parity check needs another tolerance, because the logits do differ. Ask for the share of equal answers and for the accuracy, and demand equal bits only of two programs that claim to be the same int8 network. An int8 network of this kind cannot be exported by `torch.export`: its packed weights are objects of C++. To serve it, build it again from the code and load its `state_dict`, or let [torchao](https://docs.pytorch.org/ao/stable/pt2e_quantization/index.html) or [ONNX Runtime](https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html) make the int8 file (*Going deeper*).
""")
md("experiment", """
## Experiment

### How long does an answer take?

A service is judged by its slow answers as well, so we report [percentiles](glossary.md#latency): half of the calls are faster than p50, and one of a hundred is slower than p99. The networks take turns, in a random order, so that another program disturbs all of them alike. We time one photograph or one text of 20 tokens.
""", "slide")
code("latency", """
@torch.inference_mode()
def list_latencies(networks, inputs, calls, threads):
    \"\"\"Milliseconds (calls,) of each network, which take turns; the warm-up is left out.\"\"\"
    before, rng = torch.get_num_threads(), np.random.default_rng(0)
    torch.set_num_threads(threads)
    times = {name: [] for name in networks}
    for number in range(-5, calls):
        for name in rng.permutation(list(networks)):
            start = time.perf_counter()
            networks[name](inputs[name])
            if number >= 0:
                times[name].append(1000 * (time.perf_counter() - start))
    torch.set_num_threads(before)
    return {name: np.array(ms) for name, ms in times.items()}
""")
code("latency-run", """
reader = create_model("text_small", 10, pretrained=True).eval()
networks = {"fp32, as trained": network, "fp32, folded": folded, "texts, fp32": reader}
if not missing:
    networks |= {"int8": small, "texts, int8": quantized.quantize_linear(reader)}
prepared, text = as_trained(pixels[:64]), torch.randint(4, 4096, (1, 20))
inputs = {name: text if "texts" in name else prepared[:1] for name in networks}
latencies = {threads: list_latencies(networks, inputs, calls, threads) for threads in (1, 2)}
""")
code("latency-table", """
table = {}
for threads, times in latencies.items():
    for name, ms in sorted(times.items()):
        p50, p95, p99 = np.percentile(ms, (50, 95, 99))
        row = name, "1 thread" if threads == 1 else f"{threads} threads"
        table[row] = {"p50 (ms)": p50, "p95 (ms)": p95, "p99 (ms)": p99}
pd.DataFrame(table).T.sort_index().round(2)
""", hide=True)
md("latency-read", """
p99 of so few calls is nearly the slowest of them, so look at thousands of calls before you promise it. Answering many photographs at once is more efficient, because the weights are read once for all of them, and the first one has to wait for the last. The figure shows both, for one thread.
""")
code("batches-figure", """
sizes = (1, 2, 4, 8, 16, 32, 64)
answering = {name: networks[name] for name in ("fp32, as trained", "int8") if name in networks}
medians = {name: [] for name in answering}
for size in sizes:
    given = dict.fromkeys(answering, prepared[:size])
    for name, ms in list_latencies(answering, given, max(3, calls // 6), threads=1).items():
        medians[name].append(np.median(ms))
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
for (name, ms), colour in zip(medians.items(), plots.COLOURS, strict=False):
    left.plot(sizes, ms, "o-", color=colour, label=name)
    right.plot(sizes, 1000 * np.array(sizes) / ms, "o-", color=colour, label=name)
left.set(xlabel="photographs at once", ylabel="latency (ms)", xscale="log", yscale="log")
right.set(xlabel="photographs at once", ylabel="photographs per second", xscale="log")
left.set_title("All of them wait for the whole batch")
gain = [sizes[-1] * ms[0] / ms[-1] for ms in medians.values()]
right.set_title(f"fp32 in batches of 64: {gain[0]:.1f} times the throughput")
left.legend(fontsize=8)
plt.show()
""", hide=True)
md("service-md", """
### A service that refuses

`service.py` puts the exported program behind HTTP, by the standard library alone. It reads at most 4 MB, looks at the number of pixels in the header before it decodes, waits at most five seconds for a client or for the network, and takes at most 64 requests at once. Beside the program its file holds eight photographs with their validated logits, so the service does not even start if it computes something else, and `/health` asks again. First the good case, on every second validation photograph of a hundred:
""")
code("service", """
few, path = pixels[:8], folder / "package.pt2"
service.save_package(path, exported, data.class_names, few, validated[:8])
serving = service.Service(service.load_package(path))
sent = pixels[:100:2]


def ask_service(photograph):
    return client.send_request(f"{address}/predict", client.encode_photograph(photograph))


with service.open_service(serving) as address, ThreadPoolExecutor(50) as clients:
    print(client.send_request(f"{address}/health"))
    start = time.perf_counter()
    answers = list(clients.map(ask_service, sent))
    print(f"{len(sent)} requests at once were answered in {time.perf_counter() - start:.2f} s")
probabilities = torch.tensor([content["probabilities"][0] for _, content in answers])
off = (probabilities - validated[:100:2].softmax(dim=1)).abs().max().item()
claim("the service gives the validated probabilities (1e-4)", off < 1e-4)
""")
md("bad-md", """
And then what people send. Each request gets a status and a sentence, and the service goes on. """ + "The image of 100 megapixels is a file of a few kilobytes, which would take 300 MB of memory if it were decoded.")
code("bad", """
table = {}
with service.open_service(serving) as address:
    for name, (_, body, kind) in list(client.list_bad_requests(pixels[0]).items())[:9]:
        status, content = client.send_request(f"{address}/predict", body, kind)
        said = content["error"][:60]
        table[name] = {"bytes": f"{len(body):,}", "status": status, "sentence": said}
    afterwards, _ = ask_service(pixels[0])
refused = all(400 <= row["status"] < 500 for row in table.values())
claim("each bad request is refused, and the next good one answered", refused and afterwards == 200)
pd.DataFrame(table).T
""")
md("verdict", """
## Verdict

The study answers the first two predictions, and this machine the third.
""", "slide")
code("verdict-code", """
for kind in KINDS:
    print(f"int8, {kind}, points: {study.describe(kind, 'int8')}")
print(f"BGR, photographs, points: {study.describe('photographs', FAULT + 'BGR')}")
times = latencies[1]
ratio = np.median(times["fp32, as trained"]) / np.median(times["int8"]) if not missing else 1.0
print(f"int8 answers one photograph {ratio:.1f} times as fast, with one thread, on this machine")
smaller = all(abs(found.mean) < 0.01 and found.low > -0.01 for found in int8.values())
value = ", ".join(f"{kind} {100 * found.mean:+.2f} points" for kind, found in int8.items())
value += f", {int8['texts'].n} seeds each"
claim("photographs and texts: int8 costs less than one point", smaller, value=value)
compare_prediction(
    prediction,
    points_lost_by_int8=-100 * int8["photographs"].mean,
    points_lost_by_bgr=-100 * study.difference("photographs", FAULT + "BGR").mean,
    times_as_fast=ratio,
)
""", hide=True)
md("verdict-md", f"""
int8 is safe here, and worth it where a CPU answers. Preprocessing is where the points are lost, {lost('photographs','fault: BGR')} of them by BGR alone, and a parity check on a few photographs finds every such fault.

* ✅ **Use it when** another program than the one that validated gives the answers, which is always so in a service.
* 🚧 **Costs** a file with validated examples, and one test that runs at each start.
* ❗ **Traps**
  * The service is worse than the validation → its pixels are not those of the training → compare logits, not accuracy, from the same files.
  * An answer changes with the batch → the program was exported without `eval()` → call it first, and compare batches of 1 and of many.
  * The first answer of a new size takes long or fails → sizes were constants in the graph → name those that change in `dynamic_shapes`.
* **Combines with** weight averaging (lesson 13), because a checkpoint holds two sets of weights, and with calibration (06), because int8 leaves it as it was.

**What this lesson does not show.** The networks have 1.3 to 1.6 million parameters, and one processor measured them. Large language models have outliers in their activations, for which int8 by defaults does lose accuracy. On a GPU other kernels decide what is fast.
""", "slide")
md("recipe", """
## Recipe

* **Use it when** a trained network leaves the program that validated it.
* **Not when** the same code answers that validated, such as a nightly job over files: call its function.
* **Defaults** uint8 in and logits out, [`torch.export`](https://docs.pytorch.org/docs/stable/export.html) with a dynamic batch, a tolerance of 1e-3 for fp32, and examples stored beside the program. For int8 on a CPU one scale per output channel, and 100 to 300 calibration examples.
* **Cost** seconds, once. The file is as large as the weights.
* **Trap** the accuracy of the service is a few points lower → another resize or normalisation → send the validation files through the service and compare logits.
* **Trap** the network is loaded without an error and guesses → `strict=False` and a prefix → load strictly, and compare the accuracy with the checkpoint's.
""", "slide")
md("card-pytorch-md", """
### In plain PyTorch

The expected logits come from your own validation, on its device and with its transform. The exported program must give the same from pixels.
""", "slide")
code("card-pytorch", CARD_PYTORCH, ["card", "card-pytorch"])
md("card-lightning-md", """
### In Lightning

The names of the bare network have no prefix, and loading is strict. What the LightningModule validated is compared with what the exported program says.
""", "slide")
code("card-lightning", CARD_LIGHTNING, ["card", "card-lightning"])
exec(Path("/root/n/l24/exercises.py").read_text())
exec(Path("/root/n/l24/deeper.py").read_text())
