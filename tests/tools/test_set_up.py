"""`set_up.py`: what it tells uv, and what it says when it cannot install."""

import re
import runpy
import subprocess
import sys

import pytest

import set_up
from course_utils.files import ROOT


def test_uv_looks_where_pip_looks():
    listed = """:env:.find-links='/wheels'
:env:.timeout='180'
global.cert='/etc/certs.pem'
global.constraint='/etc/constraints.txt'
global.extra-index-url='file:///one file:///two'
global.find-links='/of/a/file /and/another'
"""
    assert set_up.translate_settings(listed) == {
        "UV_FIND_LINKS": "/wheels",
        "UV_HTTP_TIMEOUT": "180",
        "SSL_CERT_FILE": "/etc/certs.pem",
        "UV_INDEX": "file:///one file:///two",
    }
    assert set_up.translate_settings("install.find-links='a b'\n") == {"UV_FIND_LINKS": "a,b"}
    assert set_up.translate_settings("") == {}


def test_uv_is_taken_in_its_locked_version_with_its_hashes():
    lines = set_up.find_requirement(set_up.LOCK.read_text(), "uv").splitlines()
    assert re.fullmatch(r"uv==[\d.]+ \\", lines[0])
    assert all(line.strip().startswith("--hash=sha256:") for line in lines[1:])
    assert len(lines) > 10


def test_without_cuda_all_else_is_locked():
    lock = set_up.LOCK.read_text()
    kept, pytorch = set_up.leave_out_cuda(lock)
    assert [name.partition("==")[0] for name in pytorch] == ["torch", "torchvision"]
    assert all(f"\n{requirement} \\\n" in lock for requirement in pytorch)
    names = re.findall(r"^(\S+)==", lock, re.MULTILINE)
    left_out = set(names) - set(re.findall(r"^(\S+)==", kept, re.MULTILINE))
    assert {"torch", "torchvision", "triton", "nvidia-dali-cuda120"} <= left_out
    assert {"torchmetrics", "pytorch-lightning", "timm", "uv"} <= set(names) - left_out
    assert all(name in ("torch", "torchvision", "triton") or "-" in name for name in left_out)
    own = set_up.find_requirement(lock, "timm")
    assert own in kept  # with its hashes
    assert set_up.leave_out_cuda("timm==1 \\\n    --hash=sha256:0\n") == (
        "timm==1 \\\n    --hash=sha256:0\n",
        [],
    )


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Commands that `set_up` runs, in a folder of its own; they do nothing."""
    started = []
    monkeypatch.setattr(set_up, "run", lambda *command, **options: started.append(command) or "")
    monkeypatch.setattr(set_up, "FOLDER", tmp_path)
    monkeypatch.setattr(set_up, "PYTHON", tmp_path / "python")
    (tmp_path / "python").touch()
    return started


@pytest.mark.parametrize("cpu", [False, True])
def test_pytorch_without_cuda_comes_from_its_own_index(cpu, commands):
    set_up.install_by_uv(cpu)
    by_uv = [command for command in commands if "uv" in command]
    locked = [command for command in by_uv if "--require-hashes" in command]
    others = [command for command in by_uv if "--torch-backend" in command]
    assert (len(locked), len(others)) == (1, int(cpu))
    for command in others:
        assert command[command.index("--torch-backend") + 1] == "cpu"
        assert command[-2].startswith("torch==")
        assert command[-1].startswith("torchvision==")


def test_pip_does_not_install_cuda_in_its_place(commands, monkeypatch):
    def fail(cpu):
        raise OSError("no such index")

    monkeypatch.setattr(set_up, "install_by_uv", fail)
    with pytest.raises(OSError, match="no such index"):
        set_up.set_up(cpu=True)
    assert not commands[1:]  # the first one asks whether pip runs
    assert not (set_up.FOLDER / "installed").exists()


def test_pip_installs_what_uv_cannot(commands, capsys, monkeypatch):
    def fail(cpu):
        raise OSError("no such index")

    monkeypatch.setattr(set_up, "install_by_uv", fail)
    set_up.set_up()
    assert "\nuv could not install (no such index): pip does it" in capsys.readouterr().out
    assert any("--require-hashes" in command and "uv" not in command for command in commands)
    assert (set_up.FOLDER / "installed").exists()


def test_what_fails_leaves_no_finished_installation(commands, monkeypatch):
    def fail(*cpu):
        raise OSError("no network")

    monkeypatch.setattr(set_up, "install_by_uv", fail)
    monkeypatch.setattr(set_up, "install_by_pip", fail)
    with pytest.raises(OSError, match="no network"):
        set_up.set_up()
    assert not (set_up.FOLDER / "installed").exists()


@pytest.mark.usefixtures("commands")
def test_a_full_disk_is_found_before_anything_is_written(monkeypatch):
    set_up.PYTHON.unlink()
    usage = type("Usage", (), {"free": 5.2e9})()
    monkeypatch.setattr(set_up.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=r"9 GB are needed and 5\.2 GB free"):
        set_up.set_up()


def test_half_an_installation_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(set_up, "FOLDER", tmp_path / "venv")
    monkeypatch.setattr(set_up, "PYTHON", tmp_path / "venv" / "bin" / "python")
    set_up.PYTHON.parent.mkdir(parents=True)
    set_up.PYTHON.write_text("not a program")
    created = []
    monkeypatch.setattr(set_up.venv, "create", lambda folder, **options: created.append(options))
    set_up.make_environment()
    assert created == [{"clear": True, "with_pip": True}]
    set_up.PYTHON.unlink()
    set_up.PYTHON.symlink_to(sys.executable)  # a working one stays
    set_up.make_environment()
    assert len(created) == 1


def test_a_python_without_ensurepip_is_named(tmp_path, monkeypatch):
    def fail(folder, **options):
        raise subprocess.CalledProcessError(1, "ensurepip")

    monkeypatch.setattr(set_up, "PYTHON", tmp_path / "none")
    monkeypatch.setattr(set_up.venv, "create", fail)
    with pytest.raises(OSError, match="install python3-venv"):
        set_up.make_environment()


def test_a_failed_command_says_what_it_said():
    with pytest.raises(OSError, match=r"^the reason$"):
        set_up.run(sys.executable, "-c", "import sys; sys.exit('much\\nERROR: the reason')")
    with pytest.raises(OSError, match=r"^3$"):
        set_up.run(sys.executable, "-c", "import sys; sys.exit(3)")


def test_an_old_python_is_named(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 or newer, and this is 3\.10"):
        runpy.run_path(str(ROOT / "set_up.py"), run_name="__main__")


def test_old_pythons_can_read_it():
    """The message reaches them only if they can compile the file."""
    source = (ROOT / "set_up.py").read_text()
    compiled = f"import ast; ast.parse({source!r}, feature_version=(3, 7))"
    assert subprocess.run([sys.executable, "-c", compiled]).returncode == 0
