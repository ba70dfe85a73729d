"""Make ``data/photos``: contact sheets of CIFAR-10 photographs, and a JSON that describes them.

    python -m scripts.make_photos FOLDER

``FOLDER`` is CIFAR-10 as files: ``FOLDER/{train,test}/<class>/<name>.jpg``, 32×32 pixels each.
Every class and split gets one sheet. The same folder and the same Pillow give the same bytes.
"""

import argparse
import hashlib
import io
import json
import math
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, features

from course_utils.data.photos import DESCRIPTION, PHOTOS, cut_sheet
from course_utils.data.shapes import IMAGE_SIZE
from course_utils.errors import CourseError
from course_utils.files import write_atomically

__all__ = ["choose_files", "encode_sheet", "main", "make_photos", "mean_squared_error", "psnr_db"]

SOURCE = (
    "CIFAR-10: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009; "
    "as JPEG files of quality 75"
)
SEED = 0
PER_CLASS = {"train": 800, "test": 200}
COLUMNS = {"train": 40, "test": 20}
QUALITY = 95
GREY = 128  # of the places in the last row that no photograph fills
PILLOW_ERRORS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


def _read_photograph(path: Path) -> np.ndarray:
    """One photograph ``(32, 32, 3)`` uint8."""
    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
    except PILLOW_ERRORS as error:
        raise CourseError(f"cannot read {path}: unpack the archive again ({error})") from None
    if pixels.shape != (IMAGE_SIZE, IMAGE_SIZE, 3):
        height, width, _ = pixels.shape
        raise CourseError(f"{path} is {width}×{height}: give photographs of 32×32 pixels")
    return pixels


def _find_classes(folder: Path) -> list[str]:
    """The sorted names of the classes, the same in both splits."""
    layout = f"expected {folder}/{{train,test}}/<class>/<name>.jpg"
    found = {}
    for split in PER_CLASS:
        if not (folder / split).is_dir():
            raise CourseError(f"no folder {folder / split}: {layout}")
        found[split] = sorted(path.name for path in (folder / split).iterdir() if path.is_dir())
    if not found["train"] or found["train"] != found["test"]:
        raise CourseError(f"{folder} has not the same classes in train and test: {layout}")
    return found["train"]


def choose_files(folder: Path, seed: int, per_class: dict[str, int]) -> dict[str, list[Path]]:
    """Choose ``per_class[split]`` files of every class at random, without replacement.

    Returns:
        The name of every sheet, ``<split>_<class>``, to its files in the order of its tiles.

    Raises:
        CourseError: another layout, or a class with too few files.
    """
    classes, rng, chosen = _find_classes(folder), np.random.default_rng(seed), {}
    for split, count in per_class.items():
        for name in classes:
            files = sorted((folder / split / name).glob("*.jpg"))
            if len(files) < count:
                raise CourseError(
                    f"{folder / split / name} has {len(files)} JPEG files: {count} are needed"
                )
            chosen[f"{split}_{name}"] = [files[i] for i in rng.permutation(len(files))[:count]]
    return chosen


def encode_sheet(tiles: np.ndarray, columns: int) -> bytes:
    """``tiles`` ``(N, 32, 32, 3)`` uint8, row by row on one sheet, as a JPEG file.

    Colours are stored at full resolution (4:4:4). A block of JPEG has 8×8 pixels then, and 32 is
    a multiple of 8, so no tile changes its neighbours.
    """
    rows = -(-len(tiles) // columns)
    grid = np.full((rows * columns, *tiles.shape[1:]), GREY, np.uint8)
    grid[: len(tiles)] = tiles
    sheet = grid.reshape(rows, columns, IMAGE_SIZE, IMAGE_SIZE, 3).swapaxes(1, 2)
    image = Image.fromarray(sheet.reshape(rows * IMAGE_SIZE, columns * IMAGE_SIZE, 3))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=QUALITY, subsampling="4:4:4", optimize=True)
    return file.getvalue()


def mean_squared_error(original: np.ndarray, decoded: np.ndarray) -> float:
    """Mean over all pixels and channels of uint8 images of one shape; 0 where they are equal."""
    return float(np.mean((original.astype(np.float32) - decoded) ** 2, dtype=np.float64))


