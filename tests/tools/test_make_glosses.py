"""Definitions of a small WordNet: the same bytes each time, and nothing alike in two splits."""

import itertools
import random
import re

import pytest

from course_utils.data.glosses import describe_glosses, open_glosses, read_split
from course_utils.errors import CourseError
from scripts.make_glosses import (
    CLASSES,
    FUNCTION_WORDS,
    Gloss,
    drop_near_duplicates,
    main,
    make_glosses,
    read_glosses,
)

FEW = {"test": 2, "train": 3}
LICENCE = "  1 This software and database is being provided to you\n"


def write_wordnet(folder, **files):
    """Six definitions of each class, with words of their own; others in ``files``."""
    rows = [
        f"{number:08d} {kind} n 01 word 0 000 | a {name} of the sort{number} and form{number}; "
        f'"an example of {name}"  '
        for kind, name in CLASSES.items()
        for number in range(6)
    ]
    content = {"noun": rows, "verb": [], "adj": [], "adv": []}
    for name, more in files.items():
        content[name] = content[name] + [f"1 00 x 01 word 0 000 | {text}  " for text in more]
    for name, lines in content.items():
        text = LICENCE + "".join(f"{line}\n" for line in lines)
        (folder / f"data.{name}").write_text(text)
    return folder


@pytest.fixture
def wordnet(tmp_path):
    (tmp_path / "wordnet").mkdir()
    verbs = ['move with great speed; "he ran"', "go", "eat a meal at noon", "at noon eat a meal"]
    return write_wordnet(tmp_path / "wordnet", verb=verbs)


def test_the_same_files_give_the_same_bytes(wordnet, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    about = make_glosses(wordnet, first, FEW)
    assert make_glosses(wordnet, second, FEW) == about == describe_glosses(first)
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes()


def test_splits_are_balanced_and_the_rest_has_no_kind(wordnet, tmp_path):
    make_glosses(wordnet, tmp_path, FEW)
    found = {}
    for split, count in FEW.items():
        names, targets, texts = open_glosses(split, tmp_path)
        assert names == tuple(sorted(CLASSES.values()))
        assert targets.tolist() == [*range(10)] * count
        assert all(names[target] in text for target, text in zip(targets, texts, strict=True))
        found[split] = texts
    others = read_split("pretraining", tmp_path)
    assert {kind for kind, _ in others} == {""}
    found["pretraining"] = [text for _, text in others]
    everything = list(itertools.chain(*found.values()))
    assert len(set(everything)) == len(everything) == 60 + 2  # "go" is too short, one meal is left
    assert "move with great speed" in everything
    assert not any('"' in text for text in everything)


def test_near_duplicates_are_those_that_a_comparison_of_all_pairs_finds():
    rng = random.Random(0)
    words = [f"w{number}" for number in range(12)]
    texts = [" ".join(rng.choices(words, k=rng.randint(1, 8))) for _ in range(300)]

    def alike(one, other):
        one, other = set(one.split()), set(other.split())
        return len(one & other) / len(one | other) >= 0.8

    kept = []
    for text in texts:
        if not any(alike(text, other) for other in kept):
            kept.append(text)
    assert [gloss.text for gloss in drop_near_duplicates([Gloss("", t) for t in texts])] == kept
    assert 50 < len(kept) < 250


def test_words_without_meaning_do_not_make_texts_differ():
    glosses = [Gloss("", text) for text in ("a tree of the north", "one tree in north", "of the")]
    assert [gloss.text for gloss in drop_near_duplicates(glosses)] == [
        "a tree of the north",
        "of the",
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.verb", None, "data.verb is missing or no text: install wordnet-base"),
        ("data.verb", b"\xff\xfe", "data.verb is missing or no text"),
        ("data.verb", b"00 29 v without a bar\n", "data.verb, line 1: no definition"),
        ("data.noun", LICENCE.encode(), "a class has fewer than 200 definitions"),
    ],
)
def test_other_files_are_refused_in_one_line(wordnet, tmp_path, capsys, name, content, message):
    (wordnet / name).unlink()
    if content is not None:
        (wordnet / name).write_bytes(content)
    assert main([str(wordnet), "--into", str(tmp_path / "made")]) == 1
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "made").exists()


def test_a_damaged_or_missing_file_is_named(wordnet, tmp_path):
    make_glosses(wordnet, tmp_path, FEW)
    (tmp_path / "test.tsv.xz").write_bytes(b"other")
    with pytest.raises(CourseError, match=r"test\.tsv\.xz is damaged \(wrong checksum\): restore"):
        read_split("test", tmp_path)
    (tmp_path / "train.tsv.xz").unlink()
    with pytest.raises(CourseError, match=r"train\.tsv\.xz is missing: restore it with `git"):
        read_split("train", tmp_path)
    (tmp_path / "glosses.json").write_text("{}")
    with pytest.raises(CourseError, match=r"glosses\.json is missing or damaged"):
        open_glosses("test", tmp_path)


def test_examples_are_not_part_of_a_definition(wordnet):
    texts = [gloss.text for gloss in read_glosses(wordnet)]
    assert texts[0] == "a act of the sort0 and form0"
    assert texts[-4:] == ["move with great speed", "go", "eat a meal at noon", "at noon eat a meal"]


def test_the_definitions_of_the_course_are_in_one_split_alone():
    def list_words(text):
        return frozenset(re.findall(r"\w+", text.lower())) - FUNCTION_WORDS

    splits = {
        split: [text for _, text in read_split(split)] for split in ("train", "test", "pretraining")
    }
    assert [len(splits[split]) for split in ("train", "test")] == [15000, 2000]
    found = [{list_words(text) for text in texts} for texts in splits.values()]
    assert not any(one & other for one, other in itertools.combinations(found, 2))
    assert all(len(text.split()) >= 3 for texts in splits.values() for text in texts)


@pytest.mark.nightly
def test_no_two_definitions_of_the_course_are_nearly_the_same():
    glosses = [
        Gloss(*pair) for split in ("train", "test", "pretraining") for pair in read_split(split)
    ]
    assert drop_near_duplicates(glosses) == glosses
