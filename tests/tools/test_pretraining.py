import json

import pytest
import torch

from course_utils import weights
from course_utils.models import create_model
from course_utils.tools import cli, pretraining
from course_utils.weights import describe_backbone, read_backbone

SMALL = pretraining.RECIPE.replace(num_train=128, num_val=64, epochs=1, progress=False)


def test_it_writes_what_create_model_reads(tmp_path, monkeypatch):
    about = pretraining.pretrain(tmp_path, seed=3, recipe=SMALL)
    assert about["command"] == "course pretrain --seed 3"
    assert describe_backbone(tmp_path) | about == describe_backbone(tmp_path)
    monkeypatch.setattr("course_utils.models.read_backbone", lambda: read_backbone(tmp_path))
    model = create_model("resnet_tiny", num_classes=5, pretrained=True)
    state, stored = model.state_dict(), read_backbone(tmp_path)
    assert set(state) - set(stored) == {"fc.weight", "fc.bias"}
    assert all(torch.equal(state[name], tensor) for name, tensor in stored.items())


def test_the_same_seed_makes_the_same_backbone(tmp_path):
    found = [pretraining.pretrain(tmp_path / str(k), 0, SMALL) for k in (1, 2)]
    assert found[0]["val_accuracy"] == pytest.approx(found[1]["val_accuracy"], abs=0.03)
    one, other = (read_backbone(tmp_path / str(k)) for k in (1, 2))
    assert all(torch.allclose(one[name], other[name], atol=1e-3) for name in one)


def test_the_command_trains_the_recipe_and_says_what_came_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pretraining, "RECIPE", SMALL)
    monkeypatch.setattr("sys.argv", ["course", "pretrain", "--output", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    assert "% of the validation images after 1 epochs" in capsys.readouterr().out
    stored = json.loads((tmp_path / f"{weights.BACKBONE}.json").read_text())
    assert stored["seed"] == 0
