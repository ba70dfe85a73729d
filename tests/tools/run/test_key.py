"""Each kind of input changes the key of exactly the lessons that depend on it."""

import ast
import json

import nbformat
import pytest

from course_tools.run.dependencies import (
    describe_code,
    find_modules,
    parse_cell,
)
from course_tools.run.key import digest_file, digest_outputs, lesson_key
from course_utils.config import load_config
from course_utils.files import ROOT
from tests.tools.toy_lessons import write_course

CONFIG = load_config("quick", dataset="photos", first_seed=0)
LOCK = """torch==2.0 ; python_version < "3.12" \\
    --hash=sha256:0
torch==2.5 ; python_version >= "3.12"
numpy==1.0
peft==3.0
"""


@pytest.fixture
def root(tmp_path):
    """A small repository: two modules that need each other, one more, data, weights, results."""
    package = tmp_path / "course_utils"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text('"""A package."""\n')
    (package / "data" / "__init__.py").write_text(
        "from course_utils.data.far import load\nfrom course_utils.data.other import draw\n"
    )
    (package / "data" / "far.py").write_text("import torch\n\ndef load():\n    return 1\n")
    (package / "data" / "other.py").write_text("import peft\n\ndef draw():\n    return 2\n")
    (package / "fit.py").write_text(
        '"""Fit."""\nfrom course_utils.data import load\n\n\ndef fit():\n    return load()\n'
    )
    (package / "script.py").write_text("print(1)\n")
    (tmp_path / "lesson_code" / "fitting").mkdir(parents=True)
    (tmp_path / "lesson_code" / "fitting" / "checks.py").write_text("def check():\n    return 3\n")
    for name in ("one", "two"):
        (tmp_path / "lesson_code" / name).mkdir()
        (tmp_path / "lesson_code" / name / "study.json").write_text("{}")
    (tmp_path / "lesson_code" / "one" / "ring.js").write_text("draw()\n")
    for name in ("explore.css", "explore.js"):
        (package / name).write_text("")
    (tmp_path / "requirements.lock").write_text(LOCK)
    for folder, name, content in (
        ("photos", "photos.json", "{}"),
        ("weights", "convnet_small.json", json.dumps({"model": "convnet_small"})),
        ("weights", "vgg_tiny.json", json.dumps({"model": "vgg_tiny"})),
        ("results", "stored.json", "{}"),
        ("results", "other.json", "{}"),
        ("results", "measured_gpu.json", "{}"),
    ):
        (tmp_path / "data" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / folder / name).write_text(content)
    return tmp_path


def write(*sources, prose="Some prose."):
    cells = [nbformat.v4.new_markdown_cell(prose)]
    return nbformat.v4.new_notebook(cells=cells + [nbformat.v4.new_code_cell(s) for s in sources])


FITS = (
    "from lesson_code.fitting import checks\nfrom course_utils.fit import fit\nfit(pretrained=True)"
)
LESSONS = {
    "fits": write(FITS),
    "draws": write("from course_utils.data import draw\ndraw()"),
    "reads": write('read_file(RESULTS / "stored.json")'),
    "reads_study": write('read_file(STUDIES / "one/study.json")'),
    "reads_by_name": write(
        "from course_utils.study_results import read_study",
        'other = "two"\nread_study("one").table("a regime")',
    ),
    "reads_all": write(
        'names = ["one", "two"]', "studies = map(read_study, names)", f"'{'x' * 300}'"
    ),
    "moves": write('explore("one/ring.js", {}, figure)'),
    "shows a GPU": write('read_measured("formats")'),
    "starts a script": write('import subprocess\nrun("python", "-m", "course_utils.script")'),
    "writes a script": write("%%writefile a.py\nfrom course_utils.fit import fit"),
}


def keys(root, config=CONFIG):
    return {name: lesson_key(lesson, config, {}, root) for name, lesson in LESSONS.items()}


