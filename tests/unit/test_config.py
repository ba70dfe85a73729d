import dataclasses

import pytest

from course_utils.config import PROFILES, load_config
from course_utils.errors import CourseError


def test_default_is_quick():
    assert load_config().profile == "quick"


def test_argument_beats_environment(monkeypatch):
    monkeypatch.setenv("COURSE_PROFILE", "full")
    monkeypatch.setenv("COURSE_DATASET", "/some/folder")
    monkeypatch.setenv("COURSE_FIRST_SEED", "7")
    assert load_config().profile == "full"
    config = load_config("smoke", dataset="shapes", first_seed=2)
    assert (config.profile, config.dataset, config.first_seed) == ("smoke", "shapes", 2)
    assert load_config().dataset == "/some/folder"
    assert load_config("quick").seeds == (7, 8, 9)


def test_config_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        load_config().epochs = 3


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_describe_themselves(name):
    assert f"profile {name}" in load_config(name).describe()


def test_unknown_profile_names_the_known_ones():
    with pytest.raises(CourseError, match="choose from smoke, quick, full"):
        load_config("fast")


@pytest.mark.parametrize("seed", ["-1", "one", "1.5", "4294967296"])
def test_bad_seed(monkeypatch, seed):
    monkeypatch.setenv("COURSE_FIRST_SEED", seed)
    with pytest.raises(CourseError, match="take 0, 1, 2"):
        load_config()
