import pytest

from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.data.own_texts import FEWEST, is_text, open_texts
from course_utils.errors import CourseError

GOOD = 40 * [("good, really", "praise"), ('"so" bad', "blame")]


def write_csv(path, rows=GOOD, head="text,label"):
    lines = [f'"{text.replace(chr(34), chr(34) * 2)}",{label}' for text, label in rows]
    path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return path


def write_folder(root, splits=("train", "test"), classes=("blame", "praise"), count=40):
    for split in splits:
        for label in classes:
            folder = root / split / label
            folder.mkdir(parents=True)
            for number in range(count):
                (folder / f"{number}.txt").write_text(f"{label} in words {number}")
    return root


def load(path):
    return load_data(load_config("smoke", dataset=str(path)))


def test_a_csv_file(tmp_path):
    path = write_csv(tmp_path / "mine.csv")
    assert is_text(str(path))
    found = open_texts(str(path))
    assert found.class_names == ("blame", "praise")
    assert found.texts[:2] == ["good, really", '"so" bad']
    assert found.targets[:2].tolist() == [1, 0]
    assert len(load(path).train) > 40


def test_columns_in_another_order_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes("\ufefflabel,more,text\nyes,1,an apple\nno,2,a pear\n".encode())
    assert open_texts(str(path)).texts == ["an apple", "a pear"]


def test_a_csv_file_has_no_test_split(tmp_path):
    data = load(write_csv(tmp_path / "mine.csv"))
    with pytest.raises(CourseError, match=r"no test split: put train.csv and test.csv into"):
        data.open_test()


def test_two_csv_files_in_a_folder(tmp_path):
    write_csv(tmp_path / "train.csv")
    write_csv(tmp_path / "test.csv", [("good", "praise")])
    test = load(tmp_path).open_test()
    assert test.targets.tolist() == [1]  # as in training, although it is the only class here


def test_a_class_that_only_the_test_split_has(tmp_path):
    write_csv(tmp_path / "train.csv")
    write_csv(tmp_path / "test.csv", [("well", "unsure")])
    with pytest.raises(CourseError, match="training has no text of 'unsure': add some"):
        open_texts(str(tmp_path), "test")


def test_a_folder_of_text_files(tmp_path):
    write_folder(tmp_path)
    assert is_text(str(tmp_path))
    data = load(tmp_path)
    assert data.class_names == ("blame", "praise")
    assert len(data.open_test()) == 80


def test_a_folder_of_images_is_none(tmp_path):
    folder = tmp_path / "train" / "cat"
    folder.mkdir(parents=True)
    assert not is_text(str(tmp_path))
    (folder / "notes.txt").write_text("where the pictures come from")
    (folder / "1.JPG").touch()
    assert not is_text(str(tmp_path))


def test_a_named_data_set_of_images_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(write_folder(tmp_path / "photos").parent)
    assert not is_text("photos")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no column label and no column text: its first line is text,label"),
        (b"words,label\n", "no column text"),
        (b"text,label\n", "has no text: it needs texts of two classes"),
        (b"text,label\na,x\nb,x\n", "only the label 'x'"),
        (b"text,label\na,\n", "line 2, has no label: fill it in"),
        (b"text,label\n,x\n", "line 2, has no text: fill it in"),
        (b"text,label\na\n", "line 2, has no label"),
        ("text,label\nétude,x\n".encode("latin-1"), "save it as CSV in UTF-8"),
        (b"text,label\n" + b"a" * 1_000_000 + b",x\n", "line 2, has 1,000,000 characters"),
        (b"text,label\na\0b,x\nc,y\n" * 2, "texts"),
    ],
)
def test_a_bad_csv_file_is_one_line(tmp_path, content, said):
    path = tmp_path / "mine.csv"
    path.write_bytes(content)
    with pytest.raises(CourseError, match=said) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_too_few_texts(tmp_path):
    with pytest.raises(CourseError, match=f"has 4 training texts, .* need {FEWEST} or more"):
        load(write_csv(tmp_path / "mine.csv", GOOD[:4]))


def test_a_missing_csv_file(tmp_path):
    with pytest.raises(CourseError, match=r"there is no .*gone\.csv: give it the columns"):
        load(tmp_path / "gone.csv")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is empty: write a text"), (b"\xe9", "save it in UTF-8"), (b"a" * 200_000, "200,000")],
)
def test_a_bad_text_file_is_one_line(tmp_path, content, said):
    write_folder(tmp_path)
    (tmp_path / "train" / "blame" / "7.txt").write_bytes(content)
    with pytest.raises(CourseError, match=said):
        load(tmp_path)


def test_a_folder_without_a_test_split(tmp_path):
    data = load(write_folder(tmp_path, splits=("train",)))
    with pytest.raises(CourseError, match="has no folder test/"):
        data.open_test()
