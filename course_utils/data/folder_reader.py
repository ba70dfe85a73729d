"""Reads images of the user's own, large ones from reduced copies; names all that are damaged."""

import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from tqdm import tqdm

from course_utils.data.own_images import walk_images, write_out
from course_utils.data.read_image import Picture, read_image, tell_notes
from course_utils.data.reduced_copies import ReducedCopies
from course_utils.errors import CourseError

__all__ = ["FolderReader"]

MOST_NAMED = 10  # damaged files in one message
MOST_THREADS = 4  # each holds a whole image: 36 MB for 12 megapixels
SHOWN_AFTER_S = 2  # a progress bar


class FolderReader:
    """Reads the images of a split that are asked for, large ones from their reduced copies."""

    def __init__(self, root: Path, paths: Sequence[Path], progress: bool = False) -> None:
        self.root, self.paths, self.progress = root, paths, progress

    def name(self, path: Path) -> str:
        """What a person calls an image: its path below the data set's folder."""
        return write_out(path.relative_to(self.root))

    def __call__(self, index: np.ndarray) -> np.ndarray:
        """Images ``(len(index), 32, 32, 3)`` uint8; says what was done to them.

        Raises:
            CourseError: images that cannot be read; if there is one, all others of both splits are
                tried, so that the message names the first ten.
        """
        asked = [self.paths[i] for i in index]
        found = self._read(asked, "reading images")
        damaged = {path: why for path, why in found.items() if isinstance(why, CourseError)}
        if damaged:
            rest = [path for path in walk_images(self.root) if path not in found]
            for start in range(0, len(rest), 256):
                if len(damaged) >= MOST_NAMED:
                    break
                more = self._read(rest[start : start + 256], "looking for more damaged images")
                damaged |= {path: why for path, why in more.items() if isinstance(why, CourseError)}
            raise CourseError(self._name_damaged(damaged))
        read = {path: picture for path, picture in found.items() if isinstance(picture, Picture)}
        pictures = [read[path] for path in asked]
        tell_notes([picture.note for picture in pictures])
        return np.stack([picture.pixels for picture in pictures])

    def _read(self, paths: Sequence[Path], what: str) -> dict[Path, Picture | CourseError]:
        """Each path's picture, or why it cannot be read."""
        copies = ReducedCopies(self.root)

        def read(path: Path) -> Picture | CourseError:
            try:
                return copies.find(path) or read_image(path)
            except CourseError as error:
                return error

        # Filters are the whole process's: they must be set here, not in a thread.
        with warnings.catch_warnings(), ThreadPoolExecutor(MOST_THREADS) as pool:
            warnings.simplefilter("ignore", UserWarning)  # Pillow's, of EXIF that is not used
            bar = tqdm(
                pool.map(read, paths),
                desc=what,
                total=len(paths),
                delay=SHOWN_AFTER_S,
                leave=False,
                file=sys.stdout,
                unit="image",
                disable=not self.progress,
            )
            found = dict(zip(paths, bar, strict=True))
        for path, picture in found.items():
            if isinstance(picture, Picture):
                copies.add(path, picture)
        copies.save()
        return found

    def _name_damaged(self, damaged: dict[Path, CourseError]) -> str:
        """The first ten damaged images, each by its name below the data set's folder."""
        names = [self.name(path) for path in sorted(damaged)[:MOST_NAMED]]
        reason = damaged[min(damaged)]
        if len(names) == 1:
            return (
                f"cannot read the image {names[0]}: replace or delete it ({reason}; it is in "
                f"{write_out(self.root)})"
            )
        count = f"{len(damaged)} images" + (" or more" if len(damaged) >= MOST_NAMED else "")
        return (
            f"cannot read {count}: {', '.join(names)}: replace or delete them "
            f"(the first: {reason}; they are in {write_out(self.root)})"
        )
