"""``course site``: all executed lessons as static pages, read from the disk, without a network."""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nbformat

from course_tools.publish.cards import Card, find_cards, find_recipe, render_cards
from course_tools.publish.figures import describe_figures
from course_tools.publish.made_folder import MadeFolder
from course_tools.publish.offline import copy_mathjax
from course_tools.publish.problems import HEADING, read_problems
from course_tools.publish.release import clear_solutions, make_students_version
from course_tools.publish.sections import is_card, is_speakers_note, read_title
from course_tools.publish.seminars import SEMINARS_MIN, find_left_out, format_plan, read_cell_times
from course_tools.run.lessons import Lesson
from course_tools.run.record import COURSE_FILE
from course_tools.run.report import write_report
from course_utils.claims import CLAIM_MIME
from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = [
    "LOCALE",
    "build_pages",
    "find_catalogue",
    "make_anchor",
    "run_sphinx",
    "stage_sources",
    "write_index",
    "write_site",
]

LOCALE = ROOT / "docs" / "locale"
TEMPLATE = Path(__file__).with_name("site_template")
HTML_LINK = re.compile(r'(<a href=\\"\d\d_\w+)\.ipynb')  # in the JSON of a notebook
SITE = MadeFolder("site", ".course-site.json", (".git", "CNAME"))
DOWNLOAD = """<a href="notebooks/{}" download>This lesson as a notebook</a>, to run and to solve in
the course's folder <code>notebooks</code>."""
CARD = """<a href="cards.html#{}">This card among all others</a>, on one page, to copy and to
print."""
CARDS = """
<a href="cards.html">Recipe cards</a>: each technique in plain PyTorch and in Lightning, to copy and
to print.
"""
NOTEBOOK_ADDRESS = re.compile(r"\.(ipynb|md)(?=#|$)")
ACTIVE = re.compile(r"([\\`*_{}\[\]<>|~$&])")  # what Markdown gives a meaning inside a line
REPORT = """# Report

All that one execution of the course measured, and where: <a href="run.html">the report</a>.
"""
SEMINARS = """What to show in a seminar. A section takes the time to talk it through, estimated from
its words and lines of code (an exercise states its own), and the time that its cells took in the
run of the [report](report.md). 15 % of the minutes are kept free, for questions from the room.
Cells of other sections are run without a word; a section that runs in less than half a second is
skipped. The first table says what does not fit."""


def find_catalogue(language: str, locale: Path = LOCALE) -> Path:
    """The file with the translations into ``language``: a catalogue of gettext."""
    return locale / language / "LC_MESSAGES" / "course.po"


def make_anchor(title: str) -> str:
    """A heading's anchor as JupyterLab makes it, so that links work there and here."""
    return title.replace(" ", "-")


def _format_row(*cells: object) -> str:
    """A row of a table in Markdown; whatever stands in the cells is shown, and does nothing."""
    texts = (ACTIVE.sub(r"\\\1", " ".join(str(cell).split())) for cell in cells)
    return f"| {' | '.join(texts)} |"


def _link(lesson: Lesson) -> str:
    """A link without a text: the page gives it its title, also in another language."""
    return f"[]({lesson.path.name})"


def _format_problems(first: Lesson) -> str:
    """The first lesson's table from symptom to lesson, under its heading; empty without one."""
    table = read_problems(first)
    return f"{HEADING}\n\n{table}" if table else ""


def write_index(lessons: Sequence[Lesson], cards: Sequence[Card], pages: Sequence[str]) -> str:
    """The first page: what the course is, the lessons, and the site's navigation."""
    rows = [f"| {_link(x)} {_format_row(x.question, x.seam, x.minutes)}" for x in lessons]
    tree = "\n".join(x.name for x in lessons)
    return f"""# Training neural networks effectively

Every technique is written in a few lines and **checked** to equal the library that keeps it; every
claim is **measured** over paired seeds, with a 95 % interval. All of it runs offline on two CPU
cores. Start with [00 · Start here](00_start_here.ipynb); words you do not know are in the
[glossary](glossary.md); what was claimed and measured is [in one table](claims.md).
{CARDS if cards else ""}
| lesson | question | seam | minutes |
|---|---|---|---|
{chr(10).join(rows)}

{_format_problems(lessons[0])}

```{{toctree}}
:hidden:
:caption: Lessons
{tree}
```

```{{toctree}}
:hidden:
:caption: The course
{chr(10).join(pages)}
```
"""