def psnr_db(error: float) -> float:
    """Peak signal-to-noise ratio in decibels, ``10 log10(255² / error)``.

    ``error`` is a `mean_squared_error`; without any error the ratio is infinite.
    """
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)


def _round_down(ratio_db: float) -> float:
    """To hundredths, never upwards: what is stated is reached."""
    return ratio_db if math.isinf(ratio_db) else math.floor(100 * ratio_db) / 100


def _refuse_duplicates(chosen: dict[str, list[Path]], tiles: dict[str, np.ndarray]) -> None:
    seen: dict[bytes, Path] = {}
    for name, files in chosen.items():
        for path, tile in zip(files, tiles[name], strict=True):
            earlier = seen.setdefault(tile.tobytes(), path)
            if earlier != path:
                raise CourseError(f"{earlier} and {path} are the same photograph: delete one")


def _read_versions() -> dict[str, str | None]:
    """Versions of what decides the bytes of the sheets."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pillow": PIL.__version__,
        "libjpeg-turbo": features.version("libjpeg_turbo"),
    }


def make_photos(
    folder: Path,
    output: Path = PHOTOS,
    *,
    seed: int = SEED,
    per_class: dict[str, int] = PER_CLASS,
) -> dict:
    """Write the sheets and their description into ``output``, and return the description.

    Nothing is written before every sheet is encoded.

    Args:
        folder: the photographs, as the module says.
        output: the folder to write to.
        seed: of the choice.
        per_class: split to number of photographs of each class.

    Raises:
        CourseError: a folder of another layout, too few photographs, one that cannot be read, one
            of another size, or one that is there twice.
    """
    chosen = choose_files(folder, seed, per_class)
    tiles = {name: np.stack([_read_photograph(p) for p in files]) for name, files in chosen.items()}
    _refuse_duplicates(chosen, tiles)
    contents, sheets = {}, {}
    errors: dict[str, list[float]] = {split: [] for split in per_class}
    for name, files in chosen.items():
        split = name.partition("_")[0]
        content = encode_sheet(tiles[name], COLUMNS[split])
        decoded = cut_sheet(content, len(files), COLUMNS[split])
        errors[split].append(mean_squared_error(tiles[name], decoded))
        contents[name] = content
        sheets[name] = {
            "sha256": hashlib.sha256(content).hexdigest(),
            "bytes": len(content),
            "psnr_db": _round_down(psnr_db(errors[split][-1])),
            "files": " ".join(path.stem for path in files),  # in the order of the tiles
        }
    about = {
        "command": f"python -m scripts.make_photos {folder.resolve().name}",
        "source": SOURCE,
        "seed": seed,
        "classes": [name.removeprefix("test_") for name in chosen if name.startswith("test_")],
        "tiles": per_class,
        "columns": COLUMNS,
        "format": f"JPEG, quality {QUALITY}, 4:4:4, optimised",
        "psnr_db": {  # all sheets of a split are of one size, so their errors have equal weight
            split: _round_down(psnr_db(float(np.mean(found)))) for split, found in errors.items()
        },
        "versions": _read_versions(),
        "sheets": sheets,
    }
    for name, content in contents.items():
        write_atomically(output / f"{name}.jpg", content)
    write_atomically(output / DESCRIPTION, json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    return about


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the sheets of the folder on the command line; a mistake is one line and status 2."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.make_photos",
        description="Make data/photos from CIFAR-10 as files.",
    )
    parser.add_argument("folder", type=Path, help="with {train,test}/<class>/<name>.jpg")
    parser.add_argument("--output", type=Path, default=PHOTOS, help="folder to write to")
    asked = parser.parse_args(arguments)
    try:
        about = make_photos(asked.folder, asked.output)
    except (CourseError, OSError) as error:
        print(f"make_photos: {error}", file=sys.stderr)
        sys.exit(2)
    size = sum(sheet["bytes"] for sheet in about["sheets"].values())
    psnr = ", ".join(f"{split} {value} dB" for split, value in about["psnr_db"].items())
    print(f"{len(about['sheets'])} sheets, {size / 2**20:.2f} MiB, PSNR {psnr} → {asked.output}")


if __name__ == "__main__":
    main()
