import dataclasses

import pytest

from course_utils.config import PROFILES, load_config
from course_utils.data.shape_outlines import SHAPE_SETS
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


@pytest.mark.parametrize("seed", ["-1", "one", "1.5", "2147483648", "9" * 5000])
def test_bad_seed(monkeypatch, seed):
    monkeypatch.setenv("COURSE_FIRST_SEED", seed)
    with pytest.raises(CourseError, match=r"COURSE_FIRST_SEED.* take 0, 1, 2"):
        load_config()


def test_an_empty_variable_is_as_good_as_none(monkeypatch):  # a33
    for name in ("PROFILE", "DATASET", "FIRST_SEED"):
        monkeypatch.setenv(f"COURSE_{name}", "")
    assert load_config() == load_config("quick", dataset="shapes", first_seed=0)


def test_a_home_folder_is_written_out(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_config(dataset="~/mine").dataset == str(tmp_path / "mine")


def test_the_home_folder_of_nobody_stays_as_it_is():
    """So that reading the data can say that there are none."""
    assert load_config(dataset="~nobody-at-all/mine").dataset == "~nobody-at-all/mine"


# --- settings follow the data set


def sizes(config):
    return (config.num_train, config.num_val, config.epochs, config.batch_size, config.peak_lr)


def test_the_default_is_still_shapes_with_its_own_settings():
    assert load_config().dataset == load_config("smoke").dataset == "shapes"
    assert sizes(load_config("quick", dataset="shapes")) == (1000, 1000, 9, 32, 1e-3)
    assert sizes(load_config("smoke", dataset="shapes_source")) == (320, 200, 1, 32, 1e-3)


@pytest.mark.parametrize("dataset", ["photos", "cifar10", "/some/folder"])
@pytest.mark.parametrize("given", ["argument", "environment"])
def test_photographs_have_settings_of_their_own(monkeypatch, dataset, given):
    if given == "environment":
        monkeypatch.setenv("COURSE_DATASET", dataset)
        dataset = ""
    assert sizes(load_config("quick", dataset=dataset)) == (1000, 1000, 8, 64, 1e-3)
    assert sizes(load_config("smoke", dataset=dataset)) == (320, 200, 1, 32, 1e-3)


def test_the_argument_beats_the_environment_in_the_settings_too(monkeypatch):
    monkeypatch.setenv("COURSE_DATASET", "photos")
    assert load_config("quick", dataset="shapes") == PROFILES["quick"].replace(progress=True)


def test_full_is_the_same_on_every_data_set():
    full = load_config("full")
    assert load_config("full", dataset="photos") == full.replace(dataset="photos")


def test_all_drawn_data_sets_have_the_settings_of_shapes():
    for name in SHAPE_SETS:
        assert load_config("quick", dataset=name).model == PROFILES["quick"].model


def test_a_lesson_may_have_a_default_of_its_own_and_a_person_the_last_word(monkeypatch):
    assert load_config("quick", default="photos").dataset == "photos"
    assert load_config("quick", default="photos").batch_size == 64
    assert load_config("quick", dataset="shapes", default="photos").dataset == "shapes"
    assert load_config("full", default="photos").dataset == "cifar10"
    monkeypatch.setenv("COURSE_DATASET", "/some/folder")
    assert load_config("quick", default="photos").dataset == "/some/folder"
