import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from course_tools.run.report import write_report
from course_utils.errors import CourseError

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")


def make_run(comparison, arm, seed, accuracy):
    return {
        "comparison": comparison,
        "arm": arm,
        "seed": seed,
        "metrics": {"val_accuracy": accuracy},
        "time_s": 1.5,
        "examples_per_s": None,
        "trainable_parameters": 10,
        "parameters": 1000,
        "saved_bytes": None,
    }


def make_course():
    runs = [
        make_run(comparison, arm, seed, 0.5 + 0.1 * seed + 0.01 * (arm == "mixup"))
        for comparison, arms in {"short": ["baseline", "mixup"], "long": ["baseline"]}.items()
        for seed in range(3)
        for arm in arms
    ]
    claims = [
        {"text": "a < b & c", "kind": "identity", "holds": True, "value": 1e-7},
        {"text": "it <b>helps</b>", "kind": "effect", "holds": False, "value": None},
    ]
    cost = {"claims": [], "runs": [], "reason": "", "peak_memory_bytes": 10**9, "time_s": 12.3}
    cost["over_budget"] = False
    return {
        "profile": "quick",
        "dataset": "photos",
        "first_seed": 0,
        "hardware": {"cpu": "a processor", "gpu": None},
        "versions": {"torch": "2.0"},
        "commit": None,
        "lessons": [
            cost | {"name": "01_a", "status": "passed", "claims": claims, "runs": runs},
            cost | {"name": "02_b", "status": "failed", "reason": "cell 3: x"},
            cost | {"name": "03_c", "status": "passed", "over_budget": True},
        ],
    }


@pytest.fixture
def page(tmp_path):
    (tmp_path / "course.json").write_text(json.dumps(make_course()))
    return write_report(tmp_path)


def test_report_shows_lessons_claims_plots_and_provenance(page):
    text = page.read_text()
    assert text.count("<svg") == 2  # one for each comparison
    assert "a &lt; b &amp; c" in text
    assert "<b>helps</b>" not in text
    assert "cell 3: x" in text
    assert "a processor" in text
    assert "1 of 2" in text
    assert text.count("over budget") == 1
    assert "1,000</td>" in text  # MB
    HTMLParser().feed(text)


def test_a_lesson_that_was_skipped_has_passed_earlier(tmp_path):
    course = make_course()
    course["lessons"][2] |= {"status": "skipped", "reason": "unchanged since it passed"}
    (tmp_path / "course.json").write_text(json.dumps(course))
    text = write_report(tmp_path).read_text()
    assert '<span class="skipped">passed earlier</span>' in text
    assert "unchanged" not in text


def test_report_is_self_contained(page):
    names = r'xmlns[:\w]*="[^"]*"|<!DOCTYPE[^>]*>|<metadata>.*?</metadata>'  # XML's, not fetched
    text = re.sub(names, "", page.read_text(), flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)|url\((?!#)|https?://|@import""", text)


def test_every_link_leads_to_a_part_of_the_page(page):
    text = page.read_text()
    links = re.findall(r'<a href="#([^"]+)"', text)
    assert links == ["01_a"]  # a lesson without claims and trainings has no part
    assert set(links) <= set(re.findall(r'id="([^"]+)"', text))


def test_a_comparison_that_stopped_in_the_middle_is_drawn_from_its_full_seeds(tmp_path):
    course = make_course()
    runs = course["lessons"][0]["runs"]
    del runs[5]  # mixup at the last seed
    (tmp_path / "course.json").write_text(json.dumps(course))
    text = write_report(tmp_path).read_text()
    assert text.count("<svg") == 2
    course["lessons"][0]["runs"] = [runs[0], runs[3]]  # no seed in both arms
    (tmp_path / "course.json").write_text(json.dumps(course))
    assert "no seed was trained in every variant" in write_report(tmp_path).read_text()


def test_a_training_without_validation_is_listed(tmp_path):
    course = make_course()
    for run in course["lessons"][0]["runs"]:
        run["metrics"] = {"train_loss": 0.5}
    (tmp_path / "course.json").write_text(json.dumps(course))
    text = write_report(tmp_path).read_text()
    assert "<svg" not in text
    assert "9 trainings" in text


@pytest.mark.parametrize("content", ["{}", "[]", "null", '{"lessons": [{}]}'])
def test_a_file_of_another_form_is_named(tmp_path, content):
    (tmp_path / "course.json").write_text(content)
    with pytest.raises(CourseError, match=r"is damaged .* run course run --force"):
        write_report(tmp_path)


def test_report_is_the_same_for_the_same_results(page, tmp_path):
    before = page.read_text()
    assert write_report(tmp_path).read_text() == before


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_report_opens_in_a_browser_without_an_error(page, tmp_path):
    options = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"
    shown = subprocess.run(
        [
            CHROMIUM,
            *options.split(),
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--enable-logging=stderr",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert shown.stdout.count("<svg") == 2
    assert "CONSOLE" not in shown.stderr
