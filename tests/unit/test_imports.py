import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["course_utils", "course_utils.data", "course_utils.training"])
def test_heavy_packages_wait_until_they_are_needed(module):
    # transformers comes with peft, and torchmetrics imports it wherever it is installed
    heavy = ["timm", "albumentations", "cv2", "nvidia.dali", "peft"]
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
