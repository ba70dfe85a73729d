"""Put this folder on PYTHONPATH and a Python process finds no course, and no network either."""

import runpy
import sys
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[1] / "no_network" / "sitecustomize.py"))
for name in ("course_utils", "course_tools", "lesson_code"):
    sys.modules[name] = None
