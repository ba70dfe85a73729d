from functools import partial
from types import SimpleNamespace

import pytest

from course_utils import doctor
from course_utils.data.photos import describe_photos
from course_utils.doctor import Finding, check_environment, find_package_faults, read_lock
from course_utils.models.backbone import BACKBONES, read_backbone, write_backbone
from course_utils.models.create import create_model


@pytest.fixture
def findings(monkeypatch):
    """Findings by name, with whatever the test has changed before it asks."""
    return lambda: {finding.name: finding for finding in check_environment()}


def test_every_check_is_one_line(findings):
    found = findings()
    assert list(found) == [
        "Python",
        "Settings",
        "Packages",
        "Compiler",
        "GPU",
        "DALI",
        "Memory",
        "Threads",
        "Disk",
        "Home",
        "Write access",
        "Data",
        "Photographs",
        "Backbone",
    ]
    assert all("\n" not in str(finding) for finding in found.values())
    assert all(finding.ok or "→" in str(finding) for finding in found.values())


def test_this_environment_is_as_locked(findings, pytestconfig):
    if pytestconfig.getoption("--newest"):
        pytest.skip("the newest packages are not the locked ones")
    assert findings()["Packages"].ok, findings()["Packages"]


def test_a_package_of_another_version_is_named(tmp_path):
    lock = tmp_path / "requirements.lock"
    lock.write_text(
        "# a comment\n"
        "numpy==0.1 \\\n    --hash=sha256:00\n"
        "no-such-package==1.0 ; sys_platform == 'plan9' \\\n    --hash=sha256:00\n"
        "no-such-other==1.0 \\\n    --hash=sha256:00\n"
    )
    pins = read_lock(lock)
    assert pins == {"numpy": "0.1", "no-such-other": "1.0"}
    wrong_version, missing = find_package_faults(pins, needed=["no-such-other"])
    assert wrong_version.startswith("numpy is ")
    assert wrong_version.endswith("locked is 0.1")
    assert missing == "no-such-other is not installed"
    assert len(find_package_faults(pins, needed=[])) == 1


def test_doctor_names_a_wrong_version(findings, monkeypatch):
    monkeypatch.setattr(doctor, "read_lock", lambda lock: {"numpy": "0.1"})
    found = findings()["Packages"]
    assert "locked is 0.1" in found.detail
    assert found.fix == "delete .venv and run make setup"


def test_little_memory(findings, monkeypatch):
    little = SimpleNamespace(available=2**30)
    monkeypatch.setattr(doctor.psutil, "virtual_memory", lambda: little)
    assert str(findings()["Memory"]).startswith("Memory: missing · 1.0 GiB free → close other")


def test_little_disk(findings, monkeypatch):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: SimpleNamespace(free=2**30))
    assert "free 2 GiB on the disk" in findings()["Disk"].fix


def test_no_write_access(tmp_path):
    (tmp_path / "file").write_text("")
    found = {f.name: f for f in check_environment(tmp_path)}
    assert found["Write access"].ok
    found = doctor._check_write_access(tmp_path / "file")
    assert "clone the course elsewhere" in found.fix


def test_dali_and_compiler_are_optional(findings, monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    found = findings()
    assert str(found["DALI"]).startswith("DALI: missing (optional) · not installed → pip install")
    assert "torch.compile" in found["Compiler"].fix
    assert not found["DALI"].required
    assert not found["Compiler"].required


def test_data_that_cannot_be_read(findings, monkeypatch):
    monkeypatch.setenv("COURSE_DATASET", "/no/such/folder")
    found = findings()["Data"]
    assert not found.ok
    assert "COURSE_DATASET=shapes" in found.fix


def test_finding_without_a_fix_is_ok():
    assert str(Finding("Python", "3.11")) == "Python: ok · 3.11"


def test_a_backbone_that_does_not_match_its_checksum(findings, monkeypatch, tmp_path):
    write_backbone(create_model("convnet_small", 2), "convnet_small", {}, tmp_path)
    (tmp_path / f"{BACKBONES['convnet_small']}.safetensors").write_bytes(b"something else")
    refused = partial(read_backbone, "convnet_small", tmp_path)
    monkeypatch.setattr("course_utils.models.backbone.read_backbone", refused)
    found = findings()["Backbone"]
    assert "sha256 differs" in found.detail
    assert found.fix.startswith("restore it with `git checkout data/weights`")


def test_photographs_that_are_intact(findings, monkeypatch):
    monkeypatch.setenv("COURSE_DATASET", "photos")
    found = findings()
    assert str(found["Photographs"]) == (
        "Photographs: ok · checksums verified, 8,000 train and 2,000 test"
    )
    assert found["Data"].detail == "photos: 8,000 images of 10 classes"


@pytest.mark.parametrize("dataset", ["photos", "shapes"])
def test_photographs_that_are_missing(findings, monkeypatch, tmp_path, dataset):
    """They are required only where they are the data set."""
    monkeypatch.setenv("COURSE_DATASET", dataset)
    monkeypatch.setattr(
        "course_utils.data.photos.describe_photos", lambda *folder: describe_photos(tmp_path)
    )
    found = findings()["Photographs"]
    assert found.detail.endswith("photos.json is missing or damaged")
    assert found.fix.startswith("restore it with `git checkout data/photos`")
    assert found.required == (dataset == "photos")
