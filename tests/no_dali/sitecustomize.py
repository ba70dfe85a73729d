"""Put this folder on PYTHONPATH and a Python process finds no DALI, and no network either."""

import runpy
import sys
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[1] / "no_network" / "sitecustomize.py"))
sys.modules["nvidia.dali"] = None
