"""Planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

EACH = """
import torch.nn.functional as F

def mix_each(images, targets, lams, permutation, num_classes):
    soft = F.one_hot(targets, num_classes).to(images.dtype)
    a, b = {shape}
    mixed = {mixed}
    return mixed, {soft}
"""


CUT = """
import torch.nn.functional as F

def cut_mix(images, targets, box, permutation, num_classes):
    top, left, height, width = box
    {edges}
    rows, columns = slice(y1, y2), slice(x1, x2)
    cut = {copy}
    cut[:, :, rows, columns] = {partner}[:, :, rows, columns]
    pasted = max(0, y2 - y1) * max(0, x2 - x1)
    lam = 1 - pasted / (images.shape[2] * images.shape[3])
    soft = F.one_hot(targets, num_classes).to(images.dtype)
    return cut, {soft}
"""


MASK = """
import torch

def fmix_mask(noise, lam, decay):
    height, width = noise.shape
    fy, fx = torch.fft.fftfreq(height), torch.fft.fftfreq(width)
    frequency = (fy[:, None] ** 2 + fx[None, :] ** 2).sqrt().clamp(min=1 / max(height, width))
    spectrum = torch.fft.fft2(noise) {damp}
    values = torch.fft.ifft2(spectrum).real.flatten()
    count = {count}
    mask = torch.zeros(height * width, dtype=torch.bool)
    {choose}
    return {result}
"""


TRAIN = """
import torch
import torch.nn.functional as F
from torch.distributions import Beta

def train_and_validate(model, train_batches, val_batches, num_classes, alpha, lr=0.1):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for images, targets in train_batches:
        lam = {lam}
        permutation = torch.randperm(len(images))
        hard = F.one_hot(targets, num_classes).float()
        mixed = {mixed}
        optimizer.zero_grad()
        F.cross_entropy(model(mixed), {soft}).backward()
        optimizer.step()
    total, count = 0.0, 0
    model.eval()
    for images, targets in val_batches:
        {before}
        loss = F.cross_entropy(model(images), targets)
        {after}
        total, count = {add}
    return total / count
