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


@pytest.mark.parametrize("seed", ["-1", "one", "1.5", "2147483648", "9" * 5000])
def test_bad_seed(monkeypatch, seed):
    monkeypatch.setenv("COURSE_FIRST_SEED", seed)
    with pytest.raises(CourseError, match=r"COURSE_FIRST_SEED.* take 0, 1, 2"):
        load_config()


def test_an_empty_variable_is_as_good_as_none(monkeypatch):
    for name in ("PROFILE", "DATASET", "FIRST_SEED"):
        monkeypatch.setenv(f"COURSE_{name}", "")
    assert load_config() == load_config("quick", dataset="photos", first_seed=0)


def test_a_home_folder_is_written_out(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_config(dataset="~/mine").dataset == str(tmp_path / "mine")


def test_the_home_folder_of_nobody_stays_as_it_is():
    """So that reading the data can say that there are none."""
    assert load_config(dataset="~nobody-at-all/mine").dataset == "~nobody-at-all/mine"


# --- the data set


def test_lessons_run_on_photographs_and_a_gpu_on_all_of_cifar10():
    found = {name: load_config(name).dataset for name in PROFILES}
    assert found == {"smoke": "photos", "quick": "photos", "full": "cifar10"}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("dataset", ["photos", "shapes", "cifar10", "/some/folder"])
@pytest.mark.parametrize("given", ["argument", "environment"])
def test_another_data_set_changes_nothing_else(monkeypatch, profile, dataset, given):
    default = load_config(profile)
    if given == "environment":
        monkeypatch.setenv("COURSE_DATASET", dataset)
        assert load_config(profile) == default.replace(dataset=dataset)
    else:
        assert load_config(profile, dataset=dataset) == default.replace(dataset=dataset)


def test_smoke_is_smaller_than_quick():
    smoke, quick = load_config("smoke"), load_config("quick")
    assert smoke.model == quick.model
    for name in ("num_train", "num_val", "epochs", "batch_size", "num_seeds"):
        assert getattr(smoke, name) < getattr(quick, name)
