"""A Chromium, where the machine has one: it prints pages."""

import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["INSTALL", "find_chromium", "print_page"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL = "install it (apt-get install chromium)"
TIME_LIMIT_S = 900  # a guard against a hang


def find_chromium() -> str | None:
    """The program's path; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def print_page(page: Path, pdf: Path, wait_s: float = 0) -> str:
    """Print a page of the disk to the file ``pdf``; why it was not printed, or an empty text.

    ``wait_s``: how long its scripts may work before, on a clock that does not wait when they do.
    """
    chromium = find_chromium()
    if chromium is None:
        return f"no Chromium on this machine: {INSTALL}"
    with tempfile.TemporaryDirectory() as profile:  # not the one of a browser that is open
        options = ["--headless", "--disable-gpu", f"--user-data-dir={profile}"]
        # root has no sandbox, nor have most containers; the page is the course's own
        options += ["--no-sandbox", "--no-pdf-header-footer", f"--print-to-pdf={pdf}"]
        if wait_s:
            options.append(f"--virtual-time-budget={round(1000 * wait_s)}")
        try:
            done = subprocess.run(
                [chromium, *options, page.as_uri()],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIME_LIMIT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{chromium} did not print it ({error})"
    if done.returncode or not pdf.exists():
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return f"{chromium} did not print it ({last})"
    return ""
