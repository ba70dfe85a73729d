import nbformat
import pytest

from course_tools.run import changes, choose
from tests.tools.run.test_choose import edit, git


@pytest.fixture
def judge(school, monkeypatch, capsys):
    """A function that says what has changed since the last commit: ``text`` or ``code``."""
    folder = school.notebooks.parent
    monkeypatch.setattr(changes, "ROOT", folder)
    monkeypatch.setattr(choose, "ROOT", folder)  # where git is run
    path = school.write("01_one", "print(1)")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_markdown_cell("A sentence."))
    nbformat.write(notebook, path)
    for name in ("README.md", "module.py"):
        (folder / name).write_text("first\n")
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "base")

    def judge():
        assert changes.main(["HEAD"]) == 0
        return capsys.readouterr().out.strip()

    return judge


def change_sentence(notebook):
    notebook.cells[-1].source = "Another sentence."


def change_code(notebook):
    notebook.cells[1].source = "print(2)"


def change_output(notebook):
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text="2\n")]


def change_metadata(notebook):
    notebook.metadata["course"]["minutes"] = 77


def add_cell(notebook):
    notebook.cells.append(nbformat.v4.new_markdown_cell("One more."))


def test_nothing_has_changed(judge):
    assert judge() == "text"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (change_sentence, "text"),
        (change_code, "lessons 01_one"),
        (change_output, "lessons 01_one"),
        (change_metadata, "lessons 01_one"),
        (add_cell, "lessons 01_one"),
    ],
)
def test_of_a_notebook_only_its_sentences_are_text(judge, school, change, expected):
    edit(school.lessons[0], change)
    assert judge() == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("README.md", "text"), ("new.md", "text"), ("module.py", "code")]
)
def test_only_markdown_files_are_text(judge, school, name, expected):
    (school.notebooks.parent / name).write_text("second\n")
    assert judge() == expected


def test_one_file_of_code_among_texts_is_code(judge, school):
    (school.notebooks.parent / "README.md").write_text("second\n")
    (school.notebooks.parent / "new.py").write_text("x = 1\n")
    assert judge() == "code"


def write_file(school, name):
    path = school.notebooks.parent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("new\n")


def test_checks_and_technique_belong_to_their_lesson(judge, school):
    for name in ("lesson_code/one/checks.py", "lesson_code/one/technique.py", "data/new.md"):
        write_file(school, name)
        write_file(school, "data/results/one_2cores.json")
    assert judge() == "lessons 01_one"


@pytest.mark.parametrize(
    "name",
    [
        "course_utils/checking/checking.py",
        "lesson_code/two/checks.py",
        "course_utils/one.py",
        "tests/combinations/record.py",
        "data/results/one.py",
        "scripts/one.py",
        "data/photos/one.json",
    ],
)
def test_what_belongs_to_no_lesson_is_code(judge, school, name):
    edit(school.lessons[0], change_code)
    write_file(school, name)
    assert judge() == "code"


def test_a_stored_result_alone_is_code(judge, school):
    write_file(school, "data/results/one_2cores.json")
    assert judge() == "code"


def test_two_lessons_are_named_in_order(judge, school):
    school.write("02_two", "print(2)")
    edit(school.lessons[0], change_code)
    assert judge() == "lessons 01_one 02_two"


def test_a_deleted_notebook_is_code_and_a_damaged_one_is_its_lesson(judge, school):
    path = school.lessons[0].path
    path.write_text("{")
    assert judge() == "lessons 01_one"
    path.unlink()
    assert judge() == "code"
