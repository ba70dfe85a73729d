"""A simulated GPU: when it computes, and when it stands still."""

from typing import NamedTuple

__all__ = ["Span", "simulate_queue"]

DATA_US, QUEUE_US, KERNEL_US, KERNELS = 100.0, 20.0, 25.0, 10  # of a step


class Span(NamedTuple):
    """What ran from ``start`` on, in microseconds: data, queue, wait (Python), or device."""

    what: str
    start: float
    length: float


def simulate_queue(steps: int, wait: bool) -> list[Span]:
    """What Python and the device do, step by step.

    In each step Python reads the data and then queues the kernels, one after the other. The device
    runs a kernel when it is queued and the one before has ended.

    Args:
        steps: how many.
        wait: whether Python waits for the device at the end of each step, as for ``loss.item()``.
    """
    spans, python, device = [], 0.0, 0.0
    for _ in range(steps):
        spans.append(Span("data", python, DATA_US))
        python += DATA_US
        for _ in range(KERNELS):
            spans.append(Span("queue", python, QUEUE_US))
            python += QUEUE_US
            device = max(device, python)
            spans.append(Span("device", device, KERNEL_US))
            device += KERNEL_US
        if wait:
            spans.append(Span("wait", python, device - python))
            python = device
    return spans
