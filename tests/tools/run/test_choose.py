import subprocess
from dataclasses import replace

import nbformat
import pytest

from course_tools.run import choose
from course_tools.run.choose import choose_lessons, explain_stale, take_shard
from course_tools.run.key import digest_outputs
from course_utils.errors import CourseError


def git(folder, *arguments):
    person = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *person, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def stored(school, monkeypatch):
    """Four lessons with stored outputs that are fresh, in a repository of git."""
    folder = school.notebooks.parent
    monkeypatch.setattr(choose, "ROOT", folder)
    for number in range(1, 5):
        school.write(f"0{number}_lesson", f"print({number})", time_s=number)
    plan = school.plan("quick")
    for lesson in school.lessons:
        notebook = lesson.read()
        notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text="1\n")]
        notebook.metadata["course"] |= {
            "key": plan.key(lesson),
            "outputs": digest_outputs(notebook),
        }
        nbformat.write(notebook, lesson.path)
    git(folder, "init")
    git(folder, "add", "notebooks")
    git(folder, "commit", "-m", "stored")
    return school


def edit(lesson, change):
    notebook = lesson.read()
    change(notebook)
    nbformat.write(notebook, lesson.path)


def choose_from(school, stale=False, since="", sample=0):
    plan = school.plan("quick")
    chosen = choose_lessons(school.lessons, plan, stale=stale, since=since, sample=sample)
    return {lesson.name[:2]: reason for lesson, reason in chosen.items()}


def test_fresh_outputs_are_not_stale(stored):
    assert choose_from(stored, stale=True, since="HEAD") == {}


def test_code_that_changed_makes_outputs_stale_and_prose_does_not(stored):
    edit(stored.lessons[0], lambda n: n.cells.append(nbformat.v4.new_markdown_cell("prose")))
    edit(stored.lessons[1], lambda n: n.cells[1].update(source="print(22)"))
    found = choose_from(stored, stale=True)
    assert found == {"02": "its outputs are older than what they depend on"}


def test_an_output_edited_by_hand_is_found(stored):
    edit(stored.lessons[2], lambda n: n.cells[1].outputs[0].update(text="2\n"))
    assert choose_from(stored, stale=True) == {"03": "its outputs were edited by hand"}


def test_outputs_without_a_key_are_stale(stored):
    lesson = replace(stored.lessons[0], key="")
    assert "without a key" in explain_stale(lesson, stored.plan("quick"))


def test_a_lesson_stored_anew_has_changed_since_the_base(stored):
    def store_again(notebook):
        notebook.cells[1].source = "print(44)"

    lesson = stored.lessons[3]
    edit(lesson, store_again)
    key = stored.plan("quick").key(lesson)
    edit(lesson, lambda n: n.metadata["course"].update(key=key))
    assert choose_from(stored, stale=True) == {}
    assert choose_from(stored, stale=True, since="HEAD") == {"04": "changed since HEAD"}


def test_a_lesson_that_the_base_lacks_has_changed(stored):
    stored.write("05_new", "print(5)")
    assert choose_from(stored, since="HEAD") == {"05": "changed since HEAD"}


def test_an_unknown_base_is_one_line(stored):
    with pytest.raises(CourseError, match="--since no-such: git knows no such revision") as caught:
        choose_from(stored, since="no-such")
    assert "\n" not in str(caught.value)


def test_a_sample_is_drawn_from_the_rest_by_the_commit(stored, monkeypatch):
    samples = set()
    for commit in "abcdefgh":
        monkeypatch.setattr(choose, "read_commit", lambda commit=commit: commit)
        found = choose_from(stored, sample=2)
        assert found == choose_from(stored, sample=2)
        assert len(found) == 2
        samples |= set(found)
        monkeypatch.setattr(choose, "read_commit", lambda commit=commit: f"{commit}+")
        assert found == choose_from(stored, sample=2), "edits since the commit change nothing"
    assert samples == {"01", "02", "03", "04"}
    assert len(choose_from(stored, sample=99)) == 4


def test_shards_share_all_lessons_evenly(stored):
    lessons = stored.lessons  # of 1, 2, 3 and 4 seconds
    parts = [take_shard(lessons, f"{number}/2") for number in (1, 2)]
    assert sorted(x.name for part in parts for x in part) == [x.name for x in lessons]
    assert {sum(x.time_s for x in part) for part in parts} == {5}
    assert take_shard(lessons, "1/1") == lessons


@pytest.mark.parametrize("shard", ["", "2", "0/2", "3/2", "a/b", "1/2/3"])
def test_a_bad_shard_is_one_line(stored, shard):
    with pytest.raises(CourseError, match="write number and count, like 2/4"):
        take_shard(stored.lessons, shard)
