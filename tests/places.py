"""Places that tests share."""

from pathlib import Path

from course_utils.files import ROOT

__all__ = ["CIFAR_ARCHIVE", "NO_NETWORK", "ROOT", "find_notebooks"]

NO_NETWORK = ROOT / "tests" / "no_network"  # on PYTHONPATH it refuses connections off the machine
CIFAR_ARCHIVE = ROOT.parent / "shared" / "cifar10" / "cifar10_jpeg.tar.xz"


def find_notebooks() -> list[Path]:
    """Every lesson: tests are parametrised over these, so a new notebook joins by existing."""
    return sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
