"""Writing files so that a reader, or the next run, never finds half of one."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["ROOT", "probe_folder", "replace_folder", "write_atomically"]

ROOT = Path(__file__).resolve().parents[1]  # of the repository: data/, notebooks/, course_utils/


def write_atomically(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write ``content`` beside ``path`` and move it into place in one step; makes the folder.

    ``mode`` says who may read and write the file.

    Raises:
        OSError: it cannot be written; the error names a file, which that of a full disk does not.
    """
    if isinstance(content, str):
        content = content.encode("utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise


def probe_folder(folder: Path) -> None:
    """Make the folder and a file in it, which is deleted: so what follows can be written.

    Raises:
        OSError: it cannot.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def replace_folder(new: Path, target: Path, keep: Sequence[str] = ()) -> None:
    """Move the finished folder ``new`` to ``target``, in place of what is there.

    The old folder is left beside ``new``, which lies in a temporary folder on the same disk; its
    entries called as in ``keep`` move over. If the move fails, the old folder is back.
    """
    old = new.with_name("old")
    if target.exists():
        target.rename(old)
    try:
        new.rename(target)
    except BaseException:
        if old.exists():
            old.rename(target)
        raise
    for name in keep:
        if (old / name).exists() and not (target / name).exists():
            (old / name).rename(target / name)
