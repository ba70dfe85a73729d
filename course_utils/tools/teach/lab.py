"""``course lab``: JupyterLab on the lessons, for this machine only."""

import os
import sys
from pathlib import Path
from typing import NoReturn

from course_utils.tools.run.lessons import NOTEBOOKS

__all__ = ["open_lab"]

SETTINGS = Path(__file__).with_name("lab_settings")  # how the lab shows the course
ANNOUNCEMENTS = "jupyterlab.handlers.announcements"


def open_lab(port: int, browser: bool) -> NoReturn:
    """Become JupyterLab on ``port`` (0: any free one) of the loopback."""
    options = {
        "--ServerApp.ip": "127.0.0.1",
        "--ServerApp.port": port,
        "--ServerApp.open_browser": browser,
        "--ServerApp.root_dir": NOTEBOOKS,
        "--LabApp.default_url": "/lab/tree/00_start_here.ipynb",
        "--LabApp.news_url": None,  # the lab calls nobody
        "--LabApp.check_for_updates_class": f"{ANNOUNCEMENTS}.NeverCheckForUpdate",
        "--ServerApp.allow_root": hasattr(os, "geteuid") and os.geteuid() == 0,  # containers
    }
    folders = filter(None, (str(SETTINGS), os.environ.get("JUPYTER_CONFIG_PATH")))
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(folders)
    command = [sys.executable, "-m", "jupyterlab"]
    os.execv(sys.executable, command + [f"{name}={value}" for name, value in options.items()])
