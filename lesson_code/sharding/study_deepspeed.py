"""What lesson 20 reads about DeepSpeed: losses and bytes of two CPU ranks, by stage of ZeRO.

They are the same in every run, so one run is stored. It takes half a minute, and DeepSpeed, which
is an extra of the course:

    DS_BUILD_OPS=0 .venv/bin/python -m pip install --no-build-isolation -e '.[deepspeed]'
    .venv/bin/python -m lesson_code.sharding.study_deepspeed
"""

import os
import tempfile
from importlib.metadata import version
from pathlib import Path

from course_tools.study.keep import keep
from lesson_code.sharding.deepspeed_extra import DEPTH, STEPS, TEXTS, run
from lesson_code.sharding.zero import make_model


def main() -> None:
    """Run it, and keep what it gives in the JSON file beside this one."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # of the files that the ranks hand on
        found = run()
        os.chdir("/")
    keep(
        Path(__file__).with_suffix(".json"),
        "python -m lesson_code.sharding.study_deepspeed",
        deepspeed=version("deepspeed"),
        parameters=sum(parameter.numel() for parameter in make_model(DEPTH).parameters()),
        steps=STEPS,
        texts=TEXTS,
        **found,
    )


if __name__ == "__main__":
    main()
