import os
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


def test_augmenting_asks_nobody_for_news(offline_environment):
    """The import of albumentations would look for a newer version, and warn where it cannot."""
    code = (
        "from course_utils.data.augment import train_transform; "
        "train_transform((0.5,) * 3, (0.2,) * 3)"
    )
    environment = os.environ | offline_environment
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stderr == ""
