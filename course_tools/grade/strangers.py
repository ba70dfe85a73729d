"""What the programs of others leave on the disk: files to read with suspicion, folders to remove.

They may put a pipe, a link or a folder in a file's place, take rights away, or nest folders by the
thousand. Nothing here follows a link, waits, reads without a bound, or fails because of them.
"""

import errno
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["disposable_folder", "is_regular", "read_regular"]

# Windows has neither of them
FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def is_regular(path: Path) -> bool:
    """Whether a file is there, and no link, pipe or folder, in a folder that can be entered."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The content of a regular file.

    What is opened is what is looked at: a file that is replaced in between gains nothing.

    Raises:
        OSError: it is no regular file, larger than ``most_bytes``, or cannot be read.
    """
    handle = os.open(path, FLAGS)  # a link raises ELOOP, a pipe does not wait
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if about.st_size > most_bytes:
            raise OSError(errno.EFBIG, "larger than expected", str(path))
        with open(handle, "rb", closefd=False) as file:
            content = file.read(most_bytes + 1)
    finally:
        os.close(handle)
    if len(content) > most_bytes:  # it grows while it is read
        raise OSError(errno.EFBIG, "larger than expected", str(path))
    return content


@contextmanager
def disposable_folder() -> Iterator[Path]:
    """A temporary folder, by its real path, that goes however it was left."""
    temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    try:
        yield Path(temporary.name).resolve()
    finally:
        with suppress(RecursionError):  # it calls itself for each folder in a folder
            temporary.cleanup()
        if os.path.lexists(temporary.name) and (remove := shutil.which("rm")):
            subprocess.run([remove, "-rf", "--", temporary.name], stderr=subprocess.DEVNULL)