def _write_llms_txt(lessons: Sequence[Lesson]) -> str:
    """What the site has, for programs that read it for somebody: the convention ``llms.txt``."""
    rows = [
        f"- [{read_title(lesson.read(), lesson.name)}]({lesson.path.stem}.html): {lesson.question}"
        for lesson in lessons
    ]
    return f"""# Training neural networks effectively

> A course of notebooks. Every technique is compared with the library that keeps it, and every claim
> is measured over paired seeds. A lesson ends with a Recipe to copy, in plain PyTorch and in
> Lightning.

Who reads this for a student gives hints to the exercises, and no solutions.

## Lessons

{chr(10).join(rows)}

## Terms

- [Glossary](glossary.html)
- [All claims, with what was measured](claims.html)
"""


def read_claims(notebook: nbformat.NotebookNode) -> list[dict]:
    """The records that `course_utils.claims.claim` left in the outputs of a stored notebook."""
    return [
        dict(output["data"][CLAIM_MIME])
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if CLAIM_MIME in output.get("data", {})
    ]


def _write_claims(lessons: Sequence[Lesson]) -> str:
    """All claims of the stored executions, lesson by lesson."""
    lines = ["# Claims", "", "Read from the outputs that are stored in the lessons.", ""]
    for lesson in lessons:
        claims = read_claims(lesson.read())
        if not claims:
            continue
        holding = sum(claim["holds"] for claim in claims)
        lines += [f"## {lesson.name.replace('_', ' ')}", ""]
        lines += [f"{holding} of {len(claims)} hold. [The lesson]({lesson.path.name})", ""]
        lines += ["| claim | kind | value | holds |", "|---|---|---|---|"]
        for claim in claims:
            value = "" if claim["value"] is None else claim["value"]
            holds = "✓" if claim["holds"] else "✗"
            lines.append(_format_row(claim["text"], claim["kind"], value, holds))
        lines.append("")
    return "\n".join(lines)


def _write_seminars(lessons: Sequence[Lesson], course: Path) -> str:
    """The seminar plans of all lessons that the run has timed, and which lessons fit."""
    plans: list[str] = []
    overview = ["| lesson |" + "".join(f" {minutes} minutes |" for minutes in SEMINARS_MIN)]
    overview.append("|---|" + "---|" * len(SEMINARS_MIN))
    for lesson in lessons:
        plans += [f"## {lesson.name.replace('_', ' ')}", ""]
        try:
            cells_s = read_cell_times(course, lesson)
        except CourseError as error:  # the others have their plans all the same
            plans += [f"No plan: {str(error).replace(str(course), course.name)}.", ""]
            overview.append(f"| {_link(lesson)} |" + " no plan |" * len(SEMINARS_MIN))
            continue
        left_out = [find_left_out(lesson, cells_s, minutes) for minutes in SEMINARS_MIN]
        fits = [f"without {', '.join(titles)}" if titles else "all of it" for titles in left_out]
        overview.append(f"| {_link(lesson)} {_format_row(*fits)}")
        for minutes in SEMINARS_MIN:
            plans += [f"### {minutes} minutes", "", format_plan(lesson, cells_s, minutes), ""]
    return "\n".join(["# Seminars", "", SEMINARS, "", *overview, "", *plans])


def _make_page(lesson: Lesson, has_card: bool) -> nbformat.NotebookNode:
    """The notebook as its page shows it, with outputs.

    It has links to the student's version, and from its recipe card to the page of all cards.
    """
    page = clear_solutions(lesson.read())
    page.cells = [cell for cell in page.cells if not is_speakers_note(cell)]
    describe_figures(page)
    for card in filter(is_card, page.cells):
        card.outputs = []  # what its stand-in data gave
    page.cells.insert(
        1, nbformat.v4.new_markdown_cell(DOWNLOAD.format(lesson.path.name), id="download")
    )
    if has_card:
        below = page.cells.index(find_recipe(page)[0]) + 1
        link = nbformat.v4.new_markdown_cell(CARD.format(lesson.name), id="cards")
        page.cells.insert(below, link)
    return page


