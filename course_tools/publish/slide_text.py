"""Markdown in blocks, and what of it a slide has room for."""

import re

__all__ = ["condense", "count_words", "shorten", "split_blocks", "split_items"]

STRUCTURE = re.compile(r"^(?:[*|-] |\||\d+\. |\$\$|```|<details>)", re.MULTILINE)
CLOSED = (("<details>", "</details>"), ("[", "]"), ("(", ")"))
EVEN = ("**", "`", "$", "```")
FEWEST_WORDS = 8  # of the first sentences that stand for a block
ITEM = re.compile(r"^\s*(?:[*-] |\d+\. )?")
SENTENCE_END = re.compile(r"[.?!][*)\"”]*\s+(?=[^a-z\s])")
ABBREVIATION = re.compile(r"(?:\b[A-Z]|e\.g|i\.e|\bal|\bvs)\.\s*$")


def count_words(text: str) -> int:
    """Words on the screen: of a folded answer only its summary is seen."""
    return len(re.sub(r"</summary>.*?</details>|<[^>]+>", "", text, flags=re.DOTALL).split())


def _is_open(text: str) -> bool:
    """Whether the text ends within a formula, code, emphasis, a link or an answer."""
    return any(text.count(mark) % 2 for mark in EVEN) or any(
        text.count(first) != text.count(last) for first, last in CLOSED
    )


def split_blocks(source: str) -> list[str]:
    """Paragraphs, each together with the list, table, formula or code that belongs to it."""
    blocks: list[str] = []
    for paragraph in re.split(r"\n\s*\n", source.strip()):
        before = blocks[-1] if blocks else ""
        inside = before.count("```") % 2 or before.count("$$") % 2
        inside = inside or before.count("<details>") > before.count("</details>")
        if before and (inside or before.endswith(":") or STRUCTURE.match(paragraph)):
            blocks[-1] += f"\n\n{paragraph}"
        elif paragraph:
            blocks.append(paragraph)
    return blocks


def split_items(block: str) -> list[str]:
    """The first lines of a block and the items of its list, each with what is indented below."""
    return re.split(r"\n+(?=[*-] )", block)


def shorten(block: str, most: int, *, anyway: bool = False) -> str:
    """The first sentences of a block, of so many words at most, that announce nothing.

    A sentence that ends in a colon announces what stands below it in the notebook. It is empty if
    nothing fits, or too little to be worth a line; ``anyway`` then takes the first sentence.
    """
    if count_words(block) <= most and not block.endswith(":"):
        return block
    found = STRUCTURE.search(block)
    text = block[: found.start()] if found else block
    ends = [match.end() for match in SENTENCE_END.finditer(text)]
    if not text.rstrip().endswith(":"):
        ends.append(len(text))
    heads = [text[:end].strip() for end in ends]
    heads = [head for head in heads if not _is_open(head) and not ABBREVIATION.search(head)]
    fitting = [head for head in heads if FEWEST_WORDS <= count_words(head) <= most]
    if not fitting and anyway:
        return heads[0] if heads else ""
    return fitting[-1] if fitting else ""


def condense(block: str, most: int) -> str:
    """A block of which each paragraph and each item of a list has its first sentences only."""
    lines = []
    for line in block.splitlines():
        text = ITEM.sub("", line)
        mark = line[: len(line) - len(text)]
        lines.append(mark + (text if text.startswith("|") else shorten(text, most, anyway=True)))
    return "\n".join(lines)
