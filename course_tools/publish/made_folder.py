"""Folders that the course makes and may make again, unless somebody has worked in them."""

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from course_utils.errors import CourseError
from course_utils.files import replace_folder

__all__ = ["MadeFolder"]

PASSING = {"__pycache__", ".ipynb_checkpoints"}  # made by running, lost without regret
LEFTOVER_AGE_S = 24 * 3600  # no command works as long as that: its process was killed
NO_FILE = "a link, or no regular file"  # in place of a checksum


@dataclass(frozen=True)
class MadeFolder:
    """A kind of folder: how it knows its own files, and what of the owner's moves over.

    Args:
        kind: its name in messages, such as ``site``.
        record: the file in it with the checksums of all files that the course wrote.
        kept: files and folders of the owner's, which move into the new folder.
    """

    kind: str
    record: str
    kept: tuple[str, ...]

    def check_unused(self, target: Path) -> None:
        """Refuse to replace files that somebody has written or worked in.

        Raises:
            CourseError: the folder ``target`` is something else, or holds such a file.
        """
        if not target.exists():
            return
        if not target.is_dir():
            raise CourseError(f"{target} is a file: choose an empty folder with --output")
        if not any(target.iterdir()):
            return
        try:
            written = dict(json.loads((target / self.record).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            raise CourseError(
                f"{target} is no {self.kind}: choose an empty folder with --output"
            ) from None
        found = self._digest(target)
        worked_in = [name for name, digest in found.items() if written.get(name) != digest]
        if worked_in:
            more = f" and {len(worked_in) - 3} more" if len(worked_in) > 3 else ""
            raise CourseError(
                f"{target} holds work ({', '.join(worked_in[:3])}{more}): move it away, or choose "
                "another folder with --output"
            )

    @contextmanager
    def replacing(self, target: Path) -> Iterator[Path]:
        """Give an empty folder to write in, which then takes the place of ``target``.

        All or nothing: after an error ``target`` is as it was.

        Raises:
            CourseError: see `check_unused`.
        """
        self.check_unused(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{self.kind}-"
        _remove_leftovers(target.parent, prefix)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=prefix) as folder:
            new = Path(folder) / "new"
            new.mkdir()
            mode = new.stat().st_mode & 0o777  # copying a folder into it changes it
            yield new
            record = json.dumps(self._digest(new), indent=1)
            (new / self.record).write_text(record + "\n", encoding="utf-8")
            _set_modes(new, mode)
            replace_folder(new, target, self.kept)

    def _digest(self, folder: Path) -> dict[str, str]:
        """The checksum of every file that the course wrote, or that somebody put there."""
        found = {}
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            own = self._is_kept(name) or name.as_posix() == self.record
            if own or PASSING & set(name.parts) or name.parts[0].endswith(".egg-info"):
                continue
            if path.is_symlink() or not path.is_dir():
                is_file = path.is_file() and not path.is_symlink()
                digest = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else NO_FILE
                found[name.as_posix()] = digest
        return found

    def _is_kept(self, name: Path) -> bool:
        return any(name.is_relative_to(kept) for kept in self.kept)


def _set_modes(folder: Path, mode: int) -> None:
    """Give all in ``folder`` the modes that this process gives what it makes (umask).

    Copied files bring the modes of their sources. A reader would get some files and not others.

    Args:
        mode: of folders; files have the same without the right to execute.
    """
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(mode if path.is_dir() else mode & 0o666)


def _remove_leftovers(parent: Path, prefix: str) -> None:
    """Remove what earlier commands left there when they were killed; never an owner's files."""
    for folder in parent.glob(f"{prefix}*"):
        replaced = folder / "old"  # killed while it took the place: files may lie only there
        if time.time() - folder.stat().st_mtime > LEFTOVER_AGE_S and not replaced.exists():
            shutil.rmtree(folder, ignore_errors=True)