"""


MIXED = "lam * {0} + (1 - lam) * {0}[permutation]"


CLIPPED = (
    "y1, y2 = max(top, 0), max(0, min(top + height, images.shape[2]))\n"
    "    x1, x2 = max(left, 0), max(0, min(left + width, images.shape[3]))"
)


RIGHT_EACH = {
    "shape": "lams[:, None, None, None], lams[:, None]",
    "mixed": "a * images + (1 - a) * images[permutation]",
    "soft": "b * soft + (1 - b) * soft[permutation]",
}


RIGHT_CUT = {
    "edges": CLIPPED,
    "copy": "images.clone()",
    "partner": "images[permutation]",
    "soft": MIXED.format("soft"),
}


RIGHT_MASK = {
    "damp": "/ frequency ** decay",
    "count": "round(lam * height * width)",
    "choose": "mask[values.topk(count).indices] = True",
    "result": "mask.view(height, width)",
}


RIGHT_TRAIN = {
    "lam": "Beta(alpha, alpha).sample().item()",
    "mixed": MIXED.format("images"),
    "soft": MIXED.format("hard"),
    "before": "pass",
    "after": "loss = loss.detach()",
    "add": "total + loss.item() * len(images), count + len(images)",
}


STEP = "optimizer.zero_grad(); loss.backward(); optimizer.step()"


SHUFFLED = "images = 0.7 * images + 0.3 * images[torch.arange(len(images)).roll(1)]"


def _each(**changed: str) -> str:
    return EACH.format(**RIGHT_EACH | changed)


def _cut(**changed: str) -> str:
    return CUT.format(**RIGHT_CUT | changed)


def _mask(**changed: str) -> str:
    return MASK.format(**RIGHT_MASK | changed)


def _train(**changed: str) -> str:
    return TRAIN.format(**RIGHT_TRAIN | changed)


WRONG_ANSWERS = {
    "measure_mixing": plant_experiments("measure_mixing"),
    "mix_each": [
        # The check knows these too; a second source shows that each sentence is about its fault.
        (_each(soft="(1 - b) * soft + b * soft[permutation]"), "swapped in the targets"),
        (_each(mixed="(1 - a) * images + a * images[permutation]"), "swapped in the images"),
        (_each(shape="lams.mean(), lams[:, None]"), "by one λ, the mean"),
        (_each(mixed="a * images + (1 - a) * images.flip(0)"),
         r"Image \d is not lams\[\d\] of itself .* it holds"),
        (_each().replace("F.one_hot(targets, num_classes)", "F.one_hot(targets)"),
         r"shape \(8, 4\), not \(8, 3\)"),
        (_each(shape="lams[:, None, None, None], lams.mean()"), "do not have the shares"),
        (_each(mixed="a * images + (1 - a[permutation]) * images[permutation]"),
         "partner is weighed by its own λ"),
        (_each(soft="b * soft + b * soft[permutation]"), "does not sum to 1"),
        (_each(soft="targets"), "Soft targets have the shape"),
        (_each(mixed="images.mul_(a).add_((1 - a) * images[permutation])"),
         "changes the images that it is given"),
        (_each(shape="lams[:, None, None, None].neg_().add_(1), lams[:, None]"),
         "changes the λ that it is given"),
    ],
    "cut_mix": [
        (_cut(copy="images"), "changes the images that it is given"),
        (_cut(partner="images"), "rows 2–5 and columns 3–7; yours changes no pixel"),
        (_cut(partner="images[permutation].flip(0)"), "not to those of the partner"),
        (_cut(edges=CLIPPED.replace("max(0, min(", "(min(").replace("))\n", "))\n")),
         r"\(-9, 2, 5, 4\) in an image of 10 × 12 the partner shows in no pixel; yours changes"),
        (_cut(edges="y1, y2, x1, x2 = top, top + height, left, left + width"),
         "rows 0–2 and columns 1–4; yours changes no pixel"),
        (_cut(edges="y1, y2, x1, x2 = top, height, left, width"),
         "rows 2–5 and columns 3–7; yours changes rows 2–3 and columns 3–4"),
        (_cut().replace("max(0, y2 - y1) * max(0, x2 - x1)", "9"),
         r"0.833.*, not \[.*0.925"),
        (_cut().replace("F.one_hot(targets, num_classes)", "F.one_hot(targets)"),
         r"shape \(6, 4\), not \(6, 3\)"),
        (_cut(edges=CLIPPED.replace("shape[2]", "shape[9]").replace("shape[3]", "shape[2]")
              .replace("shape[9]", "shape[3]")),
         "yours changes|shares"),
        (_cut(soft="targets"), "Soft targets have the shape"),
        (_cut().replace("return cut,", "return"), "Return two tensors"),
    ],
    "fmix_mask": [
        # The check knows these too; a second source shows that each sentence is about its fault.
        (_mask(damp="* 1"), "not filtered"),
        (_mask(damp="* frequency ** decay"), "do not multiply"),
        (_mask(damp="/ frequency"), "decay is not used"),
        (_mask(count="round((1 - lam) * height * width)"), "share of the second image"),
        (_mask(choose="mask[(-values).topk(count).indices] = True"), "smallest values"),
        (_mask(choose="mask = values > 0"), "above zero"),
        (_mask(choose="mask = values > values.quantile(0.5)"), "it is another mask|above zero"),
        (_mask(result="~mask.view(height, width)"), "should be, at the largest values"),
        (_mask(result="mask"), r"The mask has the shape \(24, 40\)"),
        (_mask(result="mask.view(height, width).float()"), "of the type bool"),
        (_mask(result="noise.mul_(0) > 1"), "changes the noise"),
        (_mask(result="None"), "Return a tensor"),
        (_mask().replace("fy[:, None] ** 2 + fx[None, :] ** 2", "fx[:, None] ** 2 + fx[None] ** 2"),
         "must match|size of tensor"),
        (_mask(count="max(1, int(lam * height * width) - 5)"), "pixels are True: round"),
    ],
    "train_and_validate": [
        (_train(soft="hard"), "mixed with their partners, and the targets are not"),
        (_train(soft="(1 - lam) * hard + lam * hard[permutation]"), "swapped between"),
        (_train(after=STEP), "trains on the validation images"),
        (_train(before=SHUFFLED), "The validation images are mixed"),
        (_train(soft="hard", before=SHUFFLED, after=STEP), "trains on the validation images"),
        (_train(lam="1.0"), "are not mixed"),
        (_train(lam="torch.rand(()).item() * 0.3"), "does not follow Beta"),
        (_train(lam="0.5"), "does not follow Beta"),
        (_train().replace("model.eval()", "pass"), "validates in train mode"),
        (_train(mixed="model.eval() and " + MIXED.format("images")), "trains in eval mode"),
        (_train().replace("optimizer.zero_grad()", "pass"), "call zero_grad before each backward"),
        (_train(soft="torch.lerp(hard[permutation], hard, torch.rand(()).item())"),
         "the same λ and the same partners"),
        (_train().replace("lr=lr", "lr=0.01"), "learning rate is 0.01, and lr is 0.1"),
        (_train().replace("return total / count", "pass"), "Nothing came back"),
        (_train().replace("def train_and_validate", "def train_first").replace(
            "    total, count = 0.0, 0", "    return None") + """
