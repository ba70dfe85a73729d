"""The cell that makes a released notebook run on Google Colab, where only a notebook is opened."""

from urllib.parse import urlsplit

import nbformat

from course_utils.doctor import read_lock
from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = ["COLAB_PACKAGES", "make_colab_cell"]

COLAB_PACKAGES = (  # what lessons import; a test compares it with their imports
    "accelerate",
    "albumentations",
    "dask",
    "distributed",
    "lightning",
    "matplotlib",
    "numpy",
    "opencv-python-headless",
    "optuna",
    "pandas",
    "peft",
    "pillow",
    "psutil",
    "pydantic",
    "safetensors",
    "schedulefree",
    "scikit-learn",
    "scipy",
    "tensorboard",
    "timm",
    "tokenizers",
    "torch",
    "torchmetrics",
    "torchvision",
    "transformers",
    "tqdm",
)
CELL = """\
# On Google Colab this cell installs the course, in some minutes; elsewhere it does nothing.
import os
import subprocess
import sys
from pathlib import Path

if "google.colab" in sys.modules:
    packages = {packages}
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *packages], check=True)
    course = Path("course").resolve()
    if not course.exists():  # a second time, after a restart, it is there
        clone = ["git", "clone", "--quiet", "--depth=1", {address!r}, str(course)]
        subprocess.run(clone, check=True)
    sys.path.insert(0, str(course))
    os.environ["PYTHONPATH"] = str(course)  # for processes that a lesson starts
"""


def make_colab_cell(address: str) -> nbformat.NotebookNode:
    """A code cell that installs the locked versions and the course from a git ``address``.

    Raises:
        CourseError: ``address`` is none that git on Colab can read.
    """
    parts = urlsplit(address)
    if parts.scheme != "https" or not parts.netloc or not parts.path.strip("/") or " " in address:
        raise CourseError(f"--colab {address}: give the https:// address of your git repository")
    pins = read_lock(ROOT / "requirements.lock")
    packages = "\n".join(f"        {f'{name}=={pins[name]}'!r}," for name in COLAB_PACKAGES)
    source = CELL.format(packages=f"[\n{packages}\n    ]", address=address)
    return nbformat.v4.new_code_cell(source.rstrip(), metadata={"tags": ["colab"]}, id="colab")
