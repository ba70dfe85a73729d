"""The service of lesson 24: bad requests, many at once, slow clients, and kill -9 in the middle."""

import contextlib
import http.client
import io
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
from PIL import Image, ImageOps
from torch import nn

from course_utils.data import read_image as read_image_module
from course_utils.data.read_image import read_image
from lesson_code.deployment import service as service_module
from lesson_code.deployment.client import encode_as_clients_do, encode_batch, list_bad_requests
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


def make_files():
    """Two large files, one of them turned by EXIF, and two small ones."""
    photographs = np.arange(4 * 32 * 32 * 3).reshape(4, 32, 32, 3) % 251
    return encode_as_clients_do(photographs.astype(np.uint8))


def read_files(files, folder):
    """Pixels ``(N, 3, 32, 32)`` as the training reads them, from a folder."""
    found = []
    for number, file in enumerate(files):
        path = folder / f"{number}.jpg"  # Pillow looks at the bytes
        path.write_bytes(file)
        found.append(torch.from_numpy(read_image(path).pixels.copy()).permute(2, 0, 1))
    return torch.stack(found)


def make_service(program=None, limits=None):
    program, files = program or Brightness(), make_files()
    with torch.no_grad():
        logits = program(torch.stack([decode(file, Limits()) for file in files]))
    return Service(Package(program, CLASSES, tuple(files), logits), limits)


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
    assert " at 0x" not in content["error"], "an object of Python"
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


def speak_and_wait(address, text):
    """The first bytes that come back while the client keeps its side open."""
    place = urlparse(address)
    with socket.create_connection((place.hostname, place.port), timeout=LIMIT_S) as line:
        line.sendall(text)
        return line.recv(1000)


