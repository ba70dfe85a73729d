"""Make ``data/text``: definitions of WordNet with their kinds, for a classification of texts.

    python -m scripts.make_glosses FOLDER

``FOLDER`` has WordNet's ``data.noun``, ``data.verb``, ``data.adj`` and ``data.adv``; Debian's
package ``wordnet-base`` brings them. The same files give the same bytes.
"""

import argparse
import hashlib
import json
import lzma
import math
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from course_utils.data.glosses import DESCRIPTION, GLOSSES, SPLITS
from course_utils.data.tokens import TOKENIZER, make_tokenizer
from course_utils.errors import CourseError
from course_utils.files import write_atomically

__all__ = ["Gloss", "drop_near_duplicates", "main", "make_glosses", "read_glosses"]

SOURCE = "WordNet 3.0, Princeton University, 2006 (Debian's package wordnet-base)"
CLASSES = {  # WordNet's numbers of nouns' kinds
    "04": "act",
    "05": "animal",
    "06": "artifact",
    "08": "body",
    "09": "cognition",
    "13": "food",
    "15": "location",
    "18": "person",
    "20": "plant",
    "27": "substance",
}
WORD_CLASSES = ("noun", "verb", "adj", "adv")
PER_CLASS = {"test": 200, "train": 1500}
SEED = 0
VOCABULARY = 4096  # tokens
FEWEST_WORDS = 3
SIMILAR = 0.8  # of the words in either definition are in both
FREQUENT = """
a an and any are as at be been being by for from has have having in into is it its of on or one
other some something someone such that the their them to used usually very was were which who
whose with without
"""
FUNCTION_WORDS = frozenset(FREQUENT.split())


class Gloss(NamedTuple):
    """A definition: ``kind`` is the name of its class, or empty, where it has none of the ten."""

    kind: str
    text: str


def read_glosses(folder: Path) -> Iterator[Gloss]:
    """All definitions of WordNet in their order, without the examples that follow them.

    Raises:
        CourseError: a file is missing, or is not one of WordNet's.
    """
    for name in WORD_CLASSES:
        path = folder / f"data.{name}"
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            raise CourseError(
                f"{path} is missing or no text: install wordnet-base, and give /usr/share/wordnet"
            ) from None
        for number, line in enumerate(lines, 1):
            if line.startswith("  "):  # the licence
                continue
            fields, bar, gloss = line.partition(" | ")
            if not bar:
                raise CourseError(f"{path}, line {number}: no definition: take WordNet's own file")
            kind = CLASSES.get(fields.split()[1], "") if name == "noun" else ""
            text = re.split(r'[;:,]?\s+"', gloss.strip(), maxsplit=1)[0].strip(" ;:")
            yield Gloss(kind, " ".join(text.split()))


def _list_content_words(text: str) -> frozenset[str]:
    """The words that carry the meaning, in lower case; all words where none does."""
    words = frozenset(re.findall(r"\w+", text.lower()))
    return words - FUNCTION_WORDS or words


def drop_near_duplicates(glosses: Sequence[Gloss], similar: float = SIMILAR) -> list[Gloss]:
    """Those that resemble no earlier one: fewer than ``similar`` of both's content words agree.

    Two sets with a Jaccard index of t or more share one of the rarest ``|x| - ⌈t |x|⌉ + 1`` words
    of each (S. Chaudhuri et al., A Primitive Operator for Similarity Joins, 2006). So a text is
    compared only with the few that have such a word in common.
    """
    sets = [_list_content_words(gloss.text) for gloss in glosses]
    frequency = Counter(word for words in sets for word in words)
    kept: list[Gloss] = []
    by_word: defaultdict[str, list[frozenset[str]]] = defaultdict(list)
    for gloss, words in zip(glosses, sets, strict=True):
        rarest = sorted(words, key=lambda word: (frequency[word], word))
        rarest = rarest[: len(words) - math.ceil(similar * len(words)) + 1]
        others = (other for word in rarest for other in by_word[word])
        if any(len(words & other) >= similar * len(words | other) for other in others):
            continue
        kept.append(gloss)
        for word in rarest:
            by_word[word].append(words)
    return kept


def _split(glosses: Sequence[Gloss], per_class: dict[str, int]) -> dict[str, list[Gloss]]:
    """The splits: in each run of ten of ``test`` and ``train`` is one definition of every class.

    What is left is for pretraining, without its kind.

    Raises:
        CourseError: a class has too few definitions.
    """
    by_kind: defaultdict[str, list[Gloss]] = defaultdict(list)
    for gloss in glosses:
        by_kind[gloss.kind].append(gloss)
    kinds, splits, begin = sorted(CLASSES.values()), {}, 0
    for split, count in per_class.items():
        parts = [by_kind[kind][begin : begin + count] for kind in kinds]
        begin += count
        if min(map(len, parts)) < count:
            raise CourseError(f"a class has fewer than {begin} definitions: take WordNet 3.0")
        splits[split] = [gloss for row in zip(*parts, strict=True) for gloss in row]
    taken = {gloss for part in splits.values() for gloss in part}
    others = [Gloss("", gloss.text) for gloss in glosses if gloss not in taken]
    return splits | {"pretraining": others}


def make_glosses(folder: Path, target: Path, per_class: dict[str, int] | None = None) -> dict:
    """Write the splits and their description into ``target``; returns the description.

    Args:
        folder: with WordNet's files.
        target: a folder; it is made.
        per_class: definitions of each class in ``test`` and ``train``; None: ``PER_CLASS``.

    Raises:
        CourseError: WordNet's files are missing or too small, or ``target`` cannot be written.
    """
    found = list(read_glosses(folder))
    long = [gloss for gloss in found if len(gloss.text.split()) >= FEWEST_WORDS]
    random.Random(SEED).shuffle(long)
    long.sort(key=lambda gloss: not gloss.kind)  # of two alike, the one with a class stays
    kept = drop_near_duplicates(long)
    splits = _split(kept, per_class or PER_CLASS)
    about = {
        "command": "python -m scripts.make_glosses /usr/share/wordnet",
        "source": SOURCE,
        "licence": "WordNet 3.0 licence, see LICENSE-wordnet",
        "seed": SEED,
        "classes": sorted(CLASSES.values()),
        "definitions": {
            "in WordNet": len(found),
            f"with {FEWEST_WORDS} words or more": len(long),
            f"without near-duplicates (Jaccard index of content words ≥ {SIMILAR})": len(kept),
        },
        "splits": {},
    }
    for split in SPLITS:
        lines = [f"{gloss.kind}\t{gloss.text}\n" for gloss in splits[split]]
        content = lzma.compress("".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME)
        digest = hashlib.sha256(content).hexdigest()
        about["splits"][split] = {"count": len(lines), "bytes": len(content), "sha256": digest}
        write_atomically(target / f"{split}.tsv.xz", content)
    tokenizer = make_tokenizer([gloss.text for gloss in splits["pretraining"]], VOCABULARY)
    content = tokenizer.to_str().encode()
    digest = hashlib.sha256(content).hexdigest()
    about["tokenizer"] = {"tokens": tokenizer.get_vocab_size(), "sha256": digest}
    write_atomically(target / TOKENIZER, content)
    write_atomically(target / DESCRIPTION, json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    return about


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="with data.noun, data.verb, data.adj, data.adv")
    parser.add_argument("--into", type=Path, default=GLOSSES, help="default: %(default)s")
    chosen = parser.parse_args(arguments)
    try:
        about = make_glosses(chosen.folder, chosen.into)
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1
    for name, count in (about["definitions"] | about["splits"]).items():
        print(f"{name}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
