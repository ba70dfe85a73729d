"""Scripts for pages that are read without a network: MathJax and reveal.js, from their packages."""

import shutil
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from course_utils.errors import CourseError
from course_utils.files import replace_folder

__all__ = ["copy_mathjax", "copy_reveal"]

MATHJAX = ("tex-chtml.js", "output/chtml/fonts", "input/tex/extensions")  # of 24 MB, what is used
REVEAL = (
    "dist/reveal.css",
    "dist/reveal.js",
    "dist/theme/white.css",
    "dist/theme/fonts",
    "plugin/notes",
)


def _find(package: str, part: str) -> Path:
    """The folder ``part`` among an installed package's files."""
    try:
        for file in metadata.files(package) or ():
            if part in file.as_posix():
                return Path(Path(file.locate()).as_posix().split(part)[0] + part)
    except metadata.PackageNotFoundError:
        pass
    raise CourseError(f"{package} is not installed: run make setup") from None


def _copy(source: Path, names: Sequence[str], target: Path) -> None:
    """Put files and folders of ``source`` into ``target``: all of them, or none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
        new = Path(folder) / "new"
        for name in names:
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if (source / name).is_dir():
                shutil.copytree(source / name, path)
            else:
                shutil.copyfile(source / name, path)
        replace_folder(new, target)


def copy_mathjax(target: Path) -> None:
    """Make ``target`` a folder with MathJax's TeX input and its web fonts."""
    _copy(_find("sphinx-mathjax-offline", "static/mathjax"), MATHJAX, target)


def copy_reveal(target: Path) -> None:
    """Make ``target`` a folder with reveal.js, its white theme and its speaker notes."""
    _copy(_find("sphinx-revealjs", "_static/revealjs"), REVEAL, target)
