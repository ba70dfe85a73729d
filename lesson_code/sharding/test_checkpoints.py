"""Checkpoints that several ranks write: who reads them, and what a rank that dies leaves."""

import shutil
import subprocess
import sys
from pathlib import Path

import lightning as L
import psutil
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.optim import AdamW

from course_utils.errors import CourseError
from course_utils.ranks import ON_CPU, run_ranks
from lesson_code.sharding import checkpoints, trainer_checkpoints
from lesson_code.sharding.saving_shards import load_shards
from lesson_code.sharding.trainer_checkpoints import LitSharded

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
    pytest.mark.lesson_changed,  # five starts of ranks
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two ranks, of which one dies while step 15 is saved; then three. What they said and found."""
    folder = tmp_path_factory.mktemp("trained")
    saved = folder / "saved"
    saved.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        arguments = {"folder": "saved", "die_at": 15}
        with pytest.raises(CourseError) as died:
            run_ranks(checkpoints, arguments=arguments, environment=ON_CPU)
        left = {path.name for path in saved.iterdir() if path.is_dir()}
        sizes = {name: (saved / name / "__1_0.distcp").stat().st_size for name in left}
        commands = [" ".join(x.info["cmdline"] or []) for x in psutil.process_iter(["cmdline"])]
        parts = checkpoints, trainer_checkpoints
        arguments = {"folder": "saved"}
        found = run_ranks(*parts, arguments=arguments, processes=3, environment=ON_CPU)
    alive = [command for command in commands if "lesson_code.sharding.checkpoints" in command]
    about = {"folder": folder, "said": str(died.value), "left": left}
    about |= {"sizes": sizes, "alive": alive}
    return about | found


def load(folder):
    model, optimizer = checkpoints.make_training()
    step = load_shards(folder, model, optimizer)
    return step, checkpoints.read_whole(model, optimizer)


def read(trained, step):
    return torch.load(trained["folder"] / f"saved/whole_{step:06}.pt")


def test_a_rank_that_dies_is_one_sentence_and_leaves_a_part(trained):
    assert "rank 1 was killed (SIGKILL" in trained["said"]
    assert "\n" not in trained["said"]
    assert trained["left"] == {"part_000015", "step_000005", "step_000010"}
    assert trained["alive"] == []


def test_the_rank_died_in_the_middle_of_its_file(trained):
    assert 0 < trained["sizes"]["part_000015"] < trained["sizes"]["step_000010"]


def test_three_ranks_load_what_two_have_saved_bit_for_bit(trained):
    assert trained["begun at"] == 10
    assert checkpoints.find_gap(trained["loaded"], read(trained, 10)) == 0


def test_one_process_loads_what_three_ranks_have_saved_bit_for_bit(trained):
    step, state = load(trained["folder"] / "saved")
    assert step == checkpoints.STEPS
    assert checkpoints.find_gap(state, read(trained, 20)) == 0


def test_the_training_ends_as_if_nobody_had_died(trained):
    assert checkpoints.find_gap(read(trained, 20), checkpoints.run_undisturbed()) < 1e-12


def test_an_optimizer_that_is_not_loaded_is_seen(trained, tmp_path):
    """Planted: the weights of step 10 with an AdamW that begins anew."""
    shutil.copytree(trained["folder"] / "saved/step_000010", tmp_path / "step_000010")
    model, optimizer = checkpoints.make_training()
    load_shards(tmp_path, model, AdamW(model.parameters()))  # the state goes to another one
    for step in range(10, checkpoints.STEPS):
        checkpoints.take_step(model, optimizer, step)
    state = checkpoints.read_whole(model, optimizer)
    assert checkpoints.find_gap(state, checkpoints.run_undisturbed()) > 1e-3


def test_shards_of_two_steps_load_without_an_error(trained, tmp_path):
    """What a save into the old folder can leave, and why `save_shards` takes a new one."""
    saved = trained["folder"] / "saved"
    shutil.copytree(saved / "step_000005", tmp_path / "step_000005")
    shutil.copy(saved / "step_000010/__0_0.distcp", tmp_path / "step_000005")
    step, state = load(tmp_path)
    assert step == 10
    old, new = read(trained, 5)["0.weight"], read(trained, 10)["0.weight"]
    rows = state["0.weight"]
    assert 0 < (rows == old).double().mean() < 1
    assert ((rows == old) | (rows == new)).all()
    assert state["0.weight.step"] == 5


def test_without_a_complete_checkpoint_the_training_begins_at_0(tmp_path):
    (tmp_path / "part_000005").mkdir()
    model, optimizer = checkpoints.make_training()
    assert load_shards(tmp_path, model, optimizer) == 0
    assert not optimizer.state


def test_the_state_of_a_new_optimizer_counts_a_step():
    """What the text warns of."""
    model, optimizer = checkpoints.make_training()
    before = torch.nn.utils.parameters_to_vector(model.parameters()).clone()
    get_state_dict(model, optimizer)
    assert {state["step"].item() for state in optimizer.state.values()} == {1}
    assert torch.equal(torch.nn.utils.parameters_to_vector(model.parameters()), before)


def test_an_asynchronous_save_is_complete_when_its_future_is(tmp_path):
    model, _ = checkpoints.make_training()
    dcp.async_save({"model": model.state_dict()}, checkpoint_id=tmp_path / "saved").result()
    dcp_to_torch_save(tmp_path / "saved", tmp_path / "one.pt")
    loaded = torch.load(tmp_path / "one.pt")["model"]
    assert all(torch.equal(loaded[name], value) for name, value in model.state_dict().items())


# ---- The Trainer's.


def read_vector(state_dict):
    return torch.cat([tensor.flatten() for tensor in state_dict.values()])


def test_the_trainer_goes_on_from_its_shards(trained):
    assert torch.equal(trained["trainer, at once"], trained["trainer, resumed"])


def test_one_file_loads_everywhere_and_shards_do_not(trained):
    lit = LitSharded.load_from_checkpoint(trained["folder"] / "trained_file.ckpt")
    assert torch.equal(read_vector(lit.state_dict()), trained["trainer, resumed"])
    shards = trained["folder"] / "trained_shards.ckpt"
    with pytest.raises(IsADirectoryError):
        LitSharded.load_from_checkpoint(shards)
    trainer = trainer_checkpoints.quiet_trainer(accelerator="cpu", max_epochs=4)
    with pytest.raises(IsADirectoryError):
        trainer.fit(LitSharded(), trainer_checkpoints.make_loader(1), ckpt_path=shards)


@pytest.mark.nightly
@pytest.mark.parametrize("package", ["fabric", "pytorch"])
def test_which_of_lightnings_tools_makes_one_file(trained, tmp_path, package):
    """The text names the one that does, and the error of the other."""
    if package == "pytorch" and L.__version__ != "2.6.6":
        pytest.skip("the text is about Lightning 2.6.6")
    folder = trained["folder"] / "trained_shards.ckpt"
    module = f"lightning.{package}.utilities.consolidate_checkpoint"
    command = [sys.executable, "-m", module, str(folder), "--output_file", str(tmp_path / "one")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    if package == "pytorch":
        assert "KeyError: 'model'" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    one = torch.load(tmp_path / "one", weights_only=False)["state_dict"]
    dcp_to_torch_save(folder, Path(tmp_path, "other"))
    assert torch.equal(read_vector(one), read_vector(torch.load(tmp_path / "other")["state_dict"]))
