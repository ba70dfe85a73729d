"""Ports for the kernels that this process starts, which no other process is given meanwhile.

jupyter_client lets the system choose free ports and closes them again; the kernel takes them a
second later. By then the system may have given one to a kernel of another pytest worker. Here the
ports come from below those that the system gives away.
"""

import itertools
import socket

from jupyter_client.connect import LocalPortCache

LENGTH = 1000  # ports of one process, of which a kernel takes five


def try_port(port: int) -> socket.socket | None:
    """A socket bound to the port; None where it is taken."""
    probe = socket.socket()
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        probe.close()
        return None
    return probe


def claim_ports() -> tuple[socket.socket, range]:
    """Ports of our own. They are ours as long as the socket, which holds the one before, is open.

    Linux gives away ports from 32768 on, other systems later ones.
    """
    starts = range(20_000, 32_000, LENGTH)
    return next((s, range(p + 1, p + LENGTH)) for p in starts if (s := try_port(p)))


def give_kernels_ports_of_their_own() -> socket.socket:
    """From now on, in this process; until the socket is closed no other process has the same."""
    claim, ports = claim_ports()
    candidates = itertools.cycle(ports)  # not one that was just in use

    def find_available_port(cache: LocalPortCache, ip: str) -> int:
        with next(probe for port in candidates if (probe := try_port(port))) as free:
            return free.getsockname()[1]

    LocalPortCache.find_available_port = find_available_port
    return claim
