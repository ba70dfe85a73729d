"""Every lesson's recipe cards: their form, what they compute, and each as a file of its own.

A lesson with a Recipe joins by existing. Its checks stand in ``lesson_code/<name>/technique.py``:
``check_pytorch_card(card)`` and ``check_lightning_card(card)`` get the names that the card
defined, and compare them with what the lesson computes.
"""

from types import SimpleNamespace

import pytest

pytest.register_assert_rewrite("lesson_code")  # before they are imported

from course_tools.run.lessons import find_lessons  # noqa: E402
from tests.lessons.cards import (  # noqa: E402
    TOY_CODES,
    TOY_LIST,
    TOY_TECHNIQUE,
    CardFailed,
    LessonCard,
    alone,
    check_card,
    check_faults_are_noticed,
    execute,
    find_faults,
    has_cards,
    list_cards,
    load_technique,
    run_as_file,
    write_toy_lesson,
)
from tests.lessons.conditions import CONDITIONS, LEFT_OUT  # noqa: E402

LESSONS = [lesson for lesson in find_lessons() if has_cards(lesson)]
CARDS = list_cards(LESSONS)


@pytest.mark.parametrize("card", CARDS, ids=str)
def test_a_card_computes_what_its_lesson_computes(card, tmp_path):
    check_card(card, load_technique(card.lesson), tmp_path / "empty")


@pytest.mark.lesson_changed
@pytest.mark.parametrize("card", CARDS, ids=str)
def test_the_check_of_a_card_can_fail(card, tmp_path):
    check_faults_are_noticed(card, load_technique(card.lesson), tmp_path)


NOT_MET = {
    ("11_dali, card-lightning", "BatchNorm and dropout"): "its batches have one example",
    ("21_text, card-pytorch", "BatchNorm and dropout"): "it would count padding; dropout is there",
    ("21_text, card-lightning", "BatchNorm and dropout"): "T5 has no BatchNorm, and has dropout",
}


def run_under(card, condition, folder):
    """Execute a card under one of `CONDITIONS`; the names that it defined."""
    with CONDITIONS[condition](card.source) as source, alone(folder):
        try:
            return execute(source)
        except Exception as error:  # whatever the code of a card raises
            message = f"{card}: under {condition!r} of conditions.py it ends with {error!r}"
            raise CardFailed(message) from error


def list_conditions():
    """All but the first need seconds for each card: they run with `make test-cards`."""
    for place, condition in enumerate(CONDITIONS):
        marks = [pytest.mark.cards] if place else []
        for card in CARDS:
            if (str(card), condition) not in NOT_MET:
                yield pytest.param(card, condition, marks=marks, id=f"{card}, {condition}")


@pytest.mark.parametrize(("card", "condition"), list_conditions())
def test_a_card_runs_in_an_ordinary_project(card, condition, tmp_path):
    run_under(card, condition, tmp_path / "empty")


def test_the_trainer_of_a_card_meets_the_conditions(tmp_path):
    [card] = [card for card in CARDS if str(card) == "01_baseline, card-lightning"]
    found = {name: run_under(card, name, tmp_path / name) for name in CONDITIONS}
    assert found["autocast"]["trainer"].precision == "bf16-mixed"
    assert found["compile"]["module"].model._compiled_call_impl is not None
    loader = found["an odd last batch"]["trainer"].train_dataloader
    assert len(loader.dataset) == len(found["autocast"]["train_set"]) - LEFT_OUT


def test_a_compiled_checkpoint_counts_each_batch_once(tmp_path):
    [card] = [card for card in CARDS if str(card) == "10_gradient_checkpointing, card-pytorch"]
    found = run_under(card, "compile", tmp_path / "empty")
    assert found["layers"][0][1].num_batches_tracked == 1


FRAGILE = {  # what the toy card does in place of its print, and does not bear
    "BatchNorm and dropout": "net = torch.nn.Linear(48, 2)  # yours\nnet(images[:1].flatten(1))",
    "autocast": "torch.nn.Linear(4, 4)(images).detach().numpy()",
    "compile": "net = torch.nn.Linear(4, 4)\nassert net._compiled_call_impl is None",
    "an odd last batch": """\
batches = [(torch.ones(8, 1), torch.ones(8)), (torch.ones(8, 1), torch.ones(8))]
sum(x for x, _ in batches)""",
}