def replace_in(root, path, old, new):
    text = (root / path).read_text()
    assert old in text
    (root / path).write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("path", "old", "new", "changed"),
    [
        ("course_utils/fit.py", "return load()", "return -load()", {"fits", "writes a script"}),
        ("course_utils/data/far.py", "return 1", "return 3", {"fits", "writes a script"}),
        ("course_utils/data/other.py", "return 2", "return 3", {"draws"}),
        ("course_utils/script.py", "print(1)", "print(2)", {"starts a script"}),
        ("lesson_code/fitting/checks.py", "return 3", "return 4", set()),
        ("requirements.lock", "torch==2.0", "torch==2.1", {"fits", "writes a script"}),
        ("requirements.lock", "torch==2.5", "torch==2.6", {"fits", "writes a script"}),
        ("requirements.lock", "peft==3.0", "peft==3.1", {"draws"}),
        ("requirements.lock", "numpy==1.0", "numpy==1.1", set()),
        ("data/weights/convnet_small.json", "{", '{"accuracy": 1, ', {"fits"}),
        ("data/weights/vgg_tiny.json", "{", '{"accuracy": 1, ', set()),
        ("data/results/stored.json", "{}", "[]", {"reads"}),
        ("data/results/other.json", "{}", "[]", set()),
        ("data/results/measured_gpu.json", "{}", "[]", {"shows a GPU"}),
        (
            "lesson_code/one/study.json",
            "{}",
            "[]",
            {"reads_study", "reads_by_name", "reads_all"},
        ),
        ("lesson_code/two/study.json", "{}", "[]", {"reads_all"}),
        ("lesson_code/one/ring.js", "draw()", "draw(1)", {"moves"}),
        ("course_utils/explore.js", "", "draw()", {"moves"}),
        ("course_utils/explore.css", "", "svg {}", {"moves"}),
        ("data/photos/photos.json", "{}", "[]", set(LESSONS)),
        ("course_utils/fit.py", '"""Fit."""', '"""Fit, once."""  # or twice', set()),
        ("course_utils/fit.py", "return load()", "return load()  # 1", set()),
        ("course_utils/fit.py", "return load()", "return (\n        load()\n    )", set()),
    ],
)
def test_a_change_of_an_input_changes_the_keys_of_the_lessons_that_need_it(
    root, path, old, new, changed
):
    before = keys(root)
    replace_in(root, path, old, new)
    after = keys(root)
    assert {name for name in LESSONS if before[name] != after[name]} == changed


@pytest.mark.parametrize(
    "change",
    [{"profile": "smoke"}, {"dataset": "shapes"}, {"first_seed": 1}],
)
def test_profile_data_set_and_seed_are_in_every_key(root, change):
    before, after = keys(root), keys(root, CONFIG.replace(**change))
    assert all(before[name] != after[name] for name in LESSONS)


def test_parameters_are_in_the_key(root):
    assert lesson_key(LESSONS["fits"], CONFIG, {"ALPHA": 2}, root) != keys(root)["fits"]


def test_prose_and_comments_of_the_lesson_are_not_and_its_code_is(root):
    before = keys(root)["fits"]
    for same in (write(FITS, prose="Other prose."), write(f"# first\n{FITS}\n\n# last")):
        assert lesson_key(same, CONFIG, {}, root) == before
    other = write(FITS.replace("True", "False"))
    assert lesson_key(other, CONFIG, {}, root) != before


def test_comments_are_in_the_key_of_a_lesson_that_prints_source_code(root):
    lesson = write(f"import inspect\n{FITS}\nprint(inspect.getsource(fit))")
    before = lesson_key(lesson, CONFIG, {}, root)
    replace_in(root, "course_utils/fit.py", "return load()", "return load()  # 1")
    assert lesson_key(lesson, CONFIG, {}, root) != before


def test_a_folder_of_images_is_in_the_key(root, tmp_path):
    images = tmp_path / "mine"
    images.mkdir()
    (images / "a.png").write_bytes(b"1")
    config = CONFIG.replace(dataset=str(images))
    before = keys(root, config)
    (images / "b.png").write_bytes(b"1")
    assert all(before[name] != key for name, key in keys(root, config).items())


def test_imports_for_types_are_not_needed(root):
    code = "if TYPE_CHECKING:\n    from course_utils.data import draw"
    assert find_modules([parse_cell(code)], root) == (set(), set())


def test_magics_count_and_other_languages_are_read_as_text():
    for one, other in [("%time f()", "f()"), ("%%bash\nls -a", "%%bash\nls"), ("x y", "x z")]:
        assert describe_code(parse_cell(one)) != describe_code(parse_cell(other))


def test_packages_only_re_export():
    """A key follows a name through a package's ``__init__``, so that file must do nothing else.

    `course_utils` has a table of its own names.
    """
    for path in (ROOT / "course_utils").rglob("__init__.py"):
        if path.parent.name == "course_utils":
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                assert node.name == "__getattr__", path
            else:
                assert isinstance(
                    node, ast.Expr | ast.Import | ast.ImportFrom | ast.Assign | ast.If
                )


def test_the_digest_of_outputs_is_that_of_the_file(tmp_path):
    path = write_course(tmp_path)[1].path
    notebook = nbformat.read(path, as_version=4)
    before = digest_outputs(notebook)
    nbformat.write(notebook, path)
    notebook = nbformat.read(path, as_version=4)
    assert digest_outputs(notebook) == before
    notebook.cells[0].source += "More prose."
    assert digest_outputs(notebook) == before
    printed = next(o for c in notebook.cells for o in c.get("outputs", []) if o.get("text"))
    printed["text"] = "other\n"
    assert digest_outputs(notebook) != before


@pytest.mark.parametrize("name", ["photos.json", "study.md", "script.py"])
def test_how_lines_end_changes_no_digest_of_a_text(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"a\nb\n")
    digest = digest_file(path)
    path.write_bytes(b"a\r\nb\r\n")
    assert digest_file(path) == digest
    path.write_bytes(b"a\r\nc\r\n")
    assert digest_file(path) != digest


def test_bytes_that_are_no_text_all_count(tmp_path):
    path = tmp_path / "sheet.png"
    path.write_bytes(b"a\nb")
    digest = digest_file(path)
    path.write_bytes(b"a\r\nb")
    assert digest_file(path) != digest
