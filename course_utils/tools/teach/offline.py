"""Scripts for pages that are read without a network: MathJax and reveal.js, from their packages."""

import shutil
from importlib import metadata
from pathlib import Path

from course_utils.errors import CourseError

__all__ = ["copy_mathjax", "copy_reveal"]

MATHJAX = ("tex-chtml.js", "output/chtml/fonts", "input/tex/extensions")  # of 24 MB, what is used


def _find(package: str, part: str) -> Path:
    """The folder ``part`` among an installed package's files."""
    try:
        for file in metadata.files(package) or ():
            if part in file.as_posix():
                return Path(Path(file.locate()).as_posix().split(part)[0] + part)
    except metadata.PackageNotFoundError:
        pass
    raise CourseError(f"{package} is not installed: run make setup") from None


def copy_mathjax(target: Path) -> None:
    """Put MathJax's TeX input with its web fonts into the folder ``target``."""
    source = _find("sphinx-mathjax-offline", "static/mathjax")
    for name in MATHJAX:
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, path, dirs_exist_ok=True)
        else:
            shutil.copyfile(source / name, path)


def copy_reveal(target: Path) -> None:
    """Put reveal.js, its white theme and its speaker notes into the folder ``target``."""
    source = _find("sphinx-revealjs", "_static/revealjs")
    for name in ("dist/reveal.css", "dist/reveal.js", "dist/theme/white.css"):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)
    for name in ("dist/theme/fonts", "plugin/notes"):
        shutil.copytree(source / name, target / name, dirs_exist_ok=True)
