"""`load_data`: the data set of a config, of images or of texts."""

import os
from typing import Any

from course_utils.config import Config
from course_utils.data.image_data import ImageData, load_images
from course_utils.data.own_texts import is_text
from course_utils.data.text_data import TextData, load_texts
from course_utils.processes.inherited import forget_cluster
from course_utils.processes.threads import use_threads

__all__ = ["Data", "load_data"]

Data = ImageData | TextData


def load_data(config: Config) -> Any:
    """Read the data set of ``config`` and split it, once and stratified, into train and validation.

    The result can be pickled, so that a training can be sent to another process. Every run begins
    here, so here the process is prepared for it: see `use_threads` and `forget_cluster`.

    Returns:
        `ImageData`, or `TextData` where the data set is of texts.

    Raises:
        CourseError: an unknown data set, or one that cannot be used.
    """
    forget_cluster(os.environ)
    use_threads()
    return load_texts(config) if is_text(config.dataset) else load_images(config)
