"""A plugin for pytest (``-p tests.notebooks.nbval_over_ipc``): nbval starts its kernels over IPC.

nbval reads no configuration of Jupyter, and has no option for it.
"""

import nbval.kernel

from course_utils.tools.run.kernel_manager import IPCKernelManager

nbval.kernel.KernelManager = IPCKernelManager
