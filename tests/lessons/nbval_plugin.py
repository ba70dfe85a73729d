"""A plugin for pytest (``-p tests.lessons.nbval_plugin``) that adds two things to nbval.

Kernels start over IPC: nbval reads no configuration of Jupyter, and has no option for it. And the
executed notebook is written into the folder in which pytest was started.
"""

import nbformat
import nbval.kernel
import pytest

from course_tools.run.kernel_manager import IPCKernelManager

nbval.kernel.KernelManager = IPCKernelManager


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Put what the cell gave into the notebook, and write it after the last cell."""
    item.cell.outputs = item.test_outputs or []
    if nextitem is None:
        nbformat.write(item.parent.nb, item.config.invocation_params.dir / item.path.name)
