import os
import subprocess
import sys

import pytest

from course_tools.cli.start import find_shadow
from course_utils.files import ROOT, write_atomically

LIBRARY = os.path.dirname(os.__file__)


@pytest.mark.parametrize("name", ["random.py", "secrets.py", "tempfile/__init__.py", "typing.py"])
def test_a_module_that_takes_the_place_of_pythons_own_is_found(tmp_path, name):
    write_atomically(tmp_path / name, "")
    found = find_shadow(["/no/such/folder", str(tmp_path), LIBRARY], LIBRARY)
    assert found == str(tmp_path / name.split("/")[0])


@pytest.mark.parametrize("name", ["mine.py", "random.txt", "random/notes.txt", "test/__init__.py"])
def test_other_files_shadow_nothing(tmp_path, name):
    write_atomically(tmp_path / name, "")
    assert find_shadow([str(tmp_path), LIBRARY], LIBRARY) is None


def test_what_comes_after_pythons_own_modules_shadows_nothing(tmp_path):
    write_atomically(tmp_path / "random.py", "")
    assert find_shadow([LIBRARY, str(tmp_path)], LIBRARY) is None


def test_the_command_says_it_in_one_line(tmp_path):
    write_atomically(tmp_path / "secrets.py", "import no_such_module")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    command = [sys.executable, "-m", "course_tools", "list"]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "secrets: rename it, or take its folder out of PYTHONPATH" in done.stderr
    assert len(done.stderr.splitlines()) == 1
