"""A training that takes a second: few images, one epoch."""

import pytest

from course_utils.data import ImageData, load_data
from course_utils.profiles import Config, load_config


@pytest.fixture(scope="session")
def tiny_config() -> Config:
    return load_config("smoke").replace(
        num_train=96, num_val=40, batch_size=16, dataset="shapes", first_seed=0
    )


@pytest.fixture(scope="session")
def tiny_data(tiny_config: Config) -> ImageData:
    return load_data(tiny_config)