def train_and_validate(model, train_batches, val_batches, num_classes, alpha, lr=0.1):
    model.eval()
    losses = [F.cross_entropy(model(x), y).item() for x, y in val_batches]
    train_first(model.train(), train_batches, val_batches, num_classes, alpha, lr)
    return losses[0]
""", "It validates before it trains"),
        (_train(add="total, count + 1"), "the mean over all validation images"),
        (_train(add="total + loss.item(), count + 1"), "the mean over all validation images"),
        (_train().replace("for images, targets in train_batches", "for images, targets in []"),
         "Every batch is to be trained on"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "measure_mixing": [
        # one training after the other, at other seeds, with a CutMix
        """
from course_utils import fit


def measure_mixing(config, data):
    columns = []
    for transform in (None, v2.CutMix(alpha=1.0, num_classes=data.num_classes)):
        runs = [fit(config, data, seed=seed, batch_transform=transform) for seed in (7, 8, 9)]
        columns.append([run.metrics["val_accuracy"] for run in runs])
    differences = np.subtract(columns[1], columns[0])
    half = 4.302652729911275 * differences.std(ddof=1) / np.sqrt(3)
    return *columns, differences.mean() - half, differences.mean() + half
""",
        """
def measure_mixing(config, data):
    mix = v2.MixUp(alpha=0.3, num_classes=data.num_classes)
    plain = {"make_loader": ImageData.plain_loader}
    variants = {"a": plain, "b": plain | {"batch_transform": mix}}
    found = compare(config, data, variants, seeds=range(4))
    gain = found.difference("b")
    return [found.values("a"), found.values("b"), gain.low, gain.high]
""",
    ],
    "fmix_mask": [
        # half of the spectrum is enough for real noise
        """
def fmix_mask(noise, lam, decay):
    h, w = noise.shape
    f = torch.hypot(torch.fft.fftfreq(h)[:, None], torch.fft.rfftfreq(w)[None])
    f = f.maximum(torch.tensor(1 / max(h, w)))
    smooth = torch.fft.irfft2(torch.fft.rfft2(noise) * f.pow(-decay), s=(h, w))
    rank = smooth.flatten().argsort(descending=True).argsort().view(h, w)
    return rank < round(lam * h * w)
""",
        """
