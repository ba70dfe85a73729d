"""Reduced copies of large images: they are decoded once, not in every lesson.

The copies of a folder lie in one file, ``~/.cache/course_utils/reduced/<digest>.npz`` (or below
``XDG_CACHE_HOME``). Each has the digest of the image's path, size and time of change, so that a
changed image has no copy. Where this folder cannot be written, images are decoded every time.
"""

import contextlib
import hashlib
import io
import os
import zipfile
from pathlib import Path

import numpy as np

from course_utils.data.read_image import Note, Picture
from course_utils.data.shapes import IMAGE_SIZE
from course_utils.files import write_atomically

__all__ = ["MOST_COPIES", "MOST_FILES", "ReducedCopies", "find_copies_folder"]

MOST_COPIES = 20_000  # in a file: 60 MB
MOST_FILES = 8
READING = "1"  # count up when `read_image` reads a file differently
SHAPE = (IMAGE_SIZE, IMAGE_SIZE, 3)


def find_copies_folder() -> Path:
    """Where reduced copies lie on this machine."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache, "course_utils", "reduced")


class ReducedCopies:
    """The reduced copies of the images in one folder.

    Looking up and adding change this object only; ``save`` writes the file.
    """

    def __init__(self, images: Path) -> None:
        digest = hashlib.sha256(os.fsencode(os.path.realpath(images))).hexdigest()[:32]
        self.path = find_copies_folder() / f"{digest}.npz"
        self._copies = _load(self.path)
        self._added: dict[bytes, Picture] = {}

    def find(self, path: Path) -> Picture | None:
        """The copy of an image as it is now."""
        return self._copies.get(_digest(path)) if self._copies else None

    def add(self, path: Path, picture: Picture) -> None:
        """Keep the copy of an image that was large."""
        if picture.is_slow:
            self._added[_digest(path)] = picture

    def save(self) -> None:
        """Write what was added, if anything and if it can be written; the oldest copies go."""
        if not self._added:
            return
        kept = list((_load(self.path) | self._added).items())[-MOST_COPIES:]
        file = io.BytesIO()
        np.savez(
            file,
            digests=np.frombuffer(b"".join(digest for digest, _ in kept), np.uint8).reshape(-1, 32),
            pixels=np.stack([picture.pixels for _, picture in kept]),
            notes=np.array([picture.note for _, picture in kept], np.uint8),
        )
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self.path, file.getvalue())
            files = sorted(self.path.parent.glob("*.npz"), key=lambda path: path.stat().st_mtime)
            for path in files[:-MOST_FILES]:
                path.unlink(missing_ok=True)


def _digest(path: Path) -> bytes:
    """Changes whenever the image's file does (32 bytes); of no file it is that of its path."""
    try:
        status = path.stat()
        state = f"{status.st_size} {status.st_mtime_ns}"
    except OSError:
        state = ""
    return hashlib.sha256(os.fsencode(path) + f"\0{state}\0{READING}".encode()).digest()


def _load(path: Path) -> dict[bytes, Picture]:
    """Digest to copy, the oldest first; none if there is no such file or it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            digests, pixels, notes = (file[name] for name in ("digests", "pixels", "notes"))
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return {}
    count = len(notes)
    types = digests.dtype == pixels.dtype == notes.dtype == np.uint8
    if not types or digests.shape != (count, 32) or pixels.shape != (count, *SHAPE):
        return {}
    return {
        digest.tobytes(): Picture(image, Note(int(note)))
        for digest, image, note in zip(digests, pixels, notes, strict=True)
    }
