"""Every recipe card on the pretend device, and mistakes planted in cards, which show only there."""

import logging

import pytest

from tests.lessons.cards import alone, execute, list_cards
from tests.lessons.test_cards import LESSONS
from tests.pretend.accelerator import Connector, register_accelerator
from tests.pretend.cards import move_card, run_card

register_accelerator()
logging.getLogger("lightning").setLevel(logging.ERROR)
CARDS = {str(card): card for card in list_cards(LESSONS)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CARDS)
def test_a_card_runs(name, tmp_path):
    card = CARDS[name]
    operations = run_card(card.source, card.kind, tmp_path / "empty")
    assert operations > 0 or "import torch" not in card.source, "it has left the device alone"


# A name, a card, what is written there, and what a reader might write.
CPU, NUMPY, GENERATOR = (
    "Expected all tensors to be on the same device",
    "can't convert pretend:0 device type tensor to numpy",
    "Expected a 'pretend' device type for generator but found 'cpu'",
)
MISTAKES = {
    "targets that stay on the CPU": (
        CPU,
        "01_baseline, card-pytorch",
        "targets.to(device))",
        "targets)",
    ),
    "a tensor without a device": (
        CPU,
        "01_baseline, card-lightning",
        "return F.cross_entropy(self.model(batch[0]), batch[1])",
        "return F.cross_entropy(self.model(batch[0] + torch.ones(3, 32, 32)), batch[1])",
    ),
    "weights of a loss without a device": (
        CPU,
        "05_mixup, card-pytorch",
        "F.cross_entropy(model.train()(x), soft)",
        "F.cross_entropy(model.train()(x), soft, weight=torch.ones(10))",
    ),
    "numpy of a tensor on the device": (
        NUMPY,
        "01_baseline, card-pytorch",
        "model(images.to(device)).argmax(dim=1).cpu()",
        "torch.from_numpy(model(images.to(device)).argmax(dim=1).numpy())",
    ),
    "numpy in a Lightning module": (
        NUMPY,
        "01_baseline, card-lightning",
        "right.float().mean()",
        "right.float().numpy().mean().item()",
    ),
    "a generator of the CPU": (
        GENERATOR,
        "07_mixed_precision, card-pytorch",
        "net(inputs.to(device))",
        "net(inputs.to(device) + torch.randn((16, 3, 4, 4), device=device, "
        "generator=torch.Generator().manual_seed(0)))",
    ),
    "a generator of the CPU in place": (
        GENERATOR,
        "07_mixed_precision, card-lightning",
        "self.model(batch[0])",
        "self.model(batch[0].clone().normal_(generator=torch.Generator()))",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_card_is_caught(mistake, tmp_path, monkeypatch):
    message, name, old, new = MISTAKES[mistake]
    card = CARDS[name]
    assert card.source.count(old) == 1
    source = card.source.replace(old, new)
    with alone(tmp_path / "cpu"), monkeypatch.context() as patch:  # where it shows nothing
        patch.setattr(Connector, "_choose_auto_accelerator", lambda self: "cpu")
        execute(source)
    with pytest.raises((RuntimeError, TypeError), match=message):
        run_card(source, card.kind, tmp_path / "device")


NO_DEVICE = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(8, 3))  # yours
net = torch.nn.Linear(3, 2)  # yours
for [inputs] in DataLoader(data, 4):
    net(inputs)
"""


def test_a_card_that_a_reader_would_have_to_edit_is_caught(tmp_path):
    """Nothing in it moves the batches of a loader to the network's device."""
    with pytest.raises(RuntimeError, match=CPU):
        run_card(NO_DEVICE, "pytorch", tmp_path / "device")
    mended = NO_DEVICE.replace("net(inputs)", "net(inputs.to(net.weight.device))")
    assert run_card(mended, "pytorch", tmp_path / "mended") > 0


ASKED = 'device = "cuda" if torch.cuda.is_available() else "cpu"'
YOURS = "x = torch.ones(3)  # yours"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (ASKED, 'device = "pretend" if torch.pretend.is_available() else "cpu"'),
        ('validate(net, "cpu")  # yours: "cuda"', 'validate(net, "pretend")  # yours: "cuda"'),
        (YOURS, "\nwith make_on_device():\n    x = move_to_device(torch.ones(3))"),
        (f"def f():\n    {YOURS}", "\n    with make_on_device():\n        x = move_to_"),
        ("x = torch.ones(3)", "\nx = torch.ones(3)"),
        ("x = DataLoader(torch.ones(3))  # yours", "\nx = DataLoader(torch.ones(3))"),
        ("for _ in range(50):  # yours\n    f()", "\nfor _ in range(3):\n    f()"),
    ],
    ids=["asked", "given", "yours", "in a function", "not yours", "a loader", "a loop"],
)
def test_a_card_takes_the_device(source, expected):
    assert expected in move_card(source, "pytorch")