def fmix_mask(noise, lam, decay):
    rows, columns = noise.shape
    fy, fx = np.meshgrid(np.fft.fftfreq(rows), np.fft.fftfreq(columns), indexing="ij")
    f = np.maximum(np.sqrt(fy**2 + fx**2), 1 / max(rows, columns))
    values = np.fft.ifft2(np.fft.fft2(noise.double().numpy()) / f**decay).real
    count = round(lam * values.size)
    threshold = np.sort(values.ravel())[::-1][count - 1]
    return torch.from_numpy(values >= threshold)
""",
    ],
    "mix_each": [
        """
def mix_each(images, targets, lams, permutation, num_classes):
    hard = torch.eye(num_classes)[targets]
    swap = lambda x, y, lam: (
        torch.einsum('n,n...->n...', lam, x) + torch.einsum('n,n...->n...', 1 - lam, y)
    )
    return swap(images, images[permutation], lams), swap(hard, hard[permutation], lams)
""",
        # image by image
        """
def mix_each(images, targets, lams, permutation, num_classes):
    soft = torch.zeros(len(targets), num_classes)
    mixed = torch.empty_like(images)
    for i, (lam, j) in enumerate(zip(lams.tolist(), permutation.tolist())):
        mixed[i] = torch.lerp(images[j], images[i], lam)
        soft[i, targets[i]] += lam
        soft[i, targets[j]] += 1 - lam
    return mixed, soft
""",
    ],
    "cut_mix": [
        """
def cut_mix(images, targets, box, permutation, num_classes):
    top, left, height, width = box
    y = torch.arange(images.shape[2])[:, None]
    x = torch.arange(images.shape[3])
    inside = (y >= top) & (y < top + height) & (x >= left) & (x < left + width)
    share = inside.float().mean()
    hard = torch.eye(num_classes)[targets]
    return (
        torch.where(inside, images[permutation], images),
        (1 - share) * hard + share * hard[permutation],
    )
""",
        # a slice of a range is clipped by itself; the shares are added up class by class
        """
def cut_mix(images, targets, box, permutation, num_classes):
    top, left, height, width = box
    n, _, h, w = images.shape
    rows = range(h)[max(top, 0) : max(top + height, 0)]
    columns = range(w)[max(left, 0) : max(left + width, 0)]
    cut = images.clone()
    for row in rows:
        for column in columns:
            cut[:, :, row, column] = images[permutation, :, row, column]
    pasted = torch.full((n, 1), len(rows) * len(columns) / (h * w))
    soft = torch.zeros(n, num_classes).scatter_(1, targets[:, None], 1 - pasted)
    return cut, soft.scatter_add_(1, targets[permutation][:, None], pasted)
""",
    ],
    "train_and_validate": [
        # one loss for each of the two targets; all validation images at once
        """
def train_and_validate(model, train_batches, val_batches, num_classes, alpha, lr=0.1):
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.train().parameters(), lr)
    for images, targets in train_batches:
        lam = np.random.beta(alpha, alpha)
        partners = np.random.permutation(len(targets))
        logits = model(images.mul(lam).add(images[partners], alpha=1 - lam))
        loss = lam * criterion(logits, targets) + (1 - lam) * criterion(logits, targets[partners])
        model.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.inference_mode():
        images, targets = map(torch.cat, zip(*val_batches))
        return float(criterion(model.eval()(images), targets))
""",
        # timm mixes, in place: each image with the one at the same place from the end
        """
def train_and_validate(model, train_batches, val_batches, num_classes, alpha, lr=0.1):
    mixup = Mixup(mixup_alpha=alpha, label_smoothing=0.0, num_classes=num_classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    model.train()
    for batch in train_batches:
        images, soft = mixup(*batch)
        loss = -(soft * model(images).log_softmax(dim=1)).sum(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    losses = []
    for images, targets in val_batches:
        with torch.no_grad():
            losses += F.cross_entropy(model(images), targets, reduction="none").tolist()
    return np.mean(losses)
""",
    ],
}
