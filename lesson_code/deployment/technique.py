"""Deployment: what is served computes what was validated."""

import copy
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

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


def prepare(pixels, mean, std):
    """By hand, what `Served` does to pixels that have the right size."""
    statistics = (torch.tensor(x).view(3, 1, 1) for x in (mean, std))
    return (pixels / 255 - next(statistics)) / next(statistics)


def check_served(card):
    """Pixels of the right size are normalised, and larger ones resized with a filter."""
    mean, std = (0.1, 0.5, 0.8), (0.2, 0.3, 0.1)
    net = Normed().eval()
    served = card["Served"](net, mean, std, (8, 8)).eval()
    pixels = torch.randint(256, (COUNT, 3, 8, 8)).to(torch.uint8)
    torch.testing.assert_close(served(pixels), net(prepare(pixels, mean, std)))
    large = torch.randint(256, (COUNT, 3, 24, 24)).to(torch.uint8)
    small = F.interpolate(large.float(), (8, 8), mode="bicubic", antialias=True)
    expected = net(prepare(small.round().clamp(0, 255), mean, std))
    torch.testing.assert_close(served(large), expected)
    return served, pixels


def check_export(export, model, inputs, path):
    """It gives the program for any batch size, and refuses another function."""
    with torch.no_grad():
        expected = model.eval()(inputs)
    program = export(copy.deepcopy(model), inputs, expected, path)
    for found in (program, load_program(path)):
        for count in (1, 2, len(inputs)):
            torch.testing.assert_close(found(inputs[:count]), expected[:count])
    size = max(1.0, expected.abs().max().item())
    for other in (expected.roll(1, dims=0), expected + 0.002 * size, expected * torch.nan):
        check_refused(export, copy.deepcopy(model), inputs, other, path)
    export(copy.deepcopy(model), inputs, expected + 0.0005 * size, path)


def check_pytorch_card(card):
    """Its program computes what its validation computed, and another function is refused."""
    served, pixels = check_served(card)
    check_export(card["export_served"], served, pixels, "checked.pt2")
    card["export_served"](served.train(), pixels, served.eval()(pixels).detach(), "checked.pt2")
    assert not card["to_serve"].training
    program, expected, pixels = load_program(), card["expected"], card["photographs"]
    assert card["net"] is not card["to_serve"].net, "the network itself stays where it is"
    assert pixels.dtype == torch.uint8
    for count in (1, 3, len(pixels)):
        torch.testing.assert_close(program(pixels[:count]), expected[:count], atol=1e-3, rtol=1e-3)
    by_hand = prepare(pixels, card["mean"], card["std"])
    net = copy.deepcopy(card["net"]).cpu().eval()
    with torch.no_grad():
        torch.testing.assert_close(net(by_hand), expected)
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
    check_export(card["export_checked"], loaded, torch.randn(COUNT, 6), "checked.pt2")
    assert Path("served.pt2").is_file()
