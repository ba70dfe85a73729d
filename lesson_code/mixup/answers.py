"""Planted answers of lesson 05: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import RETURN, SEEDS, plant_comparisons

TRAIN = 'mixed = train(options | {"batch_transform": mixing}, seeds)'
CUTMIX = "v2.CutMix(alpha=1.0, num_classes=num_classes)"

LAMS = "lams[:, None, None, None]"
MIXED = "of_images * images + (1 - of_images) * images[permutation]"
SOFT = "of_targets * soft + (1 - of_targets) * soft[permutation]"
CUT_SOFT = "lam * soft + (1 - lam) * soft[permutation]"  # of cut_mix and of the training
ALONE = "The targets are those of the first images alone: mix them with their partners', too."
SWAPPED = "λ and 1 − λ are swapped in the targets: λ belongs to the first image."
ROW_END = "max(0, min(top + height, images.shape[2]))"
PASTED = "max(0, y2 - y1) * max(0, x2 - x1)"
CHOSEN = "mask[values.topk(round(lam * height * width)).indices] = True"
COUNT = "round(lam * height * width)"
MASK = "mask.view(height, width)"
ONE_HOT = "F.one_hot(targets, num_classes)"
VAL_LOSS = 'F.cross_entropy(model(images), targets, reduction="sum")'
MEAN = "the mean over all validation images"

WRONG = {
    "mixing_experiment": [
        *plant_comparisons("without", "mixed", "mixed minus without"),
        (TRAIN, TRAIN.replace("seeds)", "(3, 4, 5, 6))"), "pair them"),
        (CUTMIX, "None", "No training is mixed"),
        (CUTMIX, "v2.CutMix(alpha=1.0, num_classes=10)", "num_classes columns"),
        ('"batch_transform": mixing', '"batch_transform": mixing, "make_loader": '
         "ImageData.train_loader", "differ in make_loader, too"),
        ("without = train(options, seeds)", "without = train(options | {'batch_transform': "
         "v2.MixUp(num_classes=num_classes)}, seeds)", "No training is without mixing"),
        ("without = train(options, seeds)", "without = np.array([0.6, 0.7])", TRAIN,
         "mixed = without", "Nothing was trained"),
    ],
    "mix_each": [
        (LAMS, "lams", "λ went along the columns of pixels: give it the shape (N, 1, 1, 1)."),
        (MIXED, "(1 - of_images) * images + of_images * images[permutation]",
         "λ and 1 − λ are swapped in the images: λ belongs to the first image."),
        (LAMS, "lams.mean()", "All images are mixed by one λ, the mean: each has its own."),
        (LAMS, "lams.maximum(1 - lams)[:, None, None, None]",
         "λ is raised to at least one half: take it as it comes."),
        (MIXED, "images", "The images are not mixed: their partners are images[permutation]."),
        ("(1 - of_images)", "(1 - of_images[permutation])",
         "The partner is weighed by its own λ: image i takes 1 − lams[i] of it."),
        ("soft =", "permutation = permutation.argsort()\n    soft =",
         "The partners are those of the inverse permutation: take images[permutation]."),
        (SOFT, "soft", ALONE),
        (SOFT, "(1 - of_targets) * soft + of_targets * soft[permutation]", SWAPPED),
        ("images[permutation]", "images.flip(0)", "of its partner: it holds"),
        (ONE_HOT, "F.one_hot(targets)", "shape (8, 4), not (8, 3)"),
        ("lams[:, None]\n", "lams.mean()\n", "do not have the shares"),
        (SOFT, "of_targets * soft + of_targets * soft[permutation]", "does not sum to 1"),
        ("return mixed", "return mixed[0]", "Images come in as (8, 3, 1, 8) and go out as"),
        (MIXED, "images.mul_(of_images).add_((1 - of_images) * images[permutation])",
         "changes the images that it is given"),
        (LAMS, f"{LAMS}.neg_().add_(1)", "changes the λ that it is given"),
    ],
    "cut_mix": [
        (PASTED, "height * width",
         "λ comes from the box as drawn: over the border less is pasted, count that."),
        ("(images.shape[2] * images.shape[3])", "images.shape[2] ** 2",
         "λ divides by the height squared: an image of H × W has H · W pixels."),
        (CUT_SOFT, "soft", ALONE),
        (CUT_SOFT, "(1 - lam) * soft + lam * soft[permutation]", SWAPPED),
        (".clone()", "", "changes the images that it is given"),
        ("images[permutation]", "images", "rows 2–5 and columns 3–7; yours changes no pixel"),
        ("images[permutation]", "images.flip(0)", "not to those of the partner"),
        (ROW_END, "min(top + height, images.shape[2])",
         "(-9, 2, 5, 4) in an image of 10 × 12 the partner shows in no pixel; yours changes"),
        ("max(top, 0)", "top", "rows 0–2 and columns 1–4; yours changes no pixel"),
        (ROW_END, "height", "rows 2–5 and columns 3–7; yours changes rows 2–3"),
        (PASTED, "9", "need 0.833 at its class 0 and the rest at its partner's class 2, not ["),
        (ONE_HOT, "F.one_hot(targets)", "shape (6, 4), not (6, 3)"),
        ("width, images.shape[3]", "width, images.shape[2]", "yours changes"),
        ("cut, lam", "lam", "Return two tensors"),
    ],
    "fmix_mask": [
        (" / frequency**decay", "",
         "The noise is not filtered: divide its spectrum by frequency ** decay."),
        ("/ frequency", "* frequency",
         "The high frequencies are amplified: divide by frequency ** decay, do not multiply."),
        ("**decay", "", "The decay is not used: raise the frequency to the power of decay."),
        ("round(lam", "round((1 - lam)", "λ is the share of the second image here: keep the first "
         "one where the largest values are."),
        (".topk", ".neg().topk", "The smallest values are kept: λ belongs to the largest."),
        (CHOSEN, "mask = values > 0",
         "All values above zero are kept, whatever λ is: keep the round(λ · H · W) largest."),
        (CHOSEN, "mask = values - values.min() > (1 - lam) * (values.max() - values.min())",
         "The threshold is a share of the range of values: keep a share of the pixels instead."),
        (MASK, f"~{MASK}", "should be, at the largest values"),
        (MASK, "mask", "The mask has the shape (24, 40)"),
        (MASK, f"{MASK}.float()", "of the type bool"),
        (MASK, "noise.mul_(0) > 1", "changes the noise"),
        (MASK, "None", "Return a tensor"),
        ("fftfreq(height)", "fftfreq(width)", "must match"),
        (COUNT, f"{COUNT} - 5", "pixels are True: round"),
    ],
    "train_and_validate": [
        (CUT_SOFT, "soft", "mixed with their partners, and the targets are not"),
        (CUT_SOFT, "(1 - lam) * soft + lam * soft[permutation]", "swapped between"),
        (CUT_SOFT, "torch.lerp(soft[permutation], soft, torch.rand(()).item())",
         "the same λ and the same partners"),
        ("with torch.no_grad():", "for images, targets in val_batches:\n"
         "        F.cross_entropy(model(images), targets).backward()\n        optimizer.step()\n"
         "    if True:", "trains on the validation images"),
        (VAL_LOSS, VAL_LOSS.replace("(images)", "(0.7 * images + 0.3 * images.roll(1, 0))"),
         "The validation images are mixed"),
        ("Beta(alpha, alpha).sample().item()", "1.0", "are not mixed"),
        ("Beta(alpha, alpha).sample().item()", "torch.rand(()).item() * 0.3",
         "does not follow Beta"),
        ("Beta(alpha, alpha).sample().item()", "0.5", "does not follow Beta"),
        ("    model.eval()\n", "", "validates in train mode"),
        ("model.train()", "model.eval() ", "trains in eval mode"),
        ("        optimizer.zero_grad()\n", "", "call zero_grad before each backward"),
        ("lr=lr", "lr=0.01", "learning rate is 0.01, and lr is 0.1"),
        ("return sum", "sum", "Nothing came back"),
        ("    model.train()\n", "    model.eval()\n    early = [F.cross_entropy(model(x), y) "
         "for x, y in val_batches]\n    model.train()\n",
         "in val_batches\n        ]", "in []\n        ] or early", "It validates before it trains"),
        ("reduction=\"sum\"", "reduction=\"mean\"", MEAN),
        ("reduction=\"sum\"", "", "sum(len(targets) for _, targets in val_batches)",
         "len(val_batches)", MEAN),
        ("in train_batches", "in []", "Every batch is to be trained on"),
    ],
}  # fmt: skip

RIGHT = {
    "mixing_experiment": [
        # mixup, other seeds, the interval by hand
        ("v2.CutMix(alpha=1.0,", "v2.MixUp(alpha=0.3,", SEEDS, "[5, 3, 8, 1, 2]",
         RETURN, "points = 100 * np.subtract(mixed, without)\n    "
         "half = 2.7764451 * points.std(ddof=1) / np.sqrt(5)\n    return answer | "
         '{"low": points.mean() - half, "high": points.mean() + half}'),
        # one of both, and a test of SciPy
        (CUTMIX, "v2.RandomChoice([mix(num_classes=num_classes) for mix in (v2.MixUp, v2.CutMix)])",
         RETURN, "found = stats.ttest_rel(mixed, without).confidence_interval()\n    "
         'return answer | {"low": 100 * found.low, "high": 100 * found.high}'),
    ],
    "mix_each": [
        (f"{ONE_HOT}.to(images.dtype)", "torch.eye(num_classes)[targets]",
         MIXED, "torch.lerp(images[permutation], images, of_images)"),
        (MIXED, "torch.einsum('n,nchw->nchw', lams, images) + torch.einsum('n,nchw->nchw', "
         "1 - lams, images[permutation])",
         SOFT, "soft.mul(of_targets).scatter_add_(1, targets[permutation, None], 1 - of_targets)"),
    ],
    "cut_mix": [
        # a slice of a range is clipped by itself
        (f"y1, y2 = max(top, 0), {ROW_END}", "rows = range(images.shape[2])"
         "[max(top, 0) : max(top + height, 0)]\n    y1, y2 = rows.start, rows.stop",
         PASTED, "len(rows) * max(0, x2 - x1)"),
        ("cut[:, :, y1:y2, x1:x2] = images[permutation][:, :, y1:y2, x1:x2]",
         "y, x = torch.arange(images.shape[2])[:, None], torch.arange(images.shape[3])\n"
         "    inside = (y >= y1) & (y < y2) & (x >= left) & (x < left + width)\n"
         "    cut = torch.where(inside, images[permutation], images)", PASTED, "inside.sum()"),
    ],
    "fmix_mask": [
        ("(vertical**2 + horizontal**2).sqrt()", "torch.hypot(vertical, horizontal)",
         CHOSEN, f"mask = values.argsort(descending=True).argsort() < {COUNT}"),
        # NumPy, and a threshold
        ("torch.fft.ifft2(torch.fft.fft2(noise) / frequency**decay).real.flatten()",
         "torch.tensor(np.fft.ifft2(np.fft.fft2(noise) / frequency.numpy()**decay).real.ravel())",
         CHOSEN, f"mask = values >= values.sort(descending=True).values[{COUNT} - 1]"),
    ],
    "train_and_validate": [
        # a loss for each of the two targets; all validation images at once
        ("Beta(alpha, alpha).sample().item()", "np.random.beta(alpha, alpha)",
         f"F.cross_entropy(logits, {CUT_SOFT}).backward()",
         "two = [F.cross_entropy(logits, part) for part in (targets, targets[permutation])]\n"
         "        (lam * two[0] + (1 - lam) * two[1]).backward()",
         "in val_batches\n        ]", "in [map(torch.cat, zip(*val_batches))]\n        ]"),
        # timm mixes, in place: each image with the one at the same place from the end
        ("permutation = torch.randperm(len(images))", "mixup = Mixup(mixup_alpha=alpha, "
         "label_smoothing=0.0, num_classes=num_classes)", f"soft = {ONE_HOT}.float()",
         "images, soft = mixup(images, targets)",
         "lam * images + (1 - lam) * images[permutation]", "images", CUT_SOFT, "soft"),
    ],
}  # fmt: skip
