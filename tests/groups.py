"""Which tests pytest-xdist runs in one worker, one after the other; all others it may part.

Its own mark for this, ``xdist_group``, has no effect under pytest 9.2, and nothing says so.
"""

from xdist.scheduler import LoadScopeScheduling

# These files make something once for all their tests ...
SHARING = (
    "test_exercises.py",
    "test_grading.py",
    "test_pipeline.py",
    "test_pretend.py",
    "test_puzzles.py",
    "test_release.py",
    "test_site.py",
    "test_tensor_parallel.py",
)
# ... and these tests ask the system for ports which a process of theirs takes a moment later:
# meanwhile none of the others may be given the same. (Kernels of the course have no ports; those
# that nbgrader starts do.)
ASKING_FOR_PORTS = (
    "test_torchrun.py",
    "test_ranks.py",
    "test_checkpoints.py",
    "test_nodes.py",
    "test_deepspeed.py",
    "04_warmup_cosine]",
    "09_ddp]",
    "20_sharding]",
    "test_nbgrader",
    "test_lab_listens",
    "test_a_dask_cluster",
)


def find_group(nodeid: str) -> str:
    """The same for all tests of one group; that of another test is its own name."""
    if any(part in nodeid for part in ASKING_FOR_PORTS):
        return "ports"
    return next((part for part in SHARING if part in nodeid), nodeid)


class GroupScheduling(LoadScopeScheduling):
    """Gives a worker one group after the other, those of many tests first."""

    def _split_scope(self, nodeid: str) -> str:
        return find_group(nodeid)
