from jupyter_client.connect import LocalPortCache

from tests.ports import claim_ports, try_port


def test_nobody_else_is_given_the_ports_of_a_claim():
    socket, ports = claim_ports()
    other, others = claim_ports()
    with socket, other:
        assert not set(ports) & set(others)
        assert max(*ports, *others) < 32768  # below those that Linux gives away


def test_kernels_take_ports_of_their_own():
    found = [LocalPortCache.instance().find_available_port("127.0.0.1") for _ in range(6)]
    assert len(set(found)) == 6
    assert all(20_000 < port < 32_000 for port in found)
    for port in found:
        with try_port(port) as free:
            assert free
