import multiprocessing

import numpy as np
import pytest

from lesson_code.dali.worker_memory import measure_workers

needs_fork = pytest.mark.skipif(
    multiprocessing.get_start_method() != "fork", reason="workers are not forked here"
)
MB = 1_000_000


def mean_private(items):
    found = measure_workers(items)
    assert len(found) == 2
    assert all(worker.rss == worker.private + worker.shared > 0 for worker in found)
    assert all(worker.shared > worker.private for worker in found)
    return sum(worker.private for worker in found) / 2


@needs_fork
def test_reading_a_list_of_objects_copies_it_and_reading_an_array_does_not():
    """Each object's reference count is written into its page, whoever only reads the object."""
    names = [f"train/{number:06d}.jpg" for number in range(400_000)]
    nothing = mean_private([])
    as_list = mean_private(names) - nothing
    as_array = mean_private(np.array(names, dtype="S")) - nothing
    assert as_list > 20 * MB  # about 70 bytes a name
    assert as_array < as_list / 4