POST = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n"
SPOKEN = {
    "no length": (b"411", POST + b"\r\n"),
    "a negative length": (b"411", POST + b"Content-Length: -1\r\n\r\n"),
    "a length in words": (b"411", POST + b"Content-Length: ten\r\n\r\n"),
    "a length of 4,000 digits": (b"413", POST + b"Content-Length: " + b"9" * 4000 + b"\r\n\r\n"),
    "two lengths": (b"400", POST + b"Content-Length: 3\r\nContent-Length: 5\r\n\r\nabcde"),
    "chunks": (b"400", POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
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


@pytest.mark.parametrize("name", ["two lengths", "chunks"])
def test_a_body_has_one_length(address, name):
    assert b"send one Content-Length" in speak(address, SPOKEN[name][1])


@pytest.mark.parametrize("path", ["/health", "/admin"])
def test_the_body_of_a_question_is_no_second_request(address, path):
    second = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    first = f"GET {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(second)}\r\n\r\n".encode()
    assert speak(address, first + second).count(b"HTTP/1.1 ") == 1


def test_no_read_may_last_longer_than_the_deadline(monkeypatch):
    """A client that is silent for less than `silence_s` must not stretch a request."""
    found, settimeout = [], socket.socket.settimeout

    def note(line, seconds):
        found.append(seconds)
        settimeout(line, seconds)

    monkeypatch.setattr(socket.socket, "settimeout", note)
    with open_service(make_service(limits=Limits(silence_s=60.0, deadline_s=0.5))) as address:
        assert b"408" in speak_and_wait(address, POST + b"Content-Length: 10\r\n\r\nabc")
    assert min(x for x in found if x) <= 0.5


def test_photographs_are_counted_before_they_are_decoded(monkeypatch):
    monkeypatch.setattr(service_module.base64, "b64decode", None)
    body = json.dumps({"images": ["AAAA"] * 17}).encode()
    with pytest.raises(Refusal, match="17 photographs, and at most 16"):
        make_service().predict(body, "application/json")


def test_limits_are_those_that_the_lesson_names():
    limits = Limits()
    assert limits.body_bytes == 4_000_000
    assert limits.pixels < 100_000_000
    assert limits.waiting == 64
    assert limits.deadline_s == 5


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


def save(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def list_kinds_of_file():
    """Encoded photographs that a reader of images can get wrong, by what is special."""
    rng = np.random.default_rng(0)
    wide = Image.fromarray(rng.integers(0, 256, (6, 9, 3), dtype=np.uint8)).resize((300, 200))
    kinds = {f"EXIF {turn}": turn for turn in range(1, 9)}
    files = {}
    for name, turn in kinds.items():
        exif = Image.Exif()
        exif[0x0112] = turn
        files[name] = save(wide, "JPEG", exif=exif)
        files[f"{name}, PNG"] = save(wide, exif=exif)
    deep = rng.integers(0, 65536, (40, 50), dtype=np.uint16)
    rgba = wide.convert("RGBA")
    rgba.putalpha(Image.linear_gradient("L").resize(wide.size))
    files |= {
        "16 bits": save(Image.fromarray(deep)),
        "12 of 16 bits": save(Image.fromarray(deep // 16)),
        "RGBA": save(rgba),
        "LA": save(rgba.convert("LA")),
        "a palette with transparency": save(wide.quantize(8), transparency=3),
        "CMYK": save(wide.convert("CMYK"), "JPEG"),
        "a large JPEG": save(wide.resize((1500, 1000)), "JPEG"),
        "smaller than 32": save(wide.resize((20, 12))),
        "of the right size": save(wide.resize((32, 32))),
    }
    return files | {mode: save(wide.convert(mode)) for mode in ("L", "P", "1")}


KINDS_OF_FILE = list_kinds_of_file()


@pytest.mark.parametrize("name", KINDS_OF_FILE)
def test_a_file_is_decoded_as_the_training_reads_it(name, tmp_path):
    body = KINDS_OF_FILE[name]
    (expected,) = read_files([body], tmp_path)
    assert torch.equal(decode(body, Limits()), expected)


def test_a_photograph_held_upright_is_turned_and_white_is_behind_what_is_transparent():
    top = np.zeros((64, 64, 3), dtype=np.uint8)
    top[:32] = 255
    lying = Image.fromarray(top).transpose(Image.Transpose.ROTATE_90)  # as the sensor stores it
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = decode(save(lying, "JPEG", exif=exif, quality=95), Limits()).float()
    assert pixels[:, :12].mean() > 240
    assert pixels[:, 20:].mean() < 15
    clear = Image.new("RGBA", (40, 40), (0, 0, 0, 0))
    assert decode(save(clear), Limits()).min() == 255
    grey = Image.fromarray(np.full((40, 40), 128 * 257, dtype=np.uint16))
    assert decode(save(grey), Limits()).unique().tolist() == [128]


def test_the_middle_of_a_photograph_is_read():
    pixels = np.zeros((32, 80, 3), dtype=np.uint8)
    pixels[:, 24:56] = 7
    found = decode(save(Image.fromarray(pixels)), Limits())
    assert torch.equal(found, torch.full((3, 32, 32), 7).byte())


def test_a_photograph_may_be_too_small(address):
    status, content = send(address, make_photograph(size=(7, 100)))
    assert status == 422
    assert content["error"] == "7 × 100 pixels: 8 are the least"


@pytest.mark.lesson_changed
def test_two_hundred_at_once_are_all_answered():
    """With places for few, the others are told to come again, and nobody waits for ever."""
    for waiting in (256, 8):
        with (
            open_service(make_service(limits=Limits(waiting=waiting))) as address,
            ThreadPoolExecutor(200) as clients,
        ):
            send(address, GOOD)
            statuses = list(clients.map(lambda _: send(address, GOOD)[0], range(200)))
            assert set(statuses) <= {200, 503}
            assert statuses.count(200) >= (200 if waiting > 200 else 1)
            assert send(address, GOOD)[0] == 200, "places are given back"


@pytest.mark.lesson_changed
def test_memory_stays_over_many_bad_requests(address):
    """Other tests' threads may allocate meanwhile, so the round that grows least decides."""
    process = psutil.Process()
    bodies = [BAD[name][1:] for name in ("100 megapixels", "half an image", "50 in one request")]

    def measure_growth():
        before = process.memory_info().rss
        for body, kind in bodies * 10:
            send(address, body, kind)
        return process.memory_info().rss - before

    assert min(measure_growth() for _ in range(5)) < 10e6
    assert threading.active_count() < 30, "a thread for each request stays"


def test_photographs_are_decoded_one_after_the_other(monkeypatch):
    """So that eight large ones at once take the memory of one, and a refused request takes none."""
    being_decoded, counts = [], []

    def decode_slowly(body, limits):
        being_decoded.append(body)
        time.sleep(0.05)
        counts.append(len(being_decoded))
        pixels = decode(body, limits)
        being_decoded.pop()
        return pixels

    monkeypatch.setattr(service_module, "decode", decode_slowly)
    large = save(Image.new("RGB", (2000, 1500)))
    limits = Limits(deadline_s=LIMIT_S)
    with open_service(make_service(limits=limits)) as address, ThreadPoolExecutor(8) as clients:
        answers = [clients.submit(send, address, GOOD) for _ in range(8)]
        assert [answer.result(LIMIT_S)[0] for answer in answers] == [200] * 8
        assert set(counts) == {1}
        decoded = len(counts)
        assert send(address, encode_batch(*[large] * 16), JSON)[0] == 413
        assert len(counts) == decoded


def test_a_slow_network_refuses_those_that_wait_too_long():
    slow, program = make_slow(Limits(waiting=3, deadline_s=0.2))
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
    service = make_service(limits=Limits(waiting=1, deadline_s=0.3, silence_s=0.3))
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


def test_it_does_not_start_if_the_network_is_another_one(tmp_path):
    files = make_files()
    logits = Brightness(4.0)(read_files(files, tmp_path)).detach()
    assert Service(Package(Brightness(4.0), CLASSES, tuple(files), logits)).check_health()
    for slope in (4.1, float("nan")):
        with pytest.raises(ValueError, match="differ by"):
            Service(Package(Brightness(slope), CLASSES, tuple(files), logits))


class Top(nn.Module):
    """Pixels to two logits that depend on the upper half and on the order of the channels."""

    def forward(self, pixels):
        x = pixels.float() / 255 * torch.tensor([1.0, 2.0, 4.0]).view(3, 1, 1)
        return torch.stack([x[:, :, :16].mean(dim=(1, 2, 3)), x.mean(dim=(1, 2, 3))], dim=1)


def read_without(step):
    """A reader of images that lacks a step of the course's."""

    def read(file):
        with Image.open(file) as image:
            image.load()
            if step != "EXIF":
                image = read_image_module._turn_upright(image)
            if step == "white":
                image = image.convert("RGBA").convert("RGB")
            image, _ = read_image_module._convert(image)
            if step == "crop":
                image = image.resize((32, 32))
            image = ImageOps.fit(image, (32, 32))
            if step == "RGB":
                image = Image.fromarray(np.asarray(image)[..., ::-1].copy())
        return read_image_module.Picture(np.asarray(image))

    return read


@pytest.mark.parametrize("step", ["EXIF", "white", "crop", "RGB"])
def test_it_does_not_start_if_files_are_decoded_in_another_way(step, tmp_path, monkeypatch):
    files = make_files()
    package = Package(Top(), CLASSES, tuple(files), Top()(read_files(files, tmp_path)))
    serving = Service(package)
    monkeypatch.setattr(service_module, "read_image", read_without(step))
    with pytest.raises(ValueError, match="differ by"):
        Service(package)
    with pytest.raises(Refusal, match="differ by"):
        serving.check_health()


class OtherAlone(Brightness):
    """As BatchNorm in train mode: an answer depends on the rest of its batch."""

    def forward(self, pixels):
        return super().forward(pixels) + (len(pixels) == 1)


def test_it_does_not_start_if_one_photograph_alone_gets_another_answer():
    with pytest.raises(ValueError, match="differ by"):
        make_service(OtherAlone())


def test_health_takes_a_place():
    slow, program = make_slow(Limits(waiting=1, deadline_s=5))
    with open_service(slow) as address, ThreadPoolExecutor(1) as clients:
        first = clients.submit(send, address, GOOD)
        assert program.begun.wait(LIMIT_S)
        start = time.monotonic()
        assert send(address, method="GET", path="/health")[0] == 503
        assert time.monotonic() - start < 4, "it is refused at once"
        program.may_go.set()
        assert first.result(LIMIT_S)[0] == 200


def test_a_deadline_is_that_of_the_whole_request(monkeypatch):
    """Decoding is part of it: of many large photographs the last ones are not read."""
    read = []

    def read_slowly(file):
        read.append(file)
        time.sleep(0.15)
        return read_image(file)

    monkeypatch.setattr(service_module, "read_image", read_slowly)
    serving = make_service(limits=Limits(deadline_s=0.3))
    read.clear()
    with pytest.raises(Refusal, match="send fewer") as refusal:
        serving.predict(encode_batch(*[GOOD] * 16), JSON)
    assert refusal.value.status == 503
    assert len(read) < 5
    assert serving.predict(GOOD, "image/png")["classes"], "the next one has its turn"


def test_pixels_count_for_the_whole_request():
    serving = make_service(limits=Limits(pixels=2 * 64))
    assert serving.predict(encode_batch(GOOD, GOOD), JSON)["classes"]
    with pytest.raises(Refusal, match="192 pixels together") as refusal:
        serving.predict(encode_batch(GOOD, GOOD, GOOD), JSON)
    assert refusal.value.status == 413


@pytest.mark.parametrize("width", [4000, 4001])
def test_the_limit_of_pixels_is_exact(width):
    limits = Limits(pixels=4000, side=1)
    body = make_photograph(size=(width, 1))
    if width <= limits.pixels:
        assert decode(body, limits).shape == (3, 32, 32)
    else:
        with pytest.raises(Refusal, match="4001 × 1 pixels"):
            decode(body, limits)


# ---- As a process of its own.


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    example = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    shapes = ({0: torch.export.Dim.DYNAMIC},)
    exported = torch.export.export(Brightness(), (example,), dynamic_shapes=shapes)
    files = make_files()
    logits = Brightness()(read_files(files, folder)).detach()
    save_package(folder / "package.pt2", exported, CLASSES, files, logits)
    return folder / "package.pt2"


def test_a_package_holds_what_was_put_in(package):
    found = load_package(package)
    assert found.class_names == CLASSES
    assert list(found.files) == make_files()
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
