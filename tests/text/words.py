"""Words that the course does not use, and the field's word for each.

`WORDS` is the list: a homemade word, as a regular expression, and what to write instead. A word
with an honest second meaning has ``allowed``: the contexts in which it may stand. `KEPT` has
contexts of single files. To add a word, add a line here; to use one in a second meaning, add the
context beside it. `tests/text/readable_text.py` reads the files, `tests/text/test_words.py` tests.
"""

import re
from functools import cache
from typing import NamedTuple

NUMBER = r"(?:two|three|four|five|six|seven|eight|nine|ten|twelve|\d[\d.,]*)"
JOINING = (
    r"(?:of|in|at|on|for|from|with|as|is|are|was|be|give|gives|make|makes|take|takes|has|have|to"
    r"|by|after|before|and|or|than|like|that|over|into|within|during|once|twice|only|not|but|when"
    r"|if|where|so|needs|means|sees|gets|holds|replaces|begins|through|against|between|per|under"
    r"|without)"
)
UNIT = (
    r"(?:batch|bin|block|branch|byte|cell|class|commit|core|day|device|epoch|example|figure"
    r"|file|folder|hour|image|kernel|layer|lesson|line|loader|machine|micro-batch|minute|name"
    r"|notebook|parameter|pass|photograph|pixel|point|process|rank|repository|round|row|run|sample"
    r"|script|second|seed|sheet|slide|split|stage|step|student|technique|tile|token|training"
    r"|variant|week|weight|word|worker)"
)
COUNTED = (
    r"(?:accuracy|bits?|bytes?|collectives?|epochs|events?|files|images|kernels?|lines|losses"
    r"|messages?|minutes|ms|numbers?|passes|photographs|points|processes|rows|runs|samples|seconds"
    r"|seeds|steps|[GMk]i?B|things?|threads?|tokens|trainings)"
)


@cache
def compile_words(pattern: str) -> re.Pattern:
    """A space stands for any white space, also for the end of a line."""
    return re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE | re.MULTILINE)


class Word(NamedTuple):
    """One entry: ``example`` is the shortest text in which the word must be found."""

    pattern: str
    better: str
    example: str
    allowed: tuple[str, ...] = ()

    def find(self, text: str, kept: tuple[str, ...] = ()) -> list[re.Match]:
        """All places where the word stands outside of its contexts and of those that are kept."""
        found = list(compile_words(rf"(?<![\w-])(?:{self.pattern})(?!\w)").finditer(text))
        if not found:
            return []
        contexts = [m.span() for x in self.allowed + kept for m in compile_words(x).finditer(text)]
        return [
            match
            for match in found
            if not any(start <= match.start() and match.end() <= end for start, end in contexts)
        ]