@pytest.mark.parametrize("condition", FRAGILE)
def test_a_card_that_does_not_bear_a_condition_fails(condition, tmp_path):
    head = TOY_CODES["pytorch"].rpartition("\n")[0]
    card = make_card(tmp_path, pytorch=f"{head}\n{FRAGILE[condition]}")
    with alone(tmp_path / "plain"):
        execute(card.source)
    with pytest.raises(Exception):  # noqa: B017  # whatever PyTorch says
        run_under(card, condition, tmp_path / "empty")


@pytest.mark.cards
@pytest.mark.parametrize("card", CARDS, ids=str)
def test_a_card_runs_in_an_empty_file(card, tmp_path):
    run_as_file(card, tmp_path / "empty")


# ---- The same on a toy lesson, and on ones with a fault.


def make_card(folder, kind="pytorch", **recipe):
    return LessonCard(write_toy_lesson(folder / "notebooks", **recipe), kind)


def change_cell(identifier, **changes):
    """A function that changes the source or the metadata of one cell of a notebook."""

    def change(notebook):
        cell = next(cell for cell in notebook.cells if cell.id == identifier)
        cell.update(changes)

    return change


def leave_out(identifier):
    def change(notebook):
        notebook.cells = [cell for cell in notebook.cells if cell.id != identifier]

    return change


def put_last(identifier):
    def change(notebook):
        notebook.cells.sort(key=lambda cell: cell.id == identifier)

    return change


def test_the_toy_lesson_is_as_it_should_be(tmp_path):
    lesson = write_toy_lesson(tmp_path / "notebooks")
    assert has_cards(lesson)
    assert find_faults(lesson) == []
    for card in list_cards([lesson]):
        check_card(card, TOY_TECHNIQUE, tmp_path / card.kind / "checked")
        check_faults_are_noticed(card, TOY_TECHNIQUE, tmp_path / card.kind)
    assert load_technique(lesson) == SimpleNamespace()


FOLDED = {"tags": ["card", "card-pytorch", "hide-input"]}
FORM = {
    "a lead-in": ({"text": TOY_LIST.replace("**Cost**", "**Price**")}, "not with Use it when, "),
    "a trap": ({"text": TOY_LIST[: TOY_LIST.rindex("- **Trap")]}, "Cost, Trap, not with"),
    "a source": ({"text": TOY_LIST.replace("https://", "")}, "Defaults have no link"),
    "a formula": ({"text": TOY_LIST.replace("none", "$x$")}, "the list has a formula"),
    "a long card": (
        {"pytorch": TOY_CODES["pytorch"] + 41 * "\nx = 0"},
        "lines of code, not 5 to 40",
    ),
    "a short card": ({"pytorch": "import torch  # yours"}, "it has 1 lines of code, not 5"),
    "a long line": ({"pytorch": TOY_CODES["pytorch"] + "  #" + 100 * "x"}, "a line is longer"),
    "the course": (
        {"pytorch": "import course_utils\n" + TOY_CODES["pytorch"]},
        "it names course_utils",
    ),
    "no stand-in": ({"pytorch": TOY_CODES["pytorch"].replace("# yours", "# mine")}, "no line says"),
    "an import that lacks": (
        {"pytorch": TOY_CODES["pytorch"].replace("images * factor", "F.relu(images)")},
        "7:12: F821 Undefined name `F`",
    ),
    "no Python": ({"pytorch": TOY_CODES["pytorch"] + "\n%time"}, "invalid-syntax"),
    "a heading": (
        {"change": change_cell("pytorch-heading", source="### PyTorch\n\nAll.")},
        "its heading is '### PyTorch', not '### In plain PyTorch'",
    ),
    "no sentence": (
        {"change": change_cell("pytorch-heading", source="### In plain PyTorch")},
        "below its heading stands not one sentence",
    ),
    "tags": ({"change": change_cell("pytorch", metadata={"tags": ["card"]})}, "its tags are"),
    "folded": ({"change": change_cell("pytorch", metadata=FOLDED)}, "its code is folded"),
}  # fmt: skip


@pytest.mark.parametrize("case", FORM)
def test_a_fault_of_form_is_said_once(tmp_path, case):
    changes, expected = FORM[case]
    [fault] = find_faults(write_toy_lesson(tmp_path, **changes))
    assert fault.startswith("50_scale: ")
    assert ("card-pytorch: " in fault) == ("text" not in changes)
    assert expected in fault


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (leave_out("lightning"), "its cells are markdown, markdown, code, markdown$"),
        (leave_out("recipe"), "its cells are missing"),
        (put_last("lightning"), "the tag card lie outside of the Recipe: lightning"),
    ],
    ids=["one card", "no heading", "after the Recipe"],
)
def test_cells_that_lack_are_said(tmp_path, change, expected):
    lesson = write_toy_lesson(tmp_path, change=change)
    assert has_cards(lesson)
    assert [fault for fault in find_faults(lesson) if expected.rstrip("$") in fault]


