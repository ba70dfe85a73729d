"""All techniques train together, and each still does what it does alone.

A technique is a file ``lesson_code/<name>/technique.py``, or one in this folder for a technique
that no lesson is about. The files are found; for these tests they hold

- ``SEAM``: arguments of `fit`. Techniques in one argument are chained in the order of their
  files; those that exclude each other get a training each;
- ``invariant(record)``, which fails where the technique did not do what it does;
- ``FAULTS``: ``(argument, value)``. Each is planted in place of the technique, among all the
  others, and the invariant must fail;
- ``MASKED_FAULTS``, if any: ``(argument, value, names)``. With the named techniques the fault
  changes nothing, so it is planted in a training without them;
- ``compare(record, without)``, if there is more to see against a training without the technique,
  and ``COMPARED_FAULTS`` for it;
- ``EXCLUDES``, if any: techniques, by name, together with which it does not train as it should;
- ``MISSING``, if it cannot be trained everywhere: why it cannot be trained here, or "";
- ``NOT_FOR_TEXT``, if it is for images only: why. All others train a small network on texts, too;
- instead of all these ``NOT_COMBINED``, why the technique cannot be trained together with others.
"""

from importlib import import_module

import nbformat
import pytest
import torch.nn.functional as F

pytest.register_assert_rewrite("lesson_code", "tests.combinations")  # before they are imported

from course_utils.data.load import load_data  # noqa: E402
from tests.combinations.culprits import Check, find_failures  # noqa: E402
from tests.combinations.record import BATCHES, CLASSES, HOLD_ONE, Record, check_training  # noqa: E402
from tests.places import ROOT, find_notebooks  # noqa: E402

LESSON_SEAMS = ("data", "model", "batch", "loss", "optimizer", "trainer")

FOLDERS = sorted((ROOT / "lesson_code").glob("*/technique.py"))
MODULES = {path.parent.name: f"lesson_code.{path.parent.name}.technique" for path in FOLDERS}
MODULES["cutmix"] = "tests.combinations.cutmix"
FILES = {name: import_module(module) for name, module in sorted(MODULES.items())}
FOUND = {name: found for name, found in FILES.items() if hasattr(found, "SEAM")}
TECHNIQUES = {name: found for name, found in FOUND.items() if not getattr(found, "MISSING", "")}
SEAMS = {name: technique.SEAM for name, technique in TECHNIQUES.items()}


EXCLUSIONS = {
    frozenset((name, other))
    for name, technique in TECHNIQUES.items()
    for other in getattr(technique, "EXCLUDES", ())
}


# These need a training without each other technique, so they come first into that with all.
MASKED = {name for name, technique in TECHNIQUES.items() if hasattr(technique, "MASKED_FAULTS")}


def list_rows(seams, exclusions=frozenset(), preferred=frozenset()):
    """The names of the techniques in each training, n + 1 trainings for n techniques.

    All together, and all but each one. Of techniques that exclude each other the first is among
    all, a preferred one before others; each of the rest takes its place in a training.

    One more for each argument of `fit` that several techniques share, without these: as long as
    one of them is on, nobody sees how the rest does without (mixup or CutMix alone make every
    target soft).
    """

    def exclude(name, other):
        shared = seams[name].keys() & seams[other].keys() & set(HOLD_ONE)
        return bool(shared) or frozenset((name, other)) in exclusions

    together = []
    for name in sorted(seams, key=lambda name: name not in preferred):
        if not any(exclude(name, other) for other in together):
            together.append(name)
    together.sort(key=list(seams).index)
    rows = {"all": together}
    for name in seams:
        if name in together:
            rows[f"all but {name}"] = [other for other in together if other != name]
        else:
            beside = [other for other in together if not exclude(name, other)]
            rows[f"all with {name}"] = [x for x in seams if x == name or x in beside]
    for slot in sorted({slot for seam in seams.values() for slot in seam}):
        rest = [name for name in together if slot not in seams[name]]
        if len(rest) < len(together) - 1:
            rows[f"all with nothing in {slot}"] = rest
    return rows


ROWS = list_rows(SEAMS, EXCLUSIONS, MASKED)


def find_row_with(name):
    return next(row for row in ROWS.values() if name in row)


