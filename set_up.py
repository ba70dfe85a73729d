"""Install the course into ``.venv``, a folder of its own: ``python set_up.py``.

``make setup`` calls it, and without make it does the same. It needs Python 3.11 or newer and
nothing else. The versions and hashes are those of ``requirements.lock``. uv installs them, several
times faster than pip, and pip does it where uv cannot. Both look where pip is told to look: with
``PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER``, for example, nothing is fetched.
"""

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


def run(*command, **options):
    """Run a command in the course's folder; returns what it printed.

    Raises:
        OSError: it failed; the message is the last line that it said.
    """
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, **options)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or str(done.returncode)).splitlines()
        raise OSError(said[-1].removeprefix("ERROR: "))
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


def install_by_uv():
    """Install uv by pip, in its locked version, and by uv what is locked."""
    # uv's cache is on the disk of .venv, so that it links files and does not copy 8 GB.
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        own = Path(folder, "uv.txt")
        own.write_text(find_requirement(LOCK.read_text(), "uv"))
        run(PYTHON, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", own)
        settings = translate_settings(run(PYTHON, "-m", "pip", "config", "list"))
        # Any index may have a file, because the hashes say which one it must be.
        options = ("--require-hashes", "--index-strategy", "unsafe-best-match", "--python", PYTHON)
        environment = {"UV_CACHE_DIR": folder, **settings, **os.environ}
        run(PYTHON, "-m", "uv", "pip", "install", *options, "-r", LOCK, env=environment)


def install_by_pip():
    run(PYTHON, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", LOCK)


def set_up():
    """Install everything.

    Raises:
        OSError: the disk, the network or a permission stands in the way.
    """
    free_gb = shutil.disk_usage(ROOT).free / 1e9
    if not PYTHON.exists() and free_gb < DISK_GB:
        raise OSError(f"{DISK_GB} GB are needed and {free_gb:.1f} GB free: clear some")
    print("Installing into .venv: 8 GB, which takes minutes where the network is slow", flush=True)
    make_environment()
    try:
        install_by_uv()
    except OSError as error:
        print(f"uv could not install ({error}): pip does it, more slowly")
        install_by_pip()
    editable = ("--no-deps", "--no-build-isolation", "--editable", ".")
    run(PYTHON, "-m", "pip", "install", "--quiet", *editable)
    (FOLDER / "installed").touch()  # make compares its age with that of the lock


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 - somebody's python may be older
        found = "{}.{}".format(*sys.version_info)
        sys.exit(f"The course needs Python 3.11 or newer, and this is {found}: use another python")
    try:
        set_up()
    except OSError as error:
        fix = f"can the package index or PIP_FIND_LINKS be reached, and {FOLDER} be written?"
        sys.exit(f"The course is not installed ({error}): {fix}")
