"""Deployment: what is served computes what was validated."""

import copy
import json
from pathlib import Path

import torch
from torch import nn
from torchvision.transforms import v2

NOT_COMBINED = "it changes a network after its training, and no training"
COUNT = 9  # of photographs or rows, another number than that of the card's own examples


def check_refused(call, *arguments, error=ValueError, **options):
    """The call raises this error; `pytest.raises` would end with no `Exception`."""
    try:
        call(*arguments, **options)
    except error:
        return
    raise AssertionError("another function is not refused")


def load_program(path="served.pt2"):
    return torch.export.load(path).module()


class Normed(nn.Module):
    """A network whose answers depend on its mode and on each channel."""

    def __init__(self, inputs=3 * 8 * 8):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(inputs), nn.Dropout(0.5)
        self.last = nn.Linear(inputs, 4)
        self.norm.running_mean.normal_()

    def forward(self, x):
        return self.last(self.drop(self.norm(x.flatten(1))))


def check_export(export, load, model, inputs, path, error=ValueError):
    """It gives the program for any batch size, and refuses another function."""
    with torch.no_grad():
        expected = model.eval()(inputs)
    export(copy.deepcopy(model), inputs, expected, path)
    for found in (load(path), load_program(path)):
        for count in (1, 2, len(inputs)):
            torch.testing.assert_close(found(inputs[:count]), expected[:count])
    size = max(1.0, expected.abs().max().item())

    def export_and_load(logits):
        export(copy.deepcopy(model), inputs, logits, path)
        return load(path)

    for other in (expected.roll(1, dims=0), expected + 0.003 * size, expected * torch.nan):
        check_refused(export_and_load, other, error=error)
    one_is_off = expected.clone()
    one_is_off[-1, -1] += 0.003 * size
    check_refused(export_and_load, one_is_off, error=error)
    export_and_load(expected + 0.0005)


def make_transform(size):
    """That of a validation: resized, divided by 255, normalised."""
    mean, std = (0.1, 0.5, 0.8), (0.2, 0.3, 0.1)
    scale = v2.ToDtype(torch.float32, scale=True)
    return v2.Compose([v2.Resize(size, antialias=True), scale, v2.Normalize(mean, std)])


def check_pytorch_card(card):
    """Its program computes what its validation computed, and another function is refused."""
    export, load = card["export_served"], card["load_checked"]
    transform, net = make_transform((8, 8)), Normed().eval()
    served = nn.Sequential(transform, net)
    for side in (8, 24):  # of the right size, and resized by the program itself
        pixels = torch.randint(256, (COUNT, 3, side, side)).to(torch.uint8)
        check_export(export, load, served, pixels, "checked.pt2")
    with torch.no_grad():
        expected = net(transform(pixels))
    export(served.train(), pixels, expected, "checked.pt2")
    torch.testing.assert_close(load("checked.pt2")(pixels), expected)
    files = {"examples.json": ""}
    torch.export.load("checked.pt2", extra_files=files)
    examples = json.loads(files["examples.json"])
    assert torch.equal(torch.tensor(examples["pixels"]), pixels.long())
    torch.testing.assert_close(torch.tensor(examples["logits"]), expected)
    check_refused(export, served, pixels[:1], expected[:1], "checked.pt2")

    program, expected, pixels = load_program(), card["expected"], card["photographs"]
    assert pixels.dtype == torch.uint8
    net = copy.deepcopy(card["net"]).cpu().eval()
    with torch.no_grad():
        torch.testing.assert_close(net((pixels / 255 - 0.5) / 0.25), expected)
        for count in (1, 3, len(pixels)):
            found = program(pixels[:count])
            torch.testing.assert_close(found, expected[:count], atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(card["program"](pixels), expected, atol=1e-3, rtol=1e-3)


def check_lightning_card(card):
    """The bare network has the checkpoint's weights, strictly, and is what was exported."""
    state = torch.load("trained.ckpt", weights_only=True)["state_dict"]
    bare = card["bare"]
    assert not bare.training
    for name, weight in bare.state_dict().items():
        torch.testing.assert_close(weight, state[f"layer.{name}"])
    assert card["trainer"].global_step == 4
    program = load_program()
    with torch.no_grad():
        expected = bare(card["inputs"])
    torch.testing.assert_close(card["expected"].cpu(), expected)
    for count in (1, 3, len(expected)):
        torch.testing.assert_close(program(card["inputs"][:count]), expected[:count])
    torch.testing.assert_close(card["program"](card["inputs"]), expected)

    model = Normed(6)
    saved = {f"net.{name}": x for name, x in model.state_dict().items()} | {"loss.w": torch.ones(1)}
    torch.save({"state_dict": saved}, "other.ckpt")
    loaded = card["load_bare"]("other.ckpt", Normed(6), prefix="net.")
    assert not loaded.training
    torch.testing.assert_close(dict(loaded.state_dict()), dict(model.state_dict()))
    for prefix in ("model.", ""):
        arguments = "other.ckpt", Normed(6)
        check_refused(card["load_bare"], *arguments, prefix=prefix, error=RuntimeError)
    inputs = torch.randn(COUNT, 6)
    export = card["export_checked"]
    check_export(export, load_program, loaded, inputs, "checked.pt2", AssertionError)
    assert Path("served.pt2").is_file()