def test_a_lesson_without_a_recipe_has_no_cards(tmp_path):
    def leave_it_out(notebook):
        notebook.cells = notebook.cells[:2]

    assert not has_cards(write_toy_lesson(tmp_path, change=leave_it_out))


CONTENT = {
    "imports the course": (
        "import course_utils\n{}",
        "not run: ModuleNotFoundError: .*course_util",
    ),
    "imports a part of it": (
        "from course_utils.data import x\n{}",
        "not run: ModuleNotFoundError: No module",
    ),
    "an undefined name": ("{}\nprint(undefined)", "not run: NameError: name 'undefined'"),
    "computes something else": ("{}\nscale = torch.add", "not compute what its lesson computes"),
    "lacks a name": ("{}\ndel scale", "not compute what its lesson computes: 'scale'"),
    "asks the network": (
        "import urllib.request as u\n{}\nu.urlopen('http://example.org')",
        "not run: URLError: .*network blocked",
    ),
}


@pytest.mark.parametrize("case", CONTENT)
def test_a_card_with_a_fault_is_named(tmp_path, case):
    form, expected = CONTENT[case]
    card = make_card(tmp_path, pytorch=form.format(TOY_CODES["pytorch"]))
    with pytest.raises(CardFailed, match=rf"^50_scale, card-pytorch: it does {expected}"):
        check_card(card, TOY_TECHNIQUE, tmp_path / "empty")


def test_a_lesson_without_checks_is_named(tmp_path):
    card = make_card(tmp_path, "lightning")
    sentence = (
        r"^50_scale, card-lightning: write check_lightning_card in lesson_code/scale/technique\.py"
    )
    with pytest.raises(CardFailed, match=sentence):
        check_card(card, load_technique(card.lesson), tmp_path / "empty")


def test_a_check_that_nothing_can_fail_is_named(tmp_path):
    card = make_card(tmp_path)
    nothing = SimpleNamespace(check_pytorch_card=lambda card: None)
    check_card(card, nothing, tmp_path / "empty")
    with pytest.raises(CardFailed, match=r"^50_scale, card-pytorch: its check notices none"):
        check_faults_are_noticed(card, nothing, tmp_path)


def test_a_card_leaves_everything_as_it_was(tmp_path):
    """Its folder, its seeds and its settings are its own."""
    import os
    import random
    import socket

    import torch

    before = os.getcwd(), torch.get_rng_state(), random.getstate(), torch.get_num_threads()
    connect = socket.socket.connect
    source = TOY_CODES["pytorch"] + (
        "\nimport os, random\nos.environ['MINE'] = '1'\nrandom.random(), torch.rand(1)"
        "\nopen('mine', 'w').close()\ntorch.set_num_threads(2)"
    )
    check_card(make_card(tmp_path, pytorch=source), TOY_TECHNIQUE, tmp_path / "empty")
    assert os.listdir(tmp_path / "empty") == ["mine"]
    assert "MINE" not in os.environ
    assert os.getcwd() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert random.getstate() == before[2]
    assert torch.get_num_threads() == before[3]
    assert socket.socket.connect == connect


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import importlib\nimportlib.import_module('course_' + 'utils')", "course_utils"),
        ("import socket\nsocket.create_connection(('192.0.2.1', 80))", "network blocked"),
        ("print(undefined)", "NameError: name 'undefined'"),
    ],
    ids=["the course", "the network", "a name"],
)
def test_a_file_of_its_own_has_nothing_but_its_imports(tmp_path, source, expected):
    sentence = rf"^50_scale, card-pytorch: as a file of its own it does not run: .*{expected}"
    with pytest.raises(CardFailed, match=sentence):
        run_as_file(make_card(tmp_path, pytorch=source), tmp_path / "empty")


def test_a_file_of_its_own_lies_in_an_empty_folder(tmp_path):
    source = "import os\nassert __name__ == '__main__'\nassert os.listdir() == ['card.py']"
    run_as_file(make_card(tmp_path, pytorch=source), tmp_path / "empty")
