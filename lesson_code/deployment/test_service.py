"""The service of lesson 24: bad requests, many at once, slow clients, and kill -9 in the middle."""

import contextlib
import http.client
import io
import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlparse

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from torch import nn

from lesson_code.deployment.client import encode_batch, list_bad_requests
from lesson_code.deployment.service import (
    Limits,
    Package,
    Refusal,
    Service,
    decode,
    load_package,
    open_service,
    save_package,
)

CLASSES = ("dark", "light")
JSON = "application/json"
START_LIMIT_S = 120  # a guard against a hang, not a measurement
LIMIT_S = 60


class Brightness(nn.Module):
    """Pixels of any size to two logits; answers at once."""

    def __init__(self, slope: float = 4.0):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(slope))

    def forward(self, pixels):
        x = self.slope * (pixels.float().mean(dim=(1, 2, 3)) / 255 - 0.5)
        return torch.stack([-x, x], dim=1)


class Slow(nn.Module):
    """Waits for a permission before it answers."""

    def __init__(self):
        super().__init__()
        self.may_go, self.begun = threading.Event(), threading.Event()

    def forward(self, pixels):
        self.begun.set()
        assert self.may_go.wait(LIMIT_S)
        return torch.zeros(len(pixels), 2)


def make_examples():
    return (
        torch.arange(4 * 3 * 8 * 8, dtype=torch.int64)
        .remainder(256)
        .to(torch.uint8)
        .view(4, 3, 8, 8)
    )


def make_service(program=None, limits=None):
    program = program or Brightness()
    examples = make_examples()
    with torch.no_grad():
        return Service(Package(program, CLASSES, examples, program(examples)), limits)


def make_slow(limits):
    """A service whose network stands still until ``may_go``."""
    program = Slow()
    program.may_go.set()
    slow = make_service(program, limits)
    program.may_go.clear()
    program.begun.clear()
    return slow, program


def make_photograph(value=200, size=(8, 8), kind="PNG"):
    file = io.BytesIO()
    Image.new("RGB", size, (value,) * 3).save(file, kind)
    return file.getvalue()


def send(address, body=b"", kind="image/png", method="POST", path="/predict", headers=None):
    """Status and content of one answer."""
    place = urlparse(address)
    with contextlib.closing(
        http.client.HTTPConnection(place.hostname, place.port, timeout=LIMIT_S)
    ) as connection:
        connection.request(method, path, body, {"Content-Type": kind} | (headers or {}))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")


GOOD = make_photograph()
BAD = list_bad_requests(torch.arange(3 * 64 * 64).remainder(251).to(torch.uint8).view(3, 64, 64))


@pytest.fixture(scope="module")
def address():
    with open_service(make_service()) as address:
        yield address


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_is_refused_with_a_sentence(address, name):
    status, body, kind = BAD[name]
    found, content = send(address, body, kind)
    assert found == status, content
    assert content["error"]
    assert send(address, GOOD)[0] == 200


def speak(address, text, wait_s=LIMIT_S):
    """What a client that writes its own HTTP gets."""
    place = urlparse(address)
    with socket.create_connection((place.hostname, place.port), timeout=wait_s) as line:
        line.sendall(text)
        line.shutdown(socket.SHUT_WR)
        parts = []
        with contextlib.suppress(ConnectionError):
            while part := line.recv(65_536):
                parts.append(part)
    return b"".join(parts)


