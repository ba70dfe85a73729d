"""Install the course into ``.venv``, a folder of its own: ``python set_up.py``.

``make setup`` calls it, and without make it does the same. It needs Python 3.11 or newer and
nothing else. The versions and hashes are those of ``requirements.lock``. uv installs them, several
times faster than pip, and pip does it where uv cannot. Both look where pip is told to look: with
``PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER``, for example, nothing is fetched.

With ``--cpu`` PyTorch comes without CUDA, in the locked version, from PyTorch's own index, whose
address uv knows. Its wheels there have other hashes than the lock, so they are not compared, and
DALI, which is made for GPUs, is left out. All other packages are compared as usual.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
LOCK = ROOT / "requirements.lock"
FOLDER = ROOT / ".venv"
PYTHON = FOLDER / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
DISK_GB = 9  # what .venv takes, and a little more
CPU_DISK_GB = 3  # the same, without CUDA
OF_CUDA = ("nvidia-", "cuda-", "triton")  # how names of packages begin that need a GPU
OF_PYTORCH = ("torch", "torchvision")  # packages that PyTorch's own index has without CUDA
SETTINGS = {  # of pip: the environment variable that tells uv the same
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}


def translate_settings(listed):
    """Environment variables for uv from what ``pip config list`` prints.

    As in pip, a variable of the environment (``:env:``) goes before a file.
    """
    found = {}
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        variable = SETTINGS.get(name.rpartition(".")[2])
        if variable:
            separator = "," if variable == "UV_FIND_LINKS" else " "
            found[variable] = separator.join(ast.literal_eval(value).split())
    return found


def find_requirement(lock, name):
    """The lines of one package in the text of a lock: its version and its hashes."""
    return re.search(rf"^{name}==.*\n(?: .*\n)*", lock, re.MULTILINE)[0]


def leave_out_cuda(lock):
    """The text of a lock without PyTorch and what only a GPU needs, and PyTorch's requirements."""
    kept, pytorch = [], []
    for requirement in re.findall(r"^\S+==.*\n(?: .*\n)*", lock, re.MULTILINE):
        name, version = re.match(r"(\S+)==(\S+)", requirement).groups()
        if name in OF_PYTORCH:
            pytorch.append(f"{name}=={version}")
        elif not name.startswith(OF_CUDA):
            kept.append(requirement)
    return "".join(kept), pytorch


def run(*command, **options):
    """Run a command in the course's folder; returns what it printed.

    Raises:
        OSError: it failed; the message is the last line that it said.
    """
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, **options)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or str(done.returncode)).splitlines()
        raise OSError(said[-1].strip().removeprefix("ERROR: "))
    return done.stdout


def make_environment():
    """A virtual environment whose pip runs. What is left of half an installation is deleted."""
    try:
        run(PYTHON, "-m", "pip", "--version")
    except OSError:
        try:
            venv.create(FOLDER, clear=True, with_pip=True)
        except subprocess.CalledProcessError:
            raise OSError("this Python has no ensurepip: install python3-venv") from None


def install_by_uv(cpu=False):
    """Install uv by pip, in its locked version, and by uv what is locked; PyTorch for CPUs."""
    lock = LOCK.read_text()
    # uv's cache is on the disk of .venv, so that it links files and does not copy 8 GB.
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        own, wanted = Path(folder, "uv.txt"), Path(folder, "wanted.txt")
        own.write_text(find_requirement(lock, "uv"))
        run(PYTHON, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", own)
        settings = translate_settings(run(PYTHON, "-m", "pip", "config", "list"))
        environment = {"UV_CACHE_DIR": folder, **settings, **os.environ}
        locked, pytorch = leave_out_cuda(lock) if cpu else (lock, [])
        wanted.write_text(locked)
        # Any index may have a file, because the hashes say which one it must be.
        options = ("--no-deps", "--require-hashes", "--index-strategy", "unsafe-best-match")
        # Bytecode once, or with PYTHONDONTWRITEBYTECODE each process compiles what it imports.
        install = (PYTHON, "-m", "uv", "pip", "install", "--compile-bytecode", "--python", PYTHON)
        run(*install, *options, "-r", wanted, env=environment)
        if pytorch:
            try:
                run(*install, "--no-deps", "--torch-backend", "cpu", *pytorch, env=environment)
            except OSError as error:
                raise OSError(f"from PyTorch's own index: {error}") from None


def install_by_pip():
    run(PYTHON, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", LOCK)


def set_up(cpu=False):
    """Install everything; with ``cpu``, PyTorch without CUDA.

    Raises:
        OSError: the disk, the network or a permission stands in the way.
    """
    needed_gb = CPU_DISK_GB if cpu else DISK_GB
    free_gb = shutil.disk_usage(ROOT).free / 1e9
    if not PYTHON.exists() and free_gb < needed_gb:
        raise OSError(f"{needed_gb} GB are needed and {free_gb:.1f} GB free: clear some")
    print(
        f"Installing into .venv: {needed_gb - 1} GB, which takes minutes where the network is slow",
        flush=True,
    )
    make_environment()
    try:
        install_by_uv(cpu)
    except OSError as error:
        if cpu:
            raise
        print(f"uv could not install ({error}): pip does it, more slowly")
        install_by_pip()
    editable = ("--no-deps", "--no-build-isolation", "--editable", ".")
    run(PYTHON, "-m", "pip", "install", "--quiet", *editable)
    (FOLDER / "installed").touch()  # make compares its age with that of the lock


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 - somebody's python may be older
        found = "{}.{}".format(*sys.version_info)
        sys.exit(f"The course needs Python 3.11 or newer, and this is {found}: use another python")
    parser = argparse.ArgumentParser(description="Install the course into .venv.")
    parser.add_argument("--cpu", action="store_true", help="PyTorch without CUDA: 2 GB, not 8")
    try:
        set_up(**vars(parser.parse_args()))
    except OSError as error:
        fix = f"can the package index or PIP_FIND_LINKS be reached, and {FOLDER} be written?"
        sys.exit(f"The course is not installed ({error}): {fix}")
