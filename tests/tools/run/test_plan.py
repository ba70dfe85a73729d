from dataclasses import replace
from pathlib import Path

import pytest

from course_utils.config import load_config
from course_utils.tools.run.lessons import find_lessons
from course_utils.tools.run.plan import Plan


@pytest.fixture(scope="module")
def photographed():
    """A lesson that is written for photographs."""
    return replace(find_lessons()[0], dataset="photos")


def make_plan(config, **options):
    return Plan(config, Path("build"), 60, **options)


def test_a_lesson_runs_on_its_own_data_set_unless_a_person_chose_one(photographed):
    default = make_plan(load_config("quick"))
    assert default.config_of(photographed).dataset == "photos"
    assert default.is_on_own_data(photographed)
    for config in (load_config("quick", dataset="shapes"), load_config("quick", dataset="/mine")):
        chosen = make_plan(config, dataset_chosen=True)
        assert chosen.config_of(photographed) == config
        assert not chosen.is_on_own_data(photographed)


def test_the_profile_full_has_one_data_set_for_all(photographed):
    assert make_plan(load_config("full")).config_of(photographed).dataset == "cifar10"


def test_the_data_set_is_part_of_the_key(photographed):
    plan = make_plan(load_config("quick"))
    assert plan.key(photographed) != plan.key(replace(photographed, dataset="shapes"))


def test_lessons_and_their_metadata_agree_on_the_data_set():
    """A person who opens the notebook gets the data set that `course run` uses."""
    for lesson in find_lessons():
        source = "\n".join(cell.source for cell in lesson.read().cells)
        assert ('default="photos"' in source) == (lesson.dataset == "photos"), lesson.name
