"""Images that resemble the pretraining's less: the same pixels, tiles in another order."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from course_utils.data.image_data import ImageData, Images
from course_utils.errors import CourseError

__all__ = ["shuffle_tiles"]


ORDER_SEED = 0  # one order for every split of every data set


def _shuffle(images: Images, size: int) -> Images:
    n, height, width, channels = images.images.shape
    rows, columns = height // size, width // size
    order = np.random.default_rng(ORDER_SEED).permutation(rows * columns)
    tiles = images.images.reshape(n, rows, size, columns, size, channels).swapaxes(2, 3)
    tiles = tiles.reshape(n, rows * columns, size, size, channels)[:, order]
    tiles = tiles.reshape(n, rows, columns, size, size, channels).swapaxes(2, 3)
    return replace(images, images=tiles.reshape(images.images.shape))


def _shuffle_test(open_test: Callable[[], Images], size: int) -> Images:
    return _shuffle(open_test(), size)


def shuffle_tiles(data: ImageData, size: int) -> ImageData:
    """Cut every image into tiles and reorder them, in one and the same way for all images.

    Edges, colours and noise stay what they were; whatever is larger than a tile is another
    picture. All splits are treated alike, and targets stay.

    Args:
        size: of a tile's side in pixels, a divisor of the images' height and width; as large as
            the image it changes nothing.

    Raises:
        CourseError: when tiles of that size do not fill an image.
    """
    height, width = data.train.images.shape[1:3]
    if size < 1 or height % size or width % size:
        raise CourseError(f"tiles of {size} pixels do not fill {height} × {width}: use a divisor")
    return replace(
        data,
        name=f"{data.name}, shuffled tiles",
        train=_shuffle(data.train, size),
        val=_shuffle(data.val, size),
        open_test=partial(_shuffle_test, data.open_test, size),  # a lambda could not be pickled
    )
