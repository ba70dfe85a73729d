"""Images as JPEG files with a list of their names and targets: what an input pipeline reads."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from course_utils.data.image_data import Images
from course_utils.errors import CourseError
from course_utils.files import write_atomically

__all__ = ["FILE_LIST", "JpegFiles", "draw_scenes", "open_jpegs", "read_jpeg", "write_jpegs"]

FILE_LIST = "files.txt"  # one line per image: its name, a space, its target
QUALITY = 95
TILES = 8  # small photographs along a side of a scene
ENLARGED = 4  # the photograph in the middle of a scene is so many times as wide as a small one


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


def draw_scenes(images: Images, seed: int = 0) -> Iterator[tuple[np.ndarray, int]]:
    """A large picture for each small photograph, and its target.

    The photograph stands in the middle, four times enlarged, on a wall of 8 × 8 small ones, which
    are drawn from ``images`` at random. An enlarged photograph alone has little detail, so that a
    JPEG file of it is small and fast to decode. The wall has the detail of real photographs.

    Yields:
        ``(8 H, 8 W, 3)`` uint8 for images of H × W pixels; the middle ``(4 H, 4 W, 3)`` is the
        enlarged photograph.
    """
    import cv2

    height, width = images.images.shape[1:3]
    rng = np.random.default_rng(seed)
    rows, columns = (slice(2 * side, 6 * side) for side in (height, width))
    for image, target in zip(images.images, images.targets, strict=True):
        wall = images.images[rng.integers(len(images), size=(TILES, TILES))]  # (8, 8, H, W, 3)
        scene = wall.transpose(0, 2, 1, 3, 4).reshape(TILES * height, TILES * width, 3)
        large = (ENLARGED * width, ENLARGED * height)
        scene[rows, columns] = cv2.resize(image, large, interpolation=cv2.INTER_CUBIC)
        yield scene, int(target)


def write_jpegs(images: Images | Iterable[tuple[np.ndarray, int]], folder: Path | str) -> JpegFiles:
    """Write every image as a JPEG file into ``folder``, and the list of them last.

    Args:
        images: images in memory, or pairs of an image ``(H, W, 3)`` uint8 and its target.
    """
    import cv2

    folder, lines = Path(folder), []
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(images, Images):
        images = zip(images.images, images.targets, strict=True)
    for number, (image, target) in enumerate(images):
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
