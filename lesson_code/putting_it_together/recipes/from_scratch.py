"""The recipe of lesson 12 from random weights, for as many epochs as the profile has."""

from course_utils.config import Config
from course_utils.training.recipes import from_scratch

__all__ = ["recipe"]


def recipe(config: Config) -> dict[str, object]:
    return from_scratch(config, config.epochs, config.batch_size)
