"""A student in JupyterLab: runs a lesson, and does an exercise wrong and then right."""

import json
import re
import time
import urllib.request

import nbformat
import pytest
from playwright.sync_api import expect

from course_tools.publish.planted import list_exercises
from course_tools.publish.release import release
from course_tools.run.lessons import find_lessons
from tests.browser.conftest import CLAIM, CONTRAST, LEAST_CONTRAST

RUN_LIMIT_MS = 240_000  # guards against a hang, not measurements
CELL_LIMIT_MS = 240_000
# JupyterLab's own: asked of a page that closes, or of a kernel that is just being restarted
HARMLESS = re.compile(
    r"ERR_ABORTED|terminals|net::ERR_CONNECTION_REFUSED|debugger state|Canceled future"
)


def wait_for_kernel(page):
    """The status bar knows; the notebook's own mark says idle before there is a kernel."""
    status = page.get_by_role("contentinfo").get_by_role("button", name="| Idle")
    expect(status).to_be_visible(timeout=CELL_LIMIT_MS)


def run_all(page):
    page.get_by_role("menuitem", name="Kernel").click()
    page.get_by_role("menuitem", name="Restart Kernel and Run All Cells").click()
    page.get_by_role("button", name="Confirm Kernel Restart").click()


def test_a_lesson_runs_from_top_to_bottom(lab, copied_course, open_page):
    server = lab(copied_course)
    page, watch = open_page(server.url("01_baseline.ipynb"), server.own, height=1000)
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=CELL_LIMIT_MS)
    wait_for_kernel(page)
    page.evaluate(
        """() => { window.bars = new Set(); const bar = /(Epoch.\\d|noise floor):\\s+\\d+%/g;
        new MutationObserver(() => {
          for (const area of document.querySelectorAll('.jp-OutputArea-output'))
            for (const found of area.innerText.matchAll(bar)) window.bars.add(found[0]);
        }).observe(document.body, {subtree: true, childList: true, characterData: true}); }"""
    )
    page.get_by_role("menuitem", name="Edit").click()
    page.get_by_role("menuitem", name="Clear Outputs of All Cells").click()
    run_all(page)
    number = sum(c.cell_type == "code" for c in find_lessons()[1].read().cells)
    last = page.locator(".jp-CodeCell .jp-InputPrompt", has_text=f"[{number}]:")
    expect(last.first).to_be_attached(timeout=RUN_LIMIT_MS)
    wait_for_kernel(page)
    bars = page.evaluate("[...window.bars]")
    for name in ("Epoch", "noise floor"):  # of one training, and of a comparison
        assert sum(bar.startswith(name) for bar in bars) >= 2, "the progress bar did not move"
    assert page.locator(".jp-OutputArea-output[data-mime-type*='stderr']").count() == 0
    assert page.locator(".jp-RenderedImage img").count() >= 3
    page.keyboard.press("Control+s")
    page.wait_for_timeout(2000)
    saved = nbformat.read(copied_course / "notebooks" / "01_baseline.ipynb", as_version=4)
    code = [cell for cell in saved.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, number + 1))
    assert not [o for cell in code for o in cell.outputs if o.output_type == "error"]
    watch.errors = [error for error in watch.errors if not HARMLESS.search(error)]
    watch.assert_quiet()


def test_a_slider_changes_the_figure(lab, copied_course, open_page):
    """The lesson is cut off behind its slider: no training is waited for.

    It has no stored outputs, because a figure that is replaced between the key and the look at
    its target starts from its first value again.
    """
    path = copied_course / "notebooks" / "05_mixup.ipynb"
    notebook = nbformat.read(path, as_version=4)
    place = next(i for i, cell in enumerate(notebook.cells) if "explore(" in cell.source)
    del notebook.cells[place + 1 :]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    nbformat.write(notebook, path)
    server = lab(copied_course)
    page, _ = open_page(server.url(path.name), server.own, height=1000)
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=CELL_LIMIT_MS)
    wait_for_kernel(page)
    run_all(page)
    figure = page.locator(".jp-Notebook .explore")
    slider = figure.locator("input[type=range]").first
    expect(slider).to_be_visible(timeout=CELL_LIMIT_MS)
    wait_for_kernel(page)
    target = figure.locator("td").first  # the first slider is λ
    before = target.inner_text()
    slider.press("ArrowRight")
    expect(target).not_to_have_text(before, timeout=CELL_LIMIT_MS)


def fill(page, cell, source):
    """Replace a cell's text, as a student would, and run it."""
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(source)
    page.keyboard.press("Control+Enter")


@pytest.fixture
def released_course(tmp_path):
    return release(find_lessons(), tmp_path / "student")


def test_an_exercise_done_wrong_and_then_right(lab, released_course, open_page):
    lesson = next(x for x in find_lessons() if x.name == "05_mixup")
    exercises = list_exercises(lesson)
    exercise = next(exercise for exercise in exercises if exercise.name == "mix_each")
    name, solution = exercise.name, exercise.solution
    server = lab(released_course)
    page, watch = open_page(server.url("05_mixup.ipynb"), server.own, height=1000)
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    answer = cells.filter(has_text=f"def {name}").first
    expect(answer).to_be_attached(timeout=CELL_LIMIT_MS)
    wait_for_kernel(page)
    text = re.sub(r"\s+", "", page.locator(".jp-Notebook").inner_text())
    for other in exercises:  # no line of any solution that says something
        body = other.solution.split("### BEGIN SOLUTION")[1].split("### END SOLUTION")[0]
        assert re.sub(r"\s+", "", body) not in text
    assert "raiseNotImplementedError()" in text
    last_line = exercise.check.splitlines()[-1]  # the page has no line ends
    checking = cells.filter(has_text=last_line).first
    for source, said in (
        (solution.replace("lams[:, None, None, None]", "lams[0]"), "✗"),
        (solution, f"✓ {name}: passed"),
    ):
        # the lesson's own cell of imports is folded
        fill(page, answer, f"{exercise.imports}\n\n{source}")
        checking.locator(".cm-content").click()
        page.keyboard.press("Control+Enter")
        output = checking.locator(".jp-OutputArea-output").filter(has_text=said)
        expect(output.first).to_be_visible(timeout=CELL_LIMIT_MS)
    assert watch.foreign == []


