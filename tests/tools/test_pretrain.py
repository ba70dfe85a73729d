import pytest
import torch

from course_utils.models import backbone as weights
from course_utils.models.backbone import describe_backbone, read_backbone
from course_utils.models.create import create_model
from course_utils.results import read_records
from course_utils.tools import cli, pretrain
from tests.tools.conftest import interrupt

SMALL = pretrain.RECIPE.replace(num_train=128, num_val=64, epochs=1, progress=False)


def test_it_writes_what_create_model_reads(tmp_path, monkeypatch):
    about = pretrain.pretrain(tmp_path, seed=3, recipe=SMALL)
    assert about["command"] == "course pretrain --seed 3"
    assert describe_backbone(tmp_path) | about == describe_backbone(tmp_path)
    monkeypatch.setattr(
        "course_utils.models.resnet_tiny.read_backbone", lambda: read_backbone(tmp_path)
    )
    model = create_model("resnet_tiny", num_classes=5, pretrained=True)
    state, stored = model.state_dict(), read_backbone(tmp_path)
    assert set(state) - set(stored) == {"fc.weight", "fc.bias"}
    assert all(torch.equal(state[name], tensor) for name, tensor in stored.items())


def test_the_seed_decides_the_backbone(tmp_path):
    found = [pretrain.pretrain(tmp_path / str(k), 0, SMALL) for k in (1, 2)]
    assert found[0]["val_accuracy"] == pytest.approx(found[1]["val_accuracy"], abs=0.03)
    one, other = (read_backbone(tmp_path / str(k)) for k in (1, 2))
    assert all(torch.allclose(one[name], other[name], atol=1e-3) for name in one)
    pretrain.pretrain(tmp_path / "3", 1, SMALL)
    assert not torch.allclose(one["conv1.weight"], read_backbone(tmp_path / "3")["conv1.weight"])


def run_command(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["course", "pretrain", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code or 0


def test_the_command_trains_the_recipe_and_says_what_came_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pretrain, "RECIPE", SMALL)
    monkeypatch.setattr(weights, "WEIGHTS", tmp_path)
    assert run_command(monkeypatch, "--seed", "4") == 0
    assert "% of the validation images in" in capsys.readouterr().out
    assert describe_backbone(tmp_path)["seed"] == 4


def test_the_run_is_recorded_where_it_is_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pretrain, "RECIPE", SMALL)
    monkeypatch.setattr(weights, "WEIGHTS", tmp_path / "weights")
    monkeypatch.setattr(cli, "DEFAULT_BUILD", tmp_path / "build")
    monkeypatch.setenv("COURSE_RUNS_DIR", str(tmp_path / "mine"))
    assert run_command(monkeypatch) == 0
    assert [row["arm"] for row in read_records(tmp_path / "mine", "run")] == ["pretrain"]
    monkeypatch.delenv("COURSE_RUNS_DIR")
    assert run_command(monkeypatch) == 0
    assert len(read_records(tmp_path / "build" / "pretrain", "run")) == 1


def test_an_interrupt_is_one_line_and_leaves_the_backbone(tmp_path):
    """In the middle of a real training: Lightning has ways of its own with an interrupt."""
    started, backbone = tmp_path / "started", tmp_path / "weights"
    backbone.mkdir()
    script = (
        "import sys; from pathlib import Path; from course_utils.models import backbone as weights;"
        "from course_utils.tools import cli, pretrain;"
        "small = dict(num_train=128, num_val=64, epochs=10_000, progress=False);"
        "pretrain.RECIPE = pretrain.RECIPE.replace(**small); fit = pretrain.fit;"
        f"pretrain.fit = lambda *a, **k: (Path({str(started)!r}).touch(), fit(*a, **k))[1];"
        f"weights.WEIGHTS = Path({str(backbone)!r});"
        "sys.argv = ['course', 'pretrain']; cli.main()"
    )
    code, error = interrupt(script, started)
    assert code == 130
    assert error == "course: interrupted; the backbone is the one that was there"
    assert not list(backbone.iterdir())
