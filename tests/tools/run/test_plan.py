from dataclasses import replace
from pathlib import Path

import pytest

from course_tools.run.plan import Plan
from course_utils.config import PROFILES, load_config
from tests.tools.toy_lessons import write_course


def make_plan(config):
    return Plan(config, Path("build"), 60)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_run_on_the_profiles_data_has_a_folder_called_as_the_profile(profile):
    default = load_config(profile)
    for config in (default, load_config(profile, dataset=default.dataset)):
        assert make_plan(config).is_on_default_data
        assert make_plan(config).folder == Path("build") / profile


@pytest.mark.parametrize("dataset", ["shapes", "/mine"])
def test_a_run_on_other_data_is_told_apart(dataset):
    plan = make_plan(load_config("quick", dataset=dataset))
    assert not plan.is_on_default_data
    assert plan.folder.name.startswith("quick-")


def test_the_data_set_is_part_of_the_key(tmp_path):
    plan = make_plan(load_config("quick"))
    other = replace(plan, config=plan.config.replace(dataset="shapes"))
    lesson = write_course(tmp_path)[0]
    assert plan.key(lesson) != other.key(lesson)
