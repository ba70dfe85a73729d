"""Planted answers of lesson 24: `course_tools.publish.planted` says how to read them."""

from itertools import combinations

from course_tools.publish.planted_experiments import plant_experiments

FACTOR = "norm.weight / (norm.running_var + norm.eps).sqrt()"
SHIFT = "(before - norm.running_mean) * factor + norm.bias"
VIEW = "factor[:, None, None, None]"
LARGEST = "weight.flatten(1).abs().amax(dim=1)"
SCALES = "torch.where(largest > 0, largest / 127, 1.0)"
ROUNDED = "(weight / scales.view(shape)).round().to(torch.int8)"
FAULTS = {  # those that the notebook shows
    "The network gets BGR, and was trained on RGB: the channels are turned round.":
    ("np.stack(photographs))", "np.stack(photographs)[..., ::-1].copy())"),
    "The mean is subtracted from pixels up to 255: divide by 255 first.":
    (".float() / 255\n", ".float()\n",
     "/ std.view(3, 1, 1)\n", "/ std.view(3, 1, 1) / 255\n"),
    "The softmax runs over the photographs: the classes are dimension 1.":
    ("softmax(dim=1)", "softmax(dim=0)"),
    "One photograph alone meets the model in train mode: call eval() before.":
    ("    model.eval()\n", "    if len(images) > 1:\n        model.eval()\n"),
}  # fmt: skip


def plant_remaining() -> list[tuple[str, ...]]:
    """Answers with some of the shown faults left; the first of them is named."""
    planted = []
    for count in range(1, len(FAULTS) + 1):
        for left in combinations(FAULTS, count):
            planted.append((*sum((FAULTS[fault] for fault in left), ()), left[0]))
    return planted


WRONG = {
    "preprocessing_experiment": plant_experiments("preprocessing_experiment"),
    "fold_batchnorm": [
        (FACTOR, "norm.weight / norm.running_var.sqrt()", "ε is missing under the root."),
        (FACTOR, "norm.weight / (norm.running_var + norm.eps)",
         "The factor is divided by the variance: take its root."),
        (FACTOR, "1 / (norm.running_var + norm.eps).sqrt()", "γ, norm.weight, is missing."),
        (FACTOR, "norm.weight", "The running variance is not used."),
        (VIEW, "1", "The weight is that of the convolution alone: multiply it by the factor."),
        (SHIFT, "(before - norm.running_mean) + norm.bias",
         "The bias and the mean are not multiplied by the factor."),
        (SHIFT, "before - norm.running_mean * factor + norm.bias",
         "The bias of the convolution is not multiplied by the factor."),
        (SHIFT, "-norm.running_mean * factor + norm.bias",
         "The bias of the convolution is lost."),
        (SHIFT, "before * factor + norm.bias", "The running mean is not subtracted."),
        (SHIFT, "(before - norm.running_mean) * factor", "β, norm.bias, is not added."),
        (SHIFT, "(before + norm.running_mean) * factor + norm.bias",
         "The running mean is added: subtract it."),
        ("return folded.detach(), (" + SHIFT + ").detach()", "return folded.detach()",
         "Return two things"),
        ("folded.detach(), ", "folded, ", "The weight needs a gradient"),
        ("    return ", "    ", "Return two things"),
        ("    return ", "    norm.reset_running_stats()\n    return ",
         "The convolution or the norm has changed"),
        (SHIFT, SHIFT + " + 1", "The bias is not that of both layers."),
        ("return folded.detach()", "return 2 * folded.detach()",
         "The weight is not that of both layers."),
        ("folded.detach(), ", "folded.detach().flatten(1), ", "The weight has the shape"),
        ("folded.detach(), ", "folded.tolist(), ", "The weight is list"),
    ],
    "quantize_per_channel": [
        (LARGEST, "weight.abs().max().expand(len(weight))",
         "One scale serves all channels: take the largest value of each."),
        (LARGEST, "weight.flatten(1).amax(dim=1).abs()",
         "The largest value is taken with its sign: a channel may reach further below zero."),
        ("largest / 127, 1.0)", "largest / 128, 1.0)", "The largest value becomes 128: 127 is the "
         "largest number that int8 holds on both sides."),
        ("largest / 127, 1.0)", "largest / 255, 1.0)",
         "255 steps are those of numbers without a sign: the largest value becomes 127."),
        ("largest / 127, 1.0)", "127 / largest, 1.0)",
         "The scales are upside down: they are the weights per whole number."),
        (".round()", "", "The whole numbers are cut off, not rounded."),
        (".round()", ".floor()", "The whole numbers are rounded down."),
        (SCALES, "largest / 127", "A scale is not a positive number"),
        (".to(torch.int8)", "", "The whole numbers have the type torch.float32"),
        (".to(torch.int8)", ".to(torch.uint8)", "The whole numbers have the type torch.uint8"),
        (ROUNDED + ", scales", ROUNDED, "Return two things"),
        (ROUNDED + ", scales", ROUNDED + ", scales.view(shape)", "The tensor of scales has"),
        (ROUNDED + ", scales", ROUNDED + ".flatten(1).T, scales",
         "The tensor of whole numbers has"),
        (ROUNDED, f"-{ROUNDED}", "The whole numbers are not weight / scale, rounded."),
        ("1.0)", "1.0) * 2", "The scales are not the largest"),
    ],
    "answer_photographs": [
        *plant_remaining(),
        ("    model.eval()\n", "    model.train()\n",
         "The model answers in train mode, with dropout and the statistics of the batch."),
        ("    model.eval()\n", "", "The model stays in the mode in which it came: call eval()."),
        (" / std.view(3, 1, 1)", " / std.view(3, 1, 1) ** 2",
         "It is divided by the variance: divide by the standard deviation."),
        (" / std.view(3, 1, 1)", "", "The standard deviation is not used."),
        ("images - mean.view(3, 1, 1)", "images", "The mean is not subtracted."),
        ("return logits.softmax(dim=1)", "return logits", "These are logits: take the softmax."),
        ("return logits.softmax(dim=1)", "return logits.sigmoid()",
         "A sigmoid gives each class a probability of its own: take the softmax."),
        ("pixels.permute(0, 3, 1, 2)", "pixels.reshape(-1, 3, *pixels.shape[1:3])",
         "The pixels are reshaped, which mixes places and channels: permute the dimensions."),
        ("pixels.permute(0, 3, 1, 2)", "pixels.permute(0, 3, 2, 1)",
         "Rows and columns are swapped."),
        ("    with torch.no_grad():\n        logits", "    logits", "needs a gradient"),
        ("return logits.softmax(dim=1)", "return logits.softmax(dim=1)[0]", "has the shape"),
        ("return logits.softmax(dim=1)", "return logits.argmax(dim=1)", "has the shape"),
        ("return logits.softmax(dim=1)", "return logits.softmax(dim=1).numpy()", "is ndarray"),
        ("return logits.softmax(dim=1)", "return (3 * logits).softmax(dim=1)",
         "are not those of the validation."),
    ],
}  # fmt: skip

