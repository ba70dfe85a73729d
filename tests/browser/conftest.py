"""A real browser (the system's Chromium) and what must not happen in it."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from course_tools.publish.browser import INSTALL, find_chromium
from tests.places import ROOT

START_LIMIT_S = 300  # a guard against a hang, not a measurement
CLAIM = "b:has(> span[style*='background'])"  # a claim's text, with its mark inside
LEAST_CONTRAST = 4.5  # of text, by the Web Content Accessibility Guidelines
# of an element's text and what is behind it
CONTRAST = """element => { const canvas = document.createElement('canvas').getContext('2d');
  const channels = text => { canvas.fillStyle = '#000'; canvas.fillStyle = text;
    canvas.clearRect(0, 0, 1, 1); canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  let behind = element;
  while (channels(getComputedStyle(behind).backgroundColor)[3] < 255) behind = behind.parentElement;
  const both = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor]
    .map(text => light(channels(text))).sort((a, b) => b - a);
  return (both[0] + 0.05) / (both[1] + 0.05); }"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = find_chromium()
    if found is None:
        pytest.exit(f"no Chromium on this machine: {INSTALL}", 2)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def list_barriers(page: Page) -> list[str]:
    """What shuts out readers with a keyboard, a screen reader or weak eyes: axe-core finds it."""
    found = Axe().run(page).response["violations"]
    return [f"{rule['id']}: {node['html'][:200]}" for rule in found for node in rule["nodes"]]


class Watch:
    """What a page asked of others, and what it complained about."""

    def __init__(self, page: Page, own: tuple[str, ...]):
        self.foreign: list[str] = []
        self.errors: list[str] = []
        own += ("data:", "blob:")
        page.on("request", lambda r: r.url.startswith(own) or self.foreign.append(r.url))
        page.on("websocket", lambda s: s.url.startswith(own) or self.foreign.append(s.url))
        page.on("requestfailed", lambda r: self.errors.append(f"failed: {r.url} {r.failure}"))
        page.on("console", lambda m: m.type == "error" and self.errors.append(m.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def assert_quiet(self) -> None:
        assert not self.foreign, "requests that leave the browser"
        assert not self.errors, self.errors


@pytest.fixture
def open_page(browser):
    """``open_page(url, own=…, width=…, …)`` gives a page and what was seen of it."""
    contexts = []

    def open_it(url: str, own: tuple[str, ...] = ("file:",), width=1280, height=800, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(START_LIMIT_S * 1000)
        watch = Watch(page, own)
        page.goto(url)
        return page, watch

    yield open_it
    for context in contexts:
        context.close()


COPIED = (
    "course_utils",
    "course_tools",
    "lesson_code",
    "notebooks",
    "data/photos",
    "data/results",
    "data/weights",
)


class Lab:
    """``course lab`` of a copy of the course, on a free port."""

    def __init__(self, root: Path):
        self.root, self.log = root, root / "lab.log"
        variables = {"PYTHONPATH": str(root), "COURSE_PROFILE": "smoke", "PYTHONUNBUFFERED": "1"}
        variables |= {"COURSE_RUNS_DIR": str(root / "runs"), "JUPYTER_RUNTIME_DIR": str(root / "r")}
        variables |= {
            f"JUPYTERLAB_{name}_DIR": str(root / name) for name in ("SETTINGS", "WORKSPACES")
        }
        command = [sys.executable, "-m", "course_tools", "lab", "--no-browser", "--port", "0"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=root, env=os.environ | variables, stdout=log, stderr=log
            )
        try:
            self.address, self.token = self.wait_for_address()
        except BaseException:
            self.stop()
            raise

    def wait_for_address(self) -> tuple[str, str]:
        deadline = time.monotonic() + START_LIMIT_S
        while not (found := re.search(r"(http://127\.0\.0\.1:\d+)/\S*token=(\w+)", self.read())):
            assert self.process.poll() is None, self.read()
            assert time.monotonic() < deadline, self.read()
            time.sleep(0.2)
        return found.groups()

    def read(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def url(self, name: str) -> str:
        return f"{self.address}/lab/tree/{name}?token={self.token}"

    @property
    def own(self) -> tuple[str, str]:
        return self.address, self.address.replace("http", "ws")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()


@pytest.fixture
def copied_course(tmp_path: Path) -> Path:
    """The course in a folder of its own: the lab saves notebooks."""
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", "runs", ".ipynb_checkpoints")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    return tmp_path


@pytest.fixture
def lab():
    """``lab(folder)`` starts ``course lab`` on the course in a folder."""
    labs = []

    def start(root: Path) -> Lab:
        labs.append(Lab(root))
        return labs[-1]

    yield start
    for started in labs:
        started.stop()
