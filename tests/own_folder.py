"""A small folder of images, as a user may have one."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_images(
    folder: Path,
    classes: tuple[str, ...] = ("cat", "dog"),
    count: int = 12,
    size: tuple[int, int] = (32, 32),
    mode: str = "RGB",
) -> Path:
    """``folder/{train,test}/<class>/<number>.jpg``, noise, ``count`` a class in each split."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in classes:
            (folder / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
                image = Image.fromarray(pixels).convert(mode)
                suffix = "png" if mode == "RGBA" else "jpg"
                image.save(folder / split / name / f"{i}.{suffix}")
    return folder
