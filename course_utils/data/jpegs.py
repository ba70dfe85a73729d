"""Images as JPEG files with a list of their names and targets: what an input pipeline reads."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from course_utils.data.image_data import Images
from course_utils.errors import CourseError
from course_utils.files import write_atomically

__all__ = ["FILE_LIST", "JpegFiles", "open_jpegs", "read_jpeg", "write_jpegs"]

FILE_LIST = "files.txt"  # one line per image: its name, a space, its target
QUALITY = 95


def read_jpeg(path: Path) -> np.ndarray:
    """One image ``(H, W, 3)`` uint8, red first.

    Raises:
        CourseError: no such file, or no image.
    """
    import cv2

    image = cv2.imread(str(path), cv2.IMREAD_COLOR_RGB)
    if image is None:
        raise CourseError(f"cannot read the image {path}: write the files again")
    return image


@dataclass(frozen=True)
class JpegFiles(Dataset):
    """JPEG files, each decoded and transformed when it is asked for.

    ``transform`` is that of `Images`: it maps ``image`` ``(H, W, 3)`` uint8 to ``{"image": …}``;
    None: the decoded image.
    """

    paths: tuple[Path, ...]
    targets: tuple[int, ...]
    transform: Callable | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[np.ndarray | torch.Tensor, int]:
        image = read_jpeg(self.paths[index])
        if self.transform is not None:
            image = self.transform(image=image)["image"]
        return image, self.targets[index]


def write_jpegs(images: Images, folder: Path | str) -> JpegFiles:
    """Write every image as a JPEG file into ``folder``, and the list of them last."""
    import cv2

    folder, lines = Path(folder), []
    folder.mkdir(parents=True, exist_ok=True)
    for number, (image, target) in enumerate(zip(images.images, images.targets, strict=True)):
        _, code = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
        (folder / f"{number:05d}.jpg").write_bytes(code.tobytes())
        lines.append(f"{number:05d}.jpg {target}\n")
    write_atomically(folder / FILE_LIST, "".join(lines))
    return open_jpegs(folder)


def open_jpegs(folder: Path | str) -> JpegFiles:
    """The JPEG files of a folder that `write_jpegs` wrote, in the order of its list.

    Raises:
        CourseError: no list, or a line of it that is not a name and a target.
    """
    path = Path(folder) / FILE_LIST
    if not path.exists():
        raise CourseError(f"{folder} has no {FILE_LIST}: write the images with write_jpegs")
    paths, targets = [], []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        name, _, target = line.rpartition(" ")
        if not name or not target.isdigit():
            raise CourseError(f"{path}, line {number}: expected 'name target', not {line!r}")
        paths.append(path.parent / name)
        targets.append(int(target))
    return JpegFiles(tuple(paths), tuple(targets))