POST = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n"
SPOKEN = {
    "no length": (b"411", POST + b"\r\n"),
    "a negative length": (b"411", POST + b"Content-Length: -1\r\n\r\n"),
    "a length in words": (b"411", POST + b"Content-Length: ten\r\n\r\n"),
    "a length of 4,000 digits": (b"413", POST + b"Content-Length: " + b"9" * 4000 + b"\r\n\r\n"),
    "fewer bytes than said": (b"400", POST + b"Content-Length: 100\r\n\r\nabc"),
    "no HTTP": (b"400", b"hello\r\n\r\n"),
    "another method": (b"501", b"DELETE /predict HTTP/1.1\r\nHost: x\r\n\r\n"),
    "another path": (b"404", b"GET /admin HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a path upwards": (b"404", b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a long header": (b"431", POST + b"X: " + b"a" * 70_000 + b"\r\n\r\n"),
}


@pytest.mark.parametrize("name", SPOKEN)
def test_bad_http_is_refused(address, name):
    status, text = SPOKEN[name]
    assert status in speak(address, text).split(b"\r\n")[0]
    assert send(address, GOOD)[0] == 200


def test_there_are_forty_bad_requests():
    assert len(BAD) + len(SPOKEN) >= 40


def test_answers_are_those_of_the_network(address):
    for value in (0, 100, 255):
        status, content = send(address, make_photograph(value))
        expected = Brightness()(torch.full((1, 3, 8, 8), value)).softmax(dim=1)[0]
        assert status == 200
        assert content["probabilities"][0] == pytest.approx(expected.tolist(), abs=1e-5)
        assert content["classes"] == [CLASSES[int(expected.argmax())]]
    files = [make_photograph(value, size) for value, size in ((10, (8, 8)), (250, (30, 20)))]
    status, content = send(address, encode_batch(*files), JSON)
    assert status == 200
    assert content["classes"] == ["dark", "light"]
    assert send(address, make_photograph(kind="JPEG"), "image/jpeg")[0] == 200
    status, content = send(address, method="GET", path="/health", kind="")
    assert status == 200
    assert content["largest_difference"] < 1e-6


def test_grey_and_transparent_photographs_become_rgb():
    for mode in ("L", "RGBA", "P", "1", "LA"):
        file = io.BytesIO()
        Image.new(mode, (5, 4)).save(file, "PNG")
        assert decode(file.getvalue(), Limits(side=4)).shape == (3, 4, 4)


def test_the_middle_of_a_photograph_is_read():
    pixels = np.zeros((8, 20, 3), dtype=np.uint8)
    pixels[:, 6:14] = 7
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    assert torch.equal(decode(file.getvalue(), Limits()), torch.full((3, 8, 8), 7).byte())


def test_a_photograph_may_be_too_small(address):
    status, content = send(address, make_photograph(size=(7, 100)))
    assert status == 422
    assert content["error"] == "7 × 100 pixels: 8 are the least"


def test_two_hundred_at_once_are_all_answered():
    """With places for few, the others are told to come again, and nobody waits for ever."""
    process = psutil.Process()
    for waiting in (256, 8):
        with (
            open_service(make_service(limits=Limits(waiting=waiting))) as address,
            ThreadPoolExecutor(200) as clients,
        ):
            send(address, GOOD)
            before = process.memory_info().rss
            statuses = list(clients.map(lambda _: send(address, GOOD)[0], range(200)))
            assert set(statuses) <= {200, 503}
            assert statuses.count(200) >= (200 if waiting > 200 else 1)
            assert send(address, GOOD)[0] == 200, "places are given back"
            assert process.memory_info().rss - before < 200e6


def test_memory_stays_over_many_bad_requests(address):
    process = psutil.Process()
    bodies = [BAD[name][1:] for name in ("100 megapixels", "half an image", "50 in one request")]
    for body, kind in bodies:
        send(address, body, kind)
    before = process.memory_info().rss
    for body, kind in itertools.islice(itertools.cycle(bodies), 150):
        send(address, body, kind)
    assert process.memory_info().rss - before < 50e6
    assert threading.active_count() < 30, "a thread for each request stays"


def test_a_slow_network_refuses_those_that_wait_too_long():
    slow, program = make_slow(Limits(waiting=3, wait_s=0.2))
    with open_service(slow) as address, ThreadPoolExecutor(8) as clients:
        first = clients.submit(send, address, GOOD)
        assert program.begun.wait(LIMIT_S)
        others = [clients.submit(send, address, GOOD) for _ in range(5)]
        statuses = [other.result(LIMIT_S)[0] for other in others]
        assert statuses == [503] * 5
        assert send(address, method="GET", path="/health")[0] == 503
        program.may_go.set()
        assert first.result(LIMIT_S)[0] == 200
        assert send(address, GOOD)[0] == 200


@pytest.mark.parametrize("pause_s", [0.0, 0.1])
def test_a_slow_client_is_left_and_does_not_hold_the_others(pause_s):
    """One that says nothing more, and one that sends a byte from time to time."""
    service = make_service(limits=Limits(waiting=1, read_s=0.3))
    with open_service(service) as address:
        place = urlparse(address)
        start = time.monotonic()
        with socket.create_connection((place.hostname, place.port), timeout=LIMIT_S) as line:
            line.sendall(POST + b"Content-Length: 1000\r\n\r\n")
            with contextlib.suppress(OSError):
                while pause_s and time.monotonic() < start + 3:
                    line.sendall(b"x")
                    time.sleep(pause_s)
            with contextlib.suppress(ConnectionError):
                assert b"408" in line.recv(1000) or pause_s
        assert time.monotonic() < start + LIMIT_S / 2
        assert send(address, GOOD)[0] == 200, "its place is free"


def test_a_client_that_goes_away_ends_nothing(address):
    place = urlparse(address)
    for text in (
        b"",
        POST,
        POST + b"Content-Length: 10\r\n\r\nabc",
        b"GET /health HTTP/1.1\r\n\r\n",
    ):
        with socket.create_connection((place.hostname, place.port)) as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            line.sendall(text)  # and then a reset
    assert send(address, GOOD)[0] == 200


class Broken(nn.Module):
    """What a network says when its weights are damaged."""

    def __init__(self):
        super().__init__()
        self.value = 0.0

    def forward(self, pixels):
        if self.value == "raise":
            raise RuntimeError("a secret path")
        return torch.full((len(pixels), 2), self.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "raise"])
def test_a_fault_of_the_network_is_a_500_without_details(value):
    program = Broken()
    with open_service(make_service(program)) as address:
        program.value = value
        status, content = send(address, GOOD)
        assert status == 500
        assert "secret" not in content["error"]
        assert send(address, method="GET", path="/health")[0] == 500
        program.value = 0.0
        assert send(address, GOOD)[0] == 200


def test_it_does_not_start_if_it_computes_something_else():
    examples = make_examples()
    logits = Brightness(4.0)(examples).detach()
    for slope in (4.1, float("nan")):
        with pytest.raises(ValueError, match="differ by"):
            Service(Package(Brightness(slope), CLASSES, examples, logits))


@pytest.mark.parametrize("width", [4000, 4001])
def test_the_limit_of_pixels_is_exact(width):
    limits = Limits(pixels=4000, side=1)
    body = make_photograph(size=(width, 1))
    if width <= limits.pixels:
        assert decode(body, limits).shape == (3, 1, 1)
    else:
        with pytest.raises(Refusal, match="4001 × 1 pixels"):
            decode(body, limits)


# ---- As a process of its own.


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "package.pt2"
    dynamic = torch.export.Dim.DYNAMIC
    shapes = ({0: dynamic, 2: dynamic, 3: dynamic},)
    examples = make_examples()
    larger = torch.zeros(2, 3, 12, 10, dtype=torch.uint8)
    exported = torch.export.export(Brightness(), (larger,), dynamic_shapes=shapes)
    save_package(path, exported, CLASSES, examples, Brightness()(examples).detach())
    return path


def test_a_package_holds_what_was_put_in(package):
    found = load_package(package)
    assert found.class_names == CLASSES
    assert torch.equal(found.examples, make_examples())
    assert found.find_difference() < 1e-6
    assert np.isfinite(found.logits.numpy()).all()


def start(package, port=0):
    command = [sys.executable, "-m", "lesson_code.deployment.service", str(package)]
    process = subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    watchdog = threading.Timer(START_LIMIT_S, process.kill)
    watchdog.start()
    address = process.stdout.readline().strip()
    watchdog.cancel()
    assert address.startswith("http://127.0.0.1:"), "it did not start"
    return process, address


@pytest.mark.lesson_changed
def test_kill_in_the_middle_of_two_hundred_requests(package):
    """No client hangs, and a new process answers at the same address."""
    process, address = start(package)
    seen = []

    def ask(number):
        if number == 100:
            process.send_signal(signal.SIGKILL)
        try:
            seen.append(send(address, GOOD)[0])
        except (OSError, http.client.HTTPException):
            seen.append("lost")

    begin = time.monotonic()
    with ThreadPoolExecutor(20) as clients:
        list(clients.map(ask, range(200)))
    process.wait(LIMIT_S)
    assert time.monotonic() < begin + LIMIT_S
    assert len(seen) == 200
    assert set(seen) <= {200, 503, "lost"}
    assert "lost" in seen
    assert 200 in seen
    again, found = start(package, urlparse(address).port)
    try:
        assert found == address
        assert send(address, GOOD)[0] == 200
        assert send(address, method="GET", path="/health")[0] == 200
    finally:
        again.kill()
        again.wait(LIMIT_S)
