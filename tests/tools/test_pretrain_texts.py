"""The text backbone learns from hidden or next tokens, never from padding or labelled texts."""

import pytest
import torch

from course_tools.cli import main as cli
from course_tools.pretrain import texts as pretrain
from course_utils.data.glosses import read_split
from course_utils.data.tokens import MASK
from course_utils.models import backbone
from course_utils.models.backbone import describe_backbone, read_backbone
from course_utils.models.text_small import PADDING, TextSmall

SHORT = pretrain.TextRecipe(epochs=1, batch_tokens=256)
VOCABULARY = 50
TOKENS = torch.tensor([[5, 6, 7, 8, 2], [9, 2, PADDING, PADDING, PADDING]])


@pytest.fixture
def network():
    torch.manual_seed(0)
    return TextSmall(3, vocabulary=VOCABULARY, width=16, depth=2, heads=2, longest=12)


@pytest.fixture
def few(monkeypatch):
    """Forty definitions for training and eight held out; any other split is refused."""
    splits = {"pretraining": read_split("pretraining")[:48]}
    monkeypatch.setattr(pretrain, "read_split", splits.__getitem__)
    monkeypatch.setattr(pretrain, "NUM_VAL", 8)


def make_task(is_causal, masked=0.3):
    return pretrain._make_task(TOKENS, is_causal, masked, torch.Generator().manual_seed(0))


def test_each_token_predicts_the_next_one():
    inputs, targets = make_task(is_causal=True)
    assert inputs.tolist() == [[5, 6, 7, 8], [9, 2, 0, 0]]
    assert targets.tolist() == [[6, 7, 8, 2], [2, -100, -100, -100]]


@pytest.mark.parametrize(("masked", "fewest", "most"), [(0.0, 0, 0), (0.5, 1, 6), (1.0, 7, 7)])
def test_hidden_tokens_are_the_targets_and_no_others(masked, fewest, most):
    inputs, targets = make_task(is_causal=False, masked=masked)
    is_target = targets != -100
    assert (inputs[is_target] == MASK).all()
    assert inputs[~is_target].equal(TOKENS[~is_target])
    assert targets[is_target].equal(TOKENS[is_target])
    assert not is_target[TOKENS == PADDING].any()
    assert fewest <= is_target.sum() <= most


@pytest.mark.parametrize("is_causal", [True, False])
def test_padding_changes_no_loss(network, is_causal):
    network.causal = is_causal

    def measure(tokens):
        generator = torch.Generator().manual_seed(0)
        return pretrain.predict_loss(network, tokens, 1.0, generator)

    padded = torch.nn.functional.pad(TOKENS, (0, 4), value=PADDING)
    torch.testing.assert_close(measure(padded), measure(TOKENS))


def test_no_token_sees_what_it_has_to_predict(network):
    """With the mask off by one, a network that copies what it sees would have no loss."""
    network.causal = True
    tokens = torch.randint(3, VOCABULARY, (1, 8))
    changed = tokens.clone()
    changed[0, 5] = 3 + (tokens[0, 5] - 2) % (VOCABULARY - 3)
    is_moved = (network.encode(tokens) - network.encode(changed)).abs().amax(dim=(0, 2)) > 1e-6
    inputs, targets = pretrain._make_task(tokens, True, 0.3, torch.Generator())
    place = (targets[0] == tokens[0, 5]).nonzero()[0, 0]
    assert place == 4
    assert inputs[0, place] == tokens[0, 4]
    assert not is_moved[place]


def test_it_learns_what_a_batch_repeats(network):
    """Of a text that is always the same, the next token is soon predicted."""
    text = TOKENS[0].numpy()
    recipe = pretrain.TextRecipe("causal", epochs=200, batch_tokens=20, peak_lr=1e-2)
    lines = []
    pretrain.train(network, [text] * 4, recipe, seed=0, report=lines.append)
    first, last = (float(lines[n].rpartition(" ")[2]) for n in (0, -1))
    assert first > 3
    assert last < 0.1
    assert network.causal


@pytest.mark.parametrize(
    ("objective", "measured"),
    [("masked", {"masked"}), ("causal", {"causal"}), ("both", {"masked", "causal"})],
)
def test_it_writes_a_backbone_that_says_how_it_was_made(few, tmp_path, objective, measured):
    lines = []
    recipe = pretrain.TextRecipe(objective, epochs=1, batch_tokens=256)
    about = pretrain.pretrain(tmp_path, 3, recipe, lines.append)
    assert about["command"] == "course pretrain --text --seed 3"
    assert about["recipe"]["objective"] == objective
    assert about["val_loss"].keys() == about["val_loss_of_stored_weights"].keys() == measured
    assert "40 for training, 8 held out" in about["data"]
    assert describe_backbone("text_small", tmp_path).items() >= about.items()
    assert len(lines) == 1


def test_the_seed_decides_the_backbone(few, tmp_path):
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        pretrain.pretrain(tmp_path / name, seed, SHORT, report=lambda line: None)
    one, same, other = (read_backbone("text_small", tmp_path / x) for x in ("one", "same", "other"))
    assert all(torch.allclose(one[name], same[name], atol=1e-2) for name in one)
    assert not torch.allclose(one["layer1.q.weight"], other["layer1.q.weight"], atol=1e-2)


def run_command(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["course", "pretrain", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code or 0


def test_the_command_says_what_came_out(few, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pretrain.pretrain, "__defaults__", (4, SHORT, print))
    monkeypatch.setattr(backbone, "WEIGHTS", tmp_path)
    assert run_command(monkeypatch, "--text") == 0
    assert "a loss on held-out definitions of" in capsys.readouterr().out
    assert describe_backbone("text_small", tmp_path)["model"] == "text_small"


@pytest.mark.parametrize("arguments", [(), ("--text", "--images", "somewhere")])
def test_one_of_the_two_has_to_be_said(arguments, monkeypatch, capsys):
    assert run_command(monkeypatch, *arguments) == 2
    assert "give --images FOLDER or --text" in capsys.readouterr().err
