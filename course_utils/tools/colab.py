"""The cell that makes a released notebook run on Google Colab, where only a notebook is opened."""

import nbformat

from course_utils.environment import read_lock
from course_utils.errors import CourseError
from course_utils.tools.lessons import ROOT

__all__ = ["COLAB_PACKAGES", "make_colab_cell"]

COLAB_PACKAGES = (  # what lessons import; a test compares it with their imports
    *("albumentations", "lightning", "matplotlib", "numpy", "opencv-python-headless"),
    *("pandas", "peft", "pillow", "psutil", "safetensors", "scipy", "tensorboard", "timm"),
    *("torch", "torchmetrics", "torchvision", "tqdm"),
)
CELL = """\
# On Google Colab this cell installs the course, in some minutes; elsewhere it does nothing.
import subprocess
import sys

if "google.colab" in sys.modules:
    packages = {packages}
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *packages], check=True)
    clone = ["git", "clone", "--quiet", "--depth=1", {address!r}, "course"]
    subprocess.run(clone, check=True)
    sys.path.insert(0, "course")
"""


def make_colab_cell(address: str) -> nbformat.NotebookNode:
    """A code cell that installs the locked versions and the course from a git ``address``.

    Raises:
        CourseError: ``address`` is none that git on Colab can read.
    """
    if not address.startswith("https://"):
        raise CourseError(f"--colab {address}: give the https:// address of your git repository")
    pins = read_lock(ROOT / "requirements.lock")
    packages = "\n".join(f"        {f'{name}=={pins[name]}'!r}," for name in COLAB_PACKAGES)
    source = CELL.format(packages=f"[\n{packages}\n    ]", address=address)
    return nbformat.v4.new_code_cell(source.rstrip(), metadata={"tags": ["colab"]}, id="colab")