WORDS = (
    # the style guide's table, in its order
    Word(
        r"rates?",
        "learning rate; throughput",
        "at a rate of 0.1",
        (r"(?:learning|error|frame|sampling|dropout|success)[\s-]+rates?",),
    ),
    Word(r"slots?", "seam, or argument of `fit`", "it fills the slot"),
    Word(r"proofs?|prov(?:e|es|ed|en|ing)", "checked, equal to the library within …", "the proof"),
    Word(r"no evidence", "equivalent, or inconclusive", "verdict: no evidence"),
    Word(
        r"windows?",
        "accumulation steps",
        "a window of four batches",
        (r"\bWindows\b(?! of)", r"(?:browser|terminal|sliding)(?:'s)? windows?"),
    ),
    Word(
        r"(?:kept|keeps?|keeping)\b[^.;:]{0,40}\bfor (?:the )?backward",
        "saved activations",
        "bytes kept for backward",
    ),
    Word(r"uncut", "without checkpointing", "the uncut network"),
    Word(r"pieces", "segments", "more pieces"),
    Word(r"rebuilt|rebuilds?", "recomputed", "one segment is rebuilt"),
    Word(
        r"\*(?:last|most|full)\*",
        "linear probe / last-stage / full fine-tuning",
        "*most* trains the last stage",
    ),
    Word(r"rates? by depth", "layer-wise learning-rate decay", "learning rates by depth"),
    Word(r"augmented at once", "batched augmentation", "batches augmented at once"),
    Word(r"raw (?:weights|networks?|models?)", "randomly initialised", "raw weights"),
    Word(r"by heart", "memorised, overfits", "learned by heart"),
    Word(
        r"kn[eo]ws? (?:all |its |the |their )?(?:training )?(?:images|photographs|drawings)",
        "memorised, overfits",
        "it knows its training images",
    ),
    Word(
        r"(?:un)?sur(?:e|er|est|eness)",
        "confident, underconfident",
        "too sure of itself",
        (r"\bmak(?:e|es|ing) sure\b",),
    ),
    Word(r"modest(?:y|ly)?", "underconfident; small", "a modest network"),
    Word(r"cur(?:e|es|ed|ing)|incurable", "fix", "the cure"),
    Word(r"mend(?:s|ed|ing)?", "fix", "it mends the network"),
    Word(r"remed(?:y|ies)", "fix", "a remedy"),
    Word(r"illness(?:es)?", "problem", "the illness"),
    Word(r"spar(?:e|es|ed|ing)", "saves", "it spares memory"),
    Word(r"dear(?:er|est|ly)?", "expensive", "a dear step"),
    Word(
        r"pay(?:s|ing)?|paid",
        "is worth it; costs",
        "mixup pays here",
        (r"\bpay(?:s|ing)? attention",),
    ),
    Word(
        r"talk(?:s|ing|ed)?",
        "communication, all-reduce",
        "processes talk",
        (r"talk it through", r"talked about", r"talking time", r"\btalk \(min\)"),
    ),
    Word(r"exchang(?:e|es|ed|ing)", "communication, all-reduce", "24 exchanges"),
    Word(
        r"(?:training|trainer|network|model|GPU) (?:then )?waits?",
        "data stall, input-bound",
        "training waits for images",
    ),
    Word(r"envelopes?", "held-out predictions", "the sealed envelope"),
    Word(
        r"flatter(?:s|y|ed|ing)?",
        "optimistically biased",
        "flattered by a choice",
        (r"flatter minim(?:um|a)",),
    ),
    Word(r"\*(?:as they are|shuffled)\*", "in-domain, shifted", "images *as they are*"),
    Word(r"ladders?|rungs?", "cumulative ablation", "the ladder of steps"),
    Word(
        r"tak(?:e|es|ing|en) (?:one|each|a step) out|take-one-out",
        "leave-one-out",
        "we take one out",
    ),
    Word(r"observers?", "callback", "an observer"),
    Word(r"rulers?", "metric", "one ruler for both"),
    # the name of an argument of `compare` and of an entry in records: a string of its own
    Word(r"arms?", "variant", "both arms", (r"· arms? ·", r"^\s*arms:", r"^\s*arm, comparison:")),
    # the readers' review of the first edition
    Word(
        rf"(?:one|an?) (?:(?!{JOINING}\b)[\w/-]+ )?(?!{JOINING}\b)[\w-]*(?:[^\Ws]|ss) an? {UNIT}",
        "one … per …",
        "a dot a seed",
        (r"thread a second process",),
    ),
    Word(
        rf"{NUMBER} (?:(?!{JOINING}\b)[\w/-]+ )?(?!{JOINING}\b)[\w-]*s an? {UNIT}",
        "… per …",
        "two epochs a row",
    ),
    Word(rf"{COUNTED} an? {UNIT}", "… per …", "images a second"),
    Word(rf"one an? {UNIT}", "one per …", "one a kernel"),
    Word(r"\w+\((?:s|es)\)", "the plural that is right for the number", "3 seed(s)"),
    Word(r"betray(?:s|ed|ing)?", "shows", "its loss betrays it"),
    Word(r"nobody", "a sentence that says who", "nobody waits for them"),
    Word(r"lonely|lonelier", "single", "a lonely run"),
    Word(r"reckless(?:ly)?", "too high", "a reckless learning rate"),
    Word(r"teeth", "effect", "a test without teeth"),
    Word(r"drag(?:s|ged|ging)? (?:\w+ )?along", "carry", "it drags them along"),
    Word(r"best gap", "optimal logit margin", "the best gap"),
    Word(r"computed again", "recomputed", "nothing is computed again"),
    Word(r"α (?:is )?not divided", "no α/r scaling", "α not divided"),
    Word(r"what the network can take", "model throughput", "what the network can take"),
)


KEPT = {
    # lessons that print source code have the docstring in their keys: with their next change
    "course_utils/measure/memory.py": (r"what is computed again",),
    # the glossary names homemade words
    "notebooks/glossary.md": (r"also called [^.]*",),
}
