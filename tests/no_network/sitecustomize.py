"""Put this folder on PYTHONPATH and a Python process can only connect to its own machine."""

import socket

_connect = socket.socket.connect
_getaddrinfo = socket.getaddrinfo
_HERE = ("127.", "::1", "localhost", "0.0.0.0")


def connect(self: socket.socket, address: object) -> None:
    if isinstance(address, tuple) and not str(address[0]).startswith(_HERE):
        raise OSError(f"network blocked by the tests: {address}")
    return _connect(self, address)


def getaddrinfo(host: object, *args: object, **kwargs: object) -> list:
    if host and not str(host).startswith(_HERE):
        raise OSError(f"network blocked by the tests: {host}")
    return _getaddrinfo(host, *args, **kwargs)


socket.socket.connect = connect
socket.getaddrinfo = getaddrinfo