def test_a_term_leads_to_the_glossary(lab, copied_course, open_page):
    server = lab(copied_course)
    page, _ = open_page(server.url("05_mixup.ipynb"), server.own, height=1000)
    page.locator(".jp-Notebook a", has_text="overfits").first.click(timeout=CELL_LIMIT_MS)
    shown = page.locator(".jp-MarkdownViewer h3", has_text="overfit")
    expect(shown.first).to_be_in_viewport(timeout=CELL_LIMIT_MS)


def test_code_that_only_draws_is_not_shown(lab, copied_course, open_page):
    """Cells with the tag ``hide-input`` show their output; a click shows the code too."""
    path = copied_course / "notebooks" / "05_mixup.ipynb"
    hidden = [
        cell
        for cell in nbformat.read(path, as_version=4).cells
        if "hide-input" in cell.metadata.get("tags", [])
    ]
    server = lab(copied_course)
    page, _ = open_page(server.url("05_mixup.ipynb"), server.own, height=1000)
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=CELL_LIMIT_MS)
    placeholders = page.locator(".jp-CodeCell .jp-InputPlaceholder")
    expect(placeholders.first).to_be_attached(timeout=CELL_LIMIT_MS)
    assert 1 <= placeholders.count() <= len(hidden)
    shown = re.sub(r"\s+", "", " ".join(page.locator(".jp-Notebook .cm-content").all_inner_texts()))
    assert shown, "no code at all is shown"
    for cell in hidden:
        longest = max(cell.source.splitlines(), key=len)
        assert re.sub(r"\s+", "", longest) not in shown, longest
    # JupyterLab makes more cells while the page is open: look at one cell, do not count.
    folded = placeholders.first.element_handle()
    cell = folded.evaluate_handle("placeholder => placeholder.closest('.jp-CodeCell')")
    folded.click()
    page.wait_for_function("cell => !cell.querySelector('.jp-InputPlaceholder')", arg=cell)


def test_a_students_lab(lab, released_course, open_page):
    """What a student sees in the first minute: nothing is unsaved, nothing is for the teacher."""
    server = lab(released_course)
    page, _ = open_page(server.url("05_mixup.ipynb"), server.own)
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=CELL_LIMIT_MS)
    wait_for_kernel(page)
    contents = page.locator(".jp-TableOfContents", has_text="From scratch").first
    expect(contents).to_be_visible(timeout=CELL_LIMIT_MS)
    page.wait_for_timeout(3000)  # an unsaved notebook is marked after a second
    assert page.locator(".jp-mod-dirty").count() == 0, "the notebook was changed by opening it"
    for name in ("Nbgrader", "Create Assignment", "Formgrader"):
        assert page.get_by_text(name, exact=True).count() == 0
    folded = page.locator(".jp-CodeCell .jp-Placeholder, .jp-CodeCell .jp-InputPlaceholder")
    assert folded.count() >= 3, "code that only draws is folded"


def test_what_is_printed_can_be_read_in_the_dark_theme(lab, copied_course, open_page):
    settings = copied_course / "SETTINGS" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "themes.jupyterlab-settings").write_text('{"theme": "JupyterLab Dark"}')
    server = lab(copied_course)
    page, _ = open_page(server.url("05_mixup.ipynb"), server.own, height=1000)
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=CELL_LIMIT_MS)
    dark = page.locator("body[data-jp-theme-light='false']")
    expect(dark).to_be_attached(timeout=CELL_LIMIT_MS)
    claims = page.locator(f".jp-OutputArea-output {CLAIM}")
    expect(claims.first).to_be_attached(timeout=CELL_LIMIT_MS)
    for claim in claims.all()[:4]:
        for part in (claim, claim.locator("span")):
            assert part.evaluate(CONTRAST) >= LEAST_CONTRAST, claim.inner_text()
    sentence = page.locator(".jp-OutputArea-output pre", has_text="paired seeds").first
    style = sentence.evaluate(
        "x => [getComputedStyle(x).wordBreak, getComputedStyle(x).whiteSpace]"
    )
    assert style == ["normal", "pre-wrap"], "a line is broken inside a word"


def test_closing_a_notebook_ends_its_kernel(lab, released_course, open_page):
    server = lab(released_course)
    page, _ = open_page(server.url("00_start_here.ipynb"), server.own)
    wait_for_kernels(page, server, 1)
    wait_for_kernel(page)  # a notebook that is closed before it knows its kernel cannot end it
    page.locator(".lm-TabBar-tab.jp-mod-current .lm-TabBar-tabCloseIcon").first.click()
    wait_for_kernels(page, server, 0)


def wait_for_kernels(page, server, number):
    address = f"{server.address}/api/kernels?token={server.token}"
    deadline = time.monotonic() + CELL_LIMIT_MS / 1000
    while len(json.loads(urllib.request.urlopen(address, timeout=60).read())) != number:
        assert time.monotonic() < deadline, f"there are not {number} kernels"
        page.wait_for_timeout(500)
