"""``course lab``: JupyterLab on the lessons, for this machine only."""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from jupyterlab_server.workspaces_handler import WORKSPACE_EXTENSION, WorkspacesManager

from course_tools.run.lessons import NOTEBOOKS
from course_utils.doctor import find_unwritable_homes
from course_utils.files import ROOT
from course_utils.processes.inherited import clean_environment

__all__ = ["make_environment", "make_options", "open_lab"]

SETTINGS = Path(__file__).with_name("settings")  # how the lab shows the course
WORKSPACES = ROOT / "build" / "lab"  # which panels and notebooks are open
ANNOUNCEMENTS = "jupyterlab.handlers.announcements"
IDENTITY = "course_tools.lab.identity.TokenProvider"


def make_options(port: int, browser: bool) -> dict[str, object]:
    """The lab's options; they are stronger than a user's own configuration of Jupyter."""
    return {
        "--ServerApp.ip": "127.0.0.1",
        "--ServerApp.port": port,
        "--ServerApp.open_browser": browser,
        "--ServerApp.root_dir": NOTEBOOKS,
        "--ServerApp.identity_provider_class": IDENTITY,
        "--ServerApp.tornado_settings": {"static_custom_path": [str(SETTINGS / "custom")]},
        "--LabApp.custom_css": True,
        "--LabApp.default_url": "/lab/tree/00_start_here.ipynb",
        "--LabApp.news_url": None,  # the lab makes no calls to other machines
        "--LabApp.check_for_updates_class": f"{ANNOUNCEMENTS}.NeverCheckForUpdate",
        "--ServerApp.allow_root": hasattr(os, "geteuid") and os.geteuid() == 0,  # containers
    }


def make_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The lab's environment: the course's settings, and its package before any installed one."""

    def join(first: Path, name: str) -> str:
        return os.pathsep.join(filter(None, (str(first), variables.get(name))))

    return {
        "JUPYTERLAB_WORKSPACES_DIR": str(WORKSPACES),
        **clean_environment(variables),
        **_replace_homes(variables),
        "JUPYTER_CONFIG_PATH": join(SETTINGS, "JUPYTER_CONFIG_PATH"),
        "PYTHONPATH": join(ROOT, "PYTHONPATH"),
    }


def _replace_homes(variables: Mapping[str, str]) -> dict[str, str]:
    """Temporary folders in place of those that Jupyter cannot write, as in some containers."""
    names = find_unwritable_homes(variables)
    if not os.access(ROOT, os.W_OK) and "JUPYTERLAB_WORKSPACES_DIR" not in variables:
        names["JUPYTERLAB_WORKSPACES_DIR"] = WORKSPACES
    if not names:
        return {}
    folder = tempfile.mkdtemp(prefix="course-lab-")
    return {name: os.path.join(folder, name.lower()) for name in names}


def _open_contents(workspaces: Path) -> None:
    """Let the first lab begin with the panel of contents open; later ones are as they were left."""
    if not any(workspaces.glob(f"*{WORKSPACE_EXTENSION}")):
        workspace = (SETTINGS / "workspace.json").read_text(encoding="utf-8")
        WorkspacesManager(str(workspaces)).save("default", workspace)


def open_lab(port: int, browser: bool) -> NoReturn:
    """Become JupyterLab on ``port`` (0: any free one) of the loopback."""
    environment = make_environment(os.environ)
    _open_contents(Path(environment["JUPYTERLAB_WORKSPACES_DIR"]))
    options = [f"{name}={value}" for name, value in make_options(port, browser).items()]
    os.execve(sys.executable, [sys.executable, "-m", "jupyterlab", *options], environment)
