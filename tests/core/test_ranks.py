import psutil
import pytest

from course_utils.errors import CourseError
from course_utils.ranks import ON_CPU, run_ranks

PART = """
import torch.distributed as dist


def measure(rank, size, factor=1):
    all_ranks = [None] * size
    dist.all_gather_object(all_ranks, factor * rank)
    print(f"of {size}")
    return {__name__: all_ranks}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_parts_run_in_one_start_and_rank_0_answers(folder, capsys):
    for name in ("one", "other"):
        (folder / f"{name}.py").write_text(PART)
    found = run_ranks("one", "other", arguments={"factor": 5}, environment=ON_CPU)
    assert found == {"one": [0, 5], "other": [0, 5]}
    assert capsys.readouterr().out == "[rank 0] of 2\n" * 2 + "[rank 1] of 2\n" * 2


def test_a_rank_that_dies_is_one_sentence_and_nothing_is_left(folder):
    died = "import os, signal\n\ndef measure(rank, size):\n    if rank:\n        "
    (folder / "deadly.py").write_text(died + "os.kill(os.getpid(), signal.SIGKILL)\n")
    with pytest.raises(CourseError, match=r"rank 1 was killed \(SIGKILL") as found:
        run_ranks("deadly", environment=ON_CPU)
    assert "\n" not in str(found.value)
    commands = [" ".join(x.info["cmdline"] or []) for x in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if "deadly" in command]
