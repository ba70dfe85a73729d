"""How ``course lab`` is started; what it looks like is a matter of tests/browser."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from course_tools.lab import lab
from course_tools.lab.identity import TokenProvider
from course_utils import doctor
from tests.places import ROOT

START_LIMIT_S = 120  # a guard against a hang, not a measurement
HOSTILE = """
c.IdentityProvider.token = ""
c.PasswordIdentityProvider.token = ""
c.TokenProvider.token = ""
c.ServerApp.token = ""
c.ServerApp.ip = "0.0.0.0"
c.ServerApp.identity_provider_class = "jupyter_server.auth.identity.IdentityProvider"
"""


def find_address(process, log):
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        text = log.read_text(encoding="utf-8")
        found = re.search(r"(http://127\.0\.0\.1:\d+)/\S*token=(\w+)", text)
        if found:
            return found.groups()
        assert process.poll() is None, text
        time.sleep(0.2)
    raise AssertionError(log.read_text(encoding="utf-8"))


def ask(address, token=""):
    """The status of a request that would start a kernel of a name that is not known."""
    headers = {"Authorization": f"token {token}"} if token else {}
    request = urllib.request.Request(
        f"{address}/api/kernels", b'{"name": "no_such_kernel"}', headers, method="POST"
    )
    try:
        return urllib.request.urlopen(request, timeout=60).status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_no_configuration_of_the_user_empties_the_token(tmp_path, monkeypatch):
    """The same in every file that Jupyter reads, and in the older spellings."""
    for name in ("jupyter_config", "jupyter_server_config", "jupyter_lab_config"):
        (tmp_path / f"{name}.py").write_text(HOSTILE)
    (tmp_path / "jupyter_server_config.json").write_text('{"IdentityProvider": {"token": ""}}')
    folders = {name: str(tmp_path / name) for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR")}
    folders |= {"JUPYTER_CONFIG_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    folders |= {f"JUPYTERLAB_{x}_DIR": str(tmp_path / x) for x in ("SETTINGS", "WORKSPACES")}
    log = tmp_path / "lab.log"
    command = [sys.executable, "-m", "course_tools", "lab", "--no-browser", "--port", "0"]
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env=os.environ | folders, cwd=tmp_path, stdout=file, stderr=file
        )
    try:
        address, token = find_address(process, log)
        assert ask(address) == 403
        assert ask(address, "wrong") == 403
        assert ask(address, token) not in (201, 403), "with the token, only the name is wrong"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def test_a_token_or_a_password_of_the_user_is_obeyed():
    assert TokenProvider(token="a long secret").token == "a long secret"
    assert len(TokenProvider(token="").token) == 48
    with_password = TokenProvider(hashed_password="argon2:x", token="")
    assert with_password.token == "", "a password protects the lab, too"
    assert TokenProvider(token="").token != TokenProvider(token="").token


def test_a_notebook_in_the_lab_imports_the_package_of_its_own_course():
    for before in ({}, {"PYTHONPATH": "/another/course"}):
        environment = lab.make_environment(before)
        assert environment["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)
        assert "" not in environment["PYTHONPATH"].split(os.pathsep), "the working folder"
    assert environment["PYTHONPATH"].split(os.pathsep)[1:] == ["/another/course"]


def test_a_student_has_no_teachers_tools_and_closed_notebooks_no_kernels():
    config = lab.SETTINGS / "labconfig"
    disabled = json.loads((config / "page_config.json").read_text())["disabledExtensions"]
    for name in ("create-assignment", "formgrader", "menu"):
        assert disabled[f"@jupyter/nbgrader:{name}"] is True
    assert "@jupyter/nbgrader:validate-assignment" not in disabled
    settings = json.loads((config / "default_setting_overrides.json").read_text())
    assert settings["@jupyterlab/notebook-extension:tracker"]["kernelShutdown"] is True


def test_the_layout_is_given_once_and_then_the_students(tmp_path):
    lab._open_contents(tmp_path / "lab")
    [workspace] = (tmp_path / "lab").iterdir()
    layout = json.loads(workspace.read_text())["data"]["layout-restorer:data"]
    assert layout["left"]["current"] == "@jupyterlab/toc:plugin"
    workspace.write_text("the student's")
    lab._open_contents(tmp_path / "lab")
    assert workspace.read_text() == "the student's"


def test_a_home_that_cannot_be_written_is_replaced(tmp_path, monkeypatch):
    (tmp_path / "home").write_text("")  # for root too: nothing can be made in a file
    (tmp_path / "fine").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(lab.tempfile, "tempdir", str(tmp_path))
    own = {"JUPYTER_CONFIG_DIR": str(tmp_path / "fine" / "jupyter")}
    environment = lab.make_environment(own)
    assert environment["JUPYTER_CONFIG_DIR"] == own["JUPYTER_CONFIG_DIR"], "it can be written"
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        assert environment[name].startswith(str(tmp_path / "course-lab-"))
    found = doctor._check_home()
    assert not found.required
    assert f"Jupyter cannot write to {tmp_path / 'home'}" in str(found)


def test_a_home_that_can_be_written_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not {"JUPYTER_RUNTIME_DIR", "IPYTHONDIR"} & set(lab.make_environment({}))
    assert doctor._check_home().ok


def test_kernels_of_the_lab_inherit_no_cluster_and_no_backend():
    given = {"SLURM_NTASKS": "2", "MPLBACKEND": "Agg", "PYTHONOPTIMIZE": "1", "LANG": "C"}
    environment = lab.make_environment(given)
    assert not {"SLURM_NTASKS", "MPLBACKEND", "PYTHONOPTIMIZE"} & set(environment)
    assert environment["LANG"] == "C"
