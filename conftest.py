"""What all tests share: which of them run, no settings from outside, no files left behind."""

import os
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from course_utils.config import Config, load_config
from tests.places import CIFAR_ARCHIVE, NO_NETWORK, ROOT, find_notebooks
from tests.since import is_needed, list_changed

if TYPE_CHECKING:  # needs PyTorch, and many a test needs neither
    from course_utils.data.image_data import ImageData

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as `make test`: no test looks at the machine's load


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "the packages are the newest allowed, not the locked ones (make test-latest)"
    parser.addoption("--newest", action="store_true", help=text)
    text = "also what is slow and seldom fails: see CONTRIBUTING (make test-all)"
    parser.addoption("--nightly", action="store_true", help=text)
    text = "a revision: leave out the tests of what has not changed since then"
    parser.addoption("--since", default="", metavar="REV", help=text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    since = config.option.since
    changed = list_changed(since) if since else []

    def is_chosen(item: pytest.Item) -> bool:
        of_lesson = item.get_closest_marker("lesson_changed") is not None
        is_slow = item.get_closest_marker("nightly") or (of_lesson and not since)
        if is_slow and not config.option.nightly:
            return False
        return not since or is_needed(item.nodeid, changed, of_lesson=of_lesson)

    needed = [is_chosen(item) for item in items]
    if not all(needed):
        left = [item for item, is_one in zip(items, needed, strict=True) if not is_one]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item, is_one in zip(items, needed, strict=True) if is_one]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.option.since and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK  # nothing has changed that a test is about


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "notebook_path" in metafunc.fixturenames:
        paths = find_notebooks()
        metafunc.parametrize("notebook_path", paths, ids=[path.stem for path in paths])


@pytest.hookimpl(optionalhook=True)  # without xdist nobody asks
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from tests.groups import GroupScheduling

    return GroupScheduling(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what a test recorded as its summary: in a worker of xdist nothing can be printed."""
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == "summary":
                terminalreporter.write_line(text)


@pytest.fixture(autouse=True)
def _clean_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("COURSE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COURSE_RUNS_DIR", str(tmp_path / "runs"))


@pytest.fixture
def offline_environment() -> dict[str, str]:
    """Variables for a child process that must not reach the network."""
    return {"PYTHONPATH": os.pathsep.join([str(NO_NETWORK), str(ROOT)]), "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="session")
def cifar_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real CIFAR-10 images, 60 a class, where the archive is at hand."""
    if not CIFAR_ARCHIVE.exists():
        pytest.skip(f"no real images: {CIFAR_ARCHIVE.name} is not beside the repository")
    folder = tmp_path_factory.mktemp("images")
    taken: dict[Path, int] = {}
    with tarfile.open(CIFAR_ARCHIVE, "r|xz") as archive:
        for member in archive:
            parent = Path(member.name).parent
            taken[parent] = taken.get(parent, 0) + member.isfile()
            if member.isfile() and taken[parent] <= 60:
                (folder / parent).mkdir(parents=True, exist_ok=True)
                (folder / member.name).write_bytes(archive.extractfile(member).read())
    return folder / "cifar10"


@pytest.fixture(scope="session")
def tiny_config() -> Config:
    """A training that takes a second: few images, one epoch."""
    config = load_config("smoke", dataset="shapes")  # drawn: cheap, and without a file
    return config.replace(num_train=96, num_val=40, batch_size=16)


@pytest.fixture(scope="session")
def tiny_data(tiny_config: Config) -> "ImageData":
    from course_utils.data.load import load_data

    return load_data(tiny_config)