class Trainings:
    """Trains sets of techniques, each set once, and checks them."""

    def __init__(self, config, data, seams):
        self.config, self.data, self.seams = config, data, seams
        self.records = {}

    def train(self, names):
        key = tuple(names)
        if key not in self.records:
            seams = {name: self.seams[name] for name in names}
            self.records[key] = Record(self.config, self.data, seams)
        return self.records[key]

    def list_checks(self, names):
        """What holds for every training, and the invariant of each technique."""
        general = Check("a training", lambda tried: check_training(self.train(tried)))
        return [general, *(self.check_invariant(name) for name in names)]

    def check_invariant(self, name):
        invariant = TECHNIQUES[name].invariant
        return Check(f"the invariant of {name}", lambda tried: invariant(self.train(tried)), name)

    def check_comparison(self, name):
        def compare(tried):
            without = [other for other in tried if other != name]
            TECHNIQUES[name].compare(self.train(tried), self.train(without))

        return Check(f"the comparison of {name}", compare, name)


@pytest.fixture(scope="module")
def few(tiny_config, tiny_data):
    return tiny_data.take_train(BATCHES * tiny_config.batch_size)


@pytest.fixture(scope="module")
def trainings(tiny_config, few):
    return Trainings(tiny_config, few, SEAMS)


def fail_for(failures):
    if failures:
        raise ExceptionGroup("; ".join(failures), list(failures.values()))


@pytest.mark.parametrize("names", ROWS.values(), ids=ROWS)
def test_invariants_hold(names, trainings):
    fail_for(find_failures(trainings.list_checks(names), names))


FOR_TEXT = {
    name: seam for name, seam in SEAMS.items() if not getattr(TECHNIQUES[name], "NOT_FOR_TEXT", "")
}
TEXT_ROWS = {"all": list_rows(FOR_TEXT, EXCLUSIONS)["all"]} | {name: [name] for name in FOR_TEXT}


@pytest.fixture(scope="module")
def text_trainings(tiny_config):
    config = tiny_config.replace(dataset="glosses")
    return Trainings(config, load_data(config), FOR_TEXT)


@pytest.mark.parametrize("names", TEXT_ROWS.values(), ids=TEXT_ROWS)
def test_invariants_hold_for_texts(names, text_trainings):
    fail_for(find_failures(text_trainings.list_checks(names), names))


COMPARED = [name for name, technique in TECHNIQUES.items() if hasattr(technique, "compare")]


@pytest.mark.parametrize("name", COMPARED)
def test_comparison_holds(name, trainings):
    fail_for(find_failures([trainings.check_comparison(name)], find_row_with(name)))


def list_faults(kind):
    found = {name: getattr(technique, kind, []) for name, technique in TECHNIQUES.items()}
    return [(name, *fault) for name, faults in found.items() for fault in faults]


@pytest.fixture
def plant(tiny_config, few):
    """Trains the techniques ``names`` with a fault in place of one of them."""

    def train(names, name, slot, fault):
        seams = {name: SEAMS[name] for name in names} | {name: {slot: fault}}
        return Record(tiny_config, few, seams)

    return train


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(("name", "slot", "fault"), list_faults("FAULTS"))
def test_invariant_fails_for_a_fault_planted_among_all(name, slot, fault, plant):
    record = plant(find_row_with(name), name, slot, fault)
    with pytest.raises(AssertionError):
        TECHNIQUES[name].invariant(record)


@pytest.mark.parametrize(("name", "slot", "fault"), list_faults("COMPARED_FAULTS"))
def test_comparison_fails_for_a_fault_planted_among_all(name, slot, fault, plant, trainings):
    row = find_row_with(name)
    without = trainings.train([other for other in row if other != name])
    with pytest.raises(AssertionError):
        TECHNIQUES[name].compare(plant(row, name, slot, fault), without)


@pytest.mark.parametrize(("name", "slot", "fault", "masks"), list_faults("MASKED_FAULTS"))
def test_invariant_fails_for_a_masked_fault_in_the_training_without_its_mask(
    name, slot, fault, masks, plant
):
    row = find_row_with(name)
    TECHNIQUES[name].invariant(plant(row, name, slot, fault))  # masked: else it is no such fault
    rest = [other for other in row if other not in masks]
    assert rest in ROWS.values()
    record = plant(rest, name, slot, fault)
    with pytest.raises(AssertionError):
        TECHNIQUES[name].invariant(record)