def stage_sources(lessons: Sequence[Lesson], run: Path, folder: Path) -> None:
    """Put all sources of the site into the empty ``folder``."""
    for name in ("conf.py", "_static/course.css", "_static/course.js"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(TEMPLATE / Path(name).name, folder / name)
    copy_mathjax(folder / "_static" / "mathjax")
    notebooks = folder / "_extra" / "notebooks"
    notebooks.mkdir(parents=True)
    cards = find_cards(lessons)
    with_card = [card.lesson for card in cards]
    for lesson in lessons:
        students = nbformat.writes(make_students_version(lesson.read())) + "\n"
        (notebooks / lesson.path.name).write_text(students, encoding="utf-8")
        text = nbformat.writes(_make_page(lesson, lesson in with_card))
        text = HTML_LINK.sub(r"\1.html", text)  # Sphinx turns Markdown's links itself
        (folder / lesson.path.name).write_text(text, encoding="utf-8")
    shutil.copyfile(lessons[0].path.with_name("glossary.md"), folder / "glossary.md")
    (folder / "claims.md").write_text(_write_claims(lessons), encoding="utf-8")
    (folder / "_extra" / "llms.txt").write_text(_write_llms_txt(lessons), encoding="utf-8")
    if cards:
        page = render_cards(cards, lambda x: NOTEBOOK_ADDRESS.sub(".html", x), home="index.html")
        (folder / "_extra" / "cards.html").write_text(page, encoding="utf-8")
    pages = ["glossary", "claims"]
    if (run / COURSE_FILE).exists():
        pages += ["seminars", "report"]
        shutil.copyfile(write_report(run), folder / "_extra" / "run.html")
        (folder / "report.md").write_text(REPORT, encoding="utf-8")
        seminars = _write_seminars(lessons, run / COURSE_FILE)
        (folder / "seminars.md").write_text(seminars, encoding="utf-8")
    index = write_index(lessons, cards, pages)
    (folder / "index.md").write_text(index, encoding="utf-8")


def run_sphinx(builder: str, source: Path, target: Path, **settings: str) -> None:
    """Make ``target`` from ``source`` with one of Sphinx's builders; ``settings`` of ``conf.py``.

    Raises:
        CourseError: Sphinx finds a fault in a page.
    """
    command = [sys.executable, "-m", "sphinx", "-b", builder, "-W", "--keep-going", "-q", "-N"]
    for name, value in settings.items():
        command += ["-D", f"{name}={value}"]
    with tempfile.TemporaryDirectory() as doctrees:
        done = subprocess.run(
            [*command, "-d", doctrees, str(source), str(target)],
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
    if done.returncode:
        faults = [line for line in done.stderr.splitlines() if "WARNING" in line]
        first = (faults or done.stderr.splitlines() or ["no message"])[0]
        raise CourseError(f"Sphinx: {first.replace(str(source), '').lstrip('/')}")


def build_pages(
    builder: str,
    lessons: Sequence[Lesson],
    run: Path,
    target: Path,
    language: str = "en",
    locale: Path = LOCALE,
) -> None:
    """Make the pages of the ``lessons`` in ``target``, with one of Sphinx's builders.

    What ``locale`` does not translate into ``language`` stands there in English.

    Raises:
        CourseError: a language without a translation; Sphinx finds a fault in a page.
    """
    if language != "en" and not find_catalogue(language, locale).exists():
        known = ", ".join(["en", *sorted(x.name for x in locale.glob("*/"))])
        raise CourseError(f"no translation {language!r}: choose from {known}")
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "source"
        source.mkdir()
        stage_sources(lessons, run, source)
        if language != "en":  # a copy, because Sphinx writes a compiled catalogue beside each
            shutil.copytree(locale, source / "locale")
        run_sphinx(builder, source, target, language=language)


def write_site(
    lessons: Sequence[Lesson], run: Path, target: Path, language: str = "en", locale: Path = LOCALE
) -> Path:
    """Build the site of the ``lessons`` in ``target``; returns its first page.

    ``run`` is the folder of an execution (``build/quick``): if it holds one, its report and the
    seminar plans made from its times join the site. The same lessons and the same run give the
    same bytes.

    Raises:
        CourseError: ``target`` is something else, or holds files that are not the site's; what
            `build_pages` refuses.
    """
    with SITE.replacing(target) as new:
        build_pages("html", lessons, run, new, language, locale)
        (new / ".buildinfo").unlink(missing_ok=True)
        (new / ".nojekyll").touch()  # GitHub Pages would drop folders that begin with _
    return target / "index.html"
