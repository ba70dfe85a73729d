"""Scripts for pages that are read without a network: MathJax and reveal.js, from their packages."""

import shutil
from importlib import metadata
from pathlib import Path

__all__ = ["copy_mathjax", "copy_reveal"]

MATHJAX = ("tex-chtml.js", "output/chtml/fonts", "input/tex/extensions")  # of 24 MB, what is used


def _find(package: str, part: str) -> Path:
    """The folder ``part`` among an installed package's files."""
    for file in metadata.files(package) or ():
        if part in file.as_posix():
            path = Path(file.locate())
            return Path(path.as_posix().split(part)[0] + part)
    raise FileNotFoundError(f"{package} has no {part}")


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
    """Put reveal.js, its themes and its speaker notes into the folder ``target``."""
    source = _find("sphinx-revealjs", "_static/revealjs")
    for name in ("dist", "plugin/notes"):
        shutil.copytree(source / name, target / name, dirs_exist_ok=True)
