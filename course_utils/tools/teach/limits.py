"""Limits of a process that runs the code of others: memory, and the size of a file."""

__all__ = ["MOST_FILE_BYTES", "limit_process"]

MOST_FILE_BYTES = 2**30  # of one file that is written


def limit_process(memory_gib: float) -> None:
    """Limit what this process, and each that it starts, may allocate (Linux) and write.

    Limits against accidents, not a sandbox. An allocation above the limit raises an error in
    Python and in PyTorch.

    Args:
        memory_gib: of each process, in GiB; on a system without such limits nothing happens.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    memory = int(memory_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE_BYTES, MOST_FILE_BYTES))