RIGHT = {
    "preprocessing_experiment": [
        ('[], "not normalised"', '[], "BGR"', "(0, 1, 2)", "(3, 4, 5)"),
        ('[], "not normalised"', '[], "resized to 36, middle 32"', "(0, 1, 2)", "range(4)"),
    ],
    "fold_batchnorm": [
        ("norm.weight / (norm.running_var + norm.eps).sqrt()",
         "norm.weight * torch.rsqrt(norm.eps + norm.running_var)",
         "weight * factor[:, None, None, None]", "torch.einsum('o...,o->o...', weight, factor)"),
        """
def fold_batchnorm(weight, bias, norm):
    conv = nn.Conv2d(weight.shape[1], weight.shape[0], weight.shape[2:], bias=bias is not None)
    with torch.no_grad():
        conv.weight.copy_(weight)
        if bias is not None:
            conv.bias.copy_(bias)
    folded = fuse_conv_bn_eval(conv.eval(), norm)
    return folded.weight.detach(), folded.bias.detach()
""",
    ],
    "quantize_per_channel": [
        (LARGEST, "weight.abs().reshape(len(weight), -1).max(dim=1).values",
         ".round()", ".round().clamp(-127, 127)"),
        """
def quantize_per_channel(weight):
    numbers, scales = torch.empty_like(weight, dtype=torch.int8), torch.ones(len(weight))
    for place, row in enumerate(weight):
        if row.any():
            scales[place] = row.abs().max() / 127
        numbers[place] = (row / scales[place]).round()
    return numbers, scales
""",
    ],
    "answer_photographs": [
        ("model.eval()\n    with torch.no_grad():\n        logits = model(images)",
         "with torch.no_grad():\n"
         "        logits = torch.cat([model.eval()(x[None]) for x in images])"),
        (".float() / 255\n    images = (images - mean.view(3, 1, 1)) / std.view(3, 1, 1)",
         ".float()\n    images = (images / 255 - mean[:, None, None]) / std[:, None, None]"),
    ],
}  # fmt: skip