@pytest.mark.parametrize("name", FOUND)
def test_technique_has_a_fault_and_can_be_trained_here(name):
    technique = FOUND[name]
    assert getattr(technique, "FAULTS", []) or getattr(technique, "MASKED_FAULTS", [])
    if getattr(technique, "MISSING", ""):
        pytest.skip(technique.MISSING)


def test_every_lesson_on_a_seam_has_its_technique():
    lessons = {path.stem.partition("_")[2]: path for path in find_notebooks()}
    seams = {
        name: nbformat.read(path, as_version=4).metadata.course.seam
        for name, path in lessons.items()
    }
    expected = {name for name, seam in seams.items() if seam in LESSON_SEAMS}
    excused = {name for name, found in FILES.items() if getattr(found, "NOT_COMBINED", "")}
    assert expected <= FOUND.keys() | excused, "add lesson_code/<name>/technique.py"


def smooth_largest_target(logits, targets):
    """Forgets that targets may be mixed."""
    hard = targets if targets.ndim == 1 else targets.argmax(dim=1)
    return SEAMS["label_smoothing"]["loss"](logits, hard)


def checkpoint_and_train_everything(model):
    return SEAMS["gradient_checkpointing"]["model_transform"](model).requires_grad_(True)


def mix_hard_targets_only(images, targets):
    soft = F.one_hot(targets, CLASSES).float()  # raises for targets that are soft
    return SEAMS["mixup"]["batch_transform"](images, soft)


@pytest.mark.parametrize(
    ("name", "slot", "fault", "among", "expected"),
    [
        (
            "label_smoothing",
            "loss",
            smooth_largest_target,
            ["label_smoothing", "mixup", "warmup_cosine"],
            "the invariant of label_smoothing fails with label_smoothing and mixup",
        ),
        (  # with LoRA, which freezes again, nothing is to be seen
            "gradient_checkpointing",
            "model_transform",
            checkpoint_and_train_everything,
            ["freezing", "gradient_checkpointing", "label_smoothing", "lora"],
            "the invariant of freezing fails with freezing and gradient_checkpointing",
        ),
        (
            "mixup",
            "batch_transform",
            mix_hard_targets_only,
            ["cutmix", "mixup"],
            "a training fails with cutmix and mixup",
        ),
    ],
    ids=["a loss", "a model", "a training"],
)
def test_a_technique_that_disturbs_another_is_named(
    name, slot, fault, among, expected, tiny_config, few
):
    seams = {name: SEAMS[name] for name in among} | {name: {slot: fault}}
    trainings = Trainings(tiny_config, few, seams)
    failures = {
        sentence
        for names in list_rows(seams).values()
        for sentence in find_failures(trainings.list_checks(names), names)
    }
    assert failures == {expected}


def test_techniques_that_exclude_each_other_train_one_at_a_time():
    seams = {"a": {"loss": 1}, "b": {"loss": 2}, "c": {"trainer": 3}, "d": {"make_schedule": 4}}
    seams |= {"e": {"make_schedule": 5}, "f": {"trainer": 6}}
    assert list_rows(seams) == {
        "all": ["a", "c", "d", "f"],
        "all but a": ["c", "d", "f"],
        "all with b": ["b", "c", "d", "f"],
        "all but c": ["a", "d", "f"],
        "all but d": ["a", "c", "f"],
        "all with e": ["a", "c", "e", "f"],
        "all but f": ["a", "c", "d"],
        "all with nothing in trainer": ["a", "d"],
    }
    exclusions = {frozenset("ad")}
    assert list_rows({"a": {"loss": 1}, "c": {"trainer": 3}, "d": {"model": 4}}, exclusions) == {
        "all": ["a", "c"],
        "all but a": ["c"],
        "all but c": ["a"],
        "all with d": ["c", "d"],
    }
    losses = {"a": {"loss": 1}, "b": {"loss": 2}}
    assert list_rows(losses, preferred={"b"})["all"] == ["b"]
