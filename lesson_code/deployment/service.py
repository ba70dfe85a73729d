"""A service for photographs over HTTP, of Python's standard library alone.

``POST /predict`` takes one photograph, or JSON with several, and answers with probabilities.
``GET /health`` says whether files still get the logits that were validated. Whatever else comes is
refused with a status and a sentence, before it costs memory or time. A framework such as FastAPI
takes over routes and parsing, and none of the limits below.

Photographs are decoded by the course's own reader, `course_utils.data.read_image`: what a service
does to a file has to be what the training did. One request at a time is parsed, decoded and
answered. Of the others, which wait, only the bodies are in memory.

A client that sends its *headers* byte by byte holds a thread, although none of the places, because
the standard library reads headers without a deadline. A proxy in front, such as nginx, ends it.

    python -m lesson_code.deployment.service served.pt2 --port 8000
"""

import argparse
import base64
import binascii
import contextlib
import io
import json
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from course_utils.data.read_image import describe_damage, read_image
from course_utils.errors import CourseError

__all__ = [
    "Limits",
    "Package",
    "Refusal",
    "Service",
    "decode",
    "load_package",
    "open_service",
    "save_package",
]

ABOUT = "about.json"  # in the file of the program
IMAGES = ("image/jpeg", "image/png")
FORMATS = ("JPEG", "PNG")  # of Pillow: it may open no other one
JSON = "application/json"
CLOSE_S = 5  # that a service waits for its threads when it ends

# Pillow warns when it reads the header of a large image, which `decode` refuses anyway.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class Limits(NamedTuple):
    """What one request may cost."""

    body_bytes: int = 4_000_000
    pixels: int = 12_000_000  # of all photographs together; read from headers, before decoding
    side: int = 8  # pixels that a photograph has at least
    photographs: int = 16
    waiting: int = 64  # requests that are read, or wait for the network, at once
    deadline_s: float = 5.0  # from the end of its headers to its answer
    silence_s: float = 5.0  # that a client may be silent


class Refusal(Exception):
    """A request that is not answered: a status of HTTP, and why."""

    def __init__(self, status: HTTPStatus, reason: str):
        super().__init__(reason)
        self.status = status


class Package(NamedTuple):
    """What is served: a program, its classes, and files with the logits that were validated."""

    program: torch.nn.Module  # pixels (N, 3, S, S) uint8 to logits (N, C)
    class_names: tuple[str, ...]
    files: tuple[bytes, ...]  # M of them, JPEG or PNG
    logits: Tensor  # (M, C)

    def find_difference(self) -> float:
        """The largest difference of a logit of the files from the validated one.

        NaN where an answer is not finite.
        """
        pixels = torch.stack([decode(file, Limits()) for file in self.files])
        with torch.inference_mode():
            found = torch.cat([self.program(pixels), self.program(pixels[:1])])  # and one alone
        return float((found - torch.cat([self.logits, self.logits[:1]])).abs().max())


def save_package(
    path: Path,
    exported: torch.export.ExportedProgram,
    class_names: Sequence[str],
    files: Sequence[bytes],
    logits: Tensor,
) -> None:
    """One file with everything that `load_package` returns.

    Args:
        exported: maps pixels ``(N, 3, S, S)`` uint8 to logits ``(N, C)``.
        files: M photographs as clients send them: small and large ones, some turned by EXIF.
        logits: ``(M, C)``: those that the validated network gave to the files, by the training's
            own reader, and not those of the exported program.
    """
    about = {
        "class_names": list(class_names),
        "files": [base64.b64encode(file).decode("ascii") for file in files],
        "logits": logits.tolist(),
    }
    torch.export.save(exported, path, extra_files={ABOUT: json.dumps(about)})


def load_package(path: Path) -> Package:
    """The program of a file and what was stored beside it.

    Like every ``.pt2`` file it is read by pickle, which can run code: open your own files alone.
    """
    files = {ABOUT: ""}
    exported = torch.export.load(path, extra_files=files)
    about = json.loads(files[ABOUT])
    return Package(
        exported.module(),
        tuple(about["class_names"]),
        tuple(base64.b64decode(file) for file in about["files"]),
        torch.tensor(about["logits"]),
    )


def read_size(body: bytes, limits: Limits) -> int:
    """Pixels of one photograph, from its header. Nothing is decoded.

    Raises:
        Refusal: it is no JPEG or PNG, is damaged, or has too many pixels or too few.
    """
    if not body:
        raise Refusal(HTTPStatus.BAD_REQUEST, "the photograph is empty")
    try:
        with Image.open(io.BytesIO(body), formats=FORMATS) as image:
            width, height = image.size
            if width * height <= limits.pixels:
                image.verify()  # checksums of a PNG, which the reader does not look at
    except Exception as error:  # Pillow's parsers raise whatever they stumble over
        reason = f"no photograph: {describe_damage(error)}"
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, reason) from None
    if width * height > limits.pixels:
        reason = f"{width} × {height} pixels: at most {limits.pixels:,} are read"
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
    if min(width, height) < limits.side:
        reason = f"{width} × {height} pixels: {limits.side} are the least"
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, reason)
    return width * height


def decode(body: bytes, limits: Limits) -> Tensor:
    """One photograph as the course reads files, ``(3, 32, 32)`` uint8 in RGB.

    Raises:
        Refusal: it is no JPEG or PNG, is damaged, or has too many pixels or too few.
    """
    read_size(body, limits)
    try:
        picture = read_image(io.BytesIO(body))  # type: ignore[arg-type]  # Pillow opens both
    except CourseError as error:
        reason = f"a damaged photograph: {error}"
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, reason) from None
    return torch.from_numpy(picture.pixels.copy()).permute(2, 0, 1)


def _read_bodies(body: bytes, kind: str, limits: Limits) -> list[bytes]:
    """The files of one request."""
    if kind in IMAGES:
        return [body]
    if kind != JSON:
        reason = f"{kind or 'no type'} is not read: send {', '.join((*IMAGES, JSON))}"
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)
    form = Refusal(HTTPStatus.BAD_REQUEST, 'send {"images": [a file in base64, …]}')
    try:
        files = json.loads(body)["images"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise form from None
    if not isinstance(files, list):
        raise form
    if not files:
        raise Refusal(HTTPStatus.BAD_REQUEST, "an empty batch")
    if len(files) > limits.photographs:  # before any of them is decoded
        reason = f"{len(files)} photographs, and at most {limits.photographs} are read"
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
    try:
        return [base64.b64decode(file, validate=True) for file in files]
    except (ValueError, TypeError, binascii.Error):
        raise form from None


def _check_sizes(files: list[bytes], limits: Limits) -> None:
    """Refuse a request with too many pixels, before any of them is decoded."""
    total = sum(read_size(file, limits) for file in files)
    if total > limits.pixels:
        reason = f"{total:,} pixels together: at most {limits.pixels:,} are read"
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)


class Service:
    """Answers requests one after the other, and refuses what it cannot answer in time.

    Args:
        package: what is served.
        limits: of one request.
        tolerance: the largest difference of a logit of the package's files.

    Raises:
        ValueError: files do not get the logits that were validated.
    """

    def __init__(self, package: Package, limits: Limits | None = None, tolerance: float = 1e-3):
        self.package, self.limits, self.tolerance = package, limits or Limits(), tolerance
        self._places = threading.BoundedSemaphore(self.limits.waiting)
        self._turn = threading.Lock()  # one request decodes and computes: it has all threads
        difference = package.find_difference()
        if not difference <= tolerance:
            raise ValueError(
                f"logits of the stored files differ by {difference:.2g} from the validated ones, "
                f"and {tolerance:g} is allowed: the same program, version, reader of images?"
            )

    @contextlib.contextmanager
    def enter(self) -> Iterator[None]:
        """A place for one request.

        Raises:
            Refusal: all places are taken.
        """
        if not self._places.acquire(blocking=False):
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once: try later")
        try:
            yield
        finally:
            self._places.release()

    @contextlib.contextmanager
    def _take_turn(self, end: float) -> Iterator[None]:
        """Wait for the requests before this one.

        Raises:
            Refusal: that takes longer than to ``end``, in the seconds of `time.monotonic`.
        """
        if not self._turn.acquire(timeout=max(0.0, end - time.monotonic())):
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the network is busy: try later")
        try:
            yield
        finally:
            self._turn.release()

    def predict(self, body: bytes, kind: str, end: float | None = None) -> dict[str, Any]:
        """The answer to one request, by the name of what it holds.

        Args:
            body: a JPEG or PNG, or JSON with several in base64.
            kind: its type, such as ``"image/png"``.
            end: the deadline, in the seconds of `time.monotonic`; None: that of the limits, from
                now on.

        Raises:
            Refusal: it cannot be answered; the reason is for the client.
        """
        end = self.find_deadline() if end is None else end
        photographs = []
        with self._take_turn(end):
            files = _read_bodies(body, kind, self.limits)
            _check_sizes(files, self.limits)
            for file in files:
                if time.monotonic() > end:
                    raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "it takes too long: send fewer")
                photographs.append(decode(file, self.limits))
            with torch.inference_mode():
                logits = self.package.program(torch.stack(photographs))
        if not logits.isfinite().all():
            raise Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the network's answer is not finite")
        probabilities = logits.softmax(dim=1)
        names = self.package.class_names
        return {
            "classes": [names[place] for place in probabilities.argmax(dim=1).tolist()],
            "probabilities": [[round(p, 6) for p in row] for row in probabilities.tolist()],
        }

    def find_deadline(self) -> float:
        """Of a request that comes now, in the seconds of `time.monotonic`."""
        return time.monotonic() + self.limits.deadline_s

    def check_health(self) -> dict[str, Any]:
        """Whether the stored files, decoded again, still get their logits.

        Raises:
            Refusal: they do not, or others take too long.
        """
        with self._take_turn(self.find_deadline()):
            difference = self.package.find_difference()
        if not difference <= self.tolerance:
            raise Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, f"logits differ by {difference:.2g}")
        return {"status": "ok", "largest_difference": difference}


class _Handler(BaseHTTPRequestHandler):
    """Reads a request within the limits, and writes what the service answers."""

    protocol_version = "HTTP/1.1"
    server: "_Server"

    def setup(self) -> None:
        self._is_sending = False  # a body that is refused before it is read
        super().setup()
        self.connection.settimeout(self.server.service.limits.silence_s)  # of every read

    def do_GET(self) -> None:
        self.close_connection = True  # a body, which is not read, must not become a request
        if self.path != "/health":
            self._refuse(Refusal(HTTPStatus.NOT_FOUND, "ask for /health, or post to /predict"))
            return
        self._answer(self._check_health)

    def do_POST(self) -> None:
        if self.path != "/predict":
            self._refuse(Refusal(HTTPStatus.NOT_FOUND, "ask for /health, or post to /predict"))
            return
        self._answer(self._predict)

    def _check_health(self) -> dict[str, Any]:
        service = self.server.service
        with service.enter():  # it costs as much as a request
            return service.check_health()

    def _predict(self) -> dict[str, Any]:
        service = self.server.service
        end = service.find_deadline()
        with service.enter():
            lengths = self.headers.get_all("Content-Length", [])
            if "Transfer-Encoding" in self.headers or len(lengths) > 1:
                raise Refusal(HTTPStatus.BAD_REQUEST, "send one Content-Length, and no chunks")
            length = "".join(lengths)
            if not (length.isascii() and length.isdigit()):
                raise Refusal(HTTPStatus.LENGTH_REQUIRED, "say how many bytes you send")
            if len(length) > 12 or int(length) > service.limits.body_bytes:
                reason = f"at most {service.limits.body_bytes:,} bytes are read"
                self._is_sending = True
                raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
            body = self._read(int(length), end)
            return service.predict(body, self.headers.get_content_type(), end)

    def _read(self, length: int, end: float) -> bytes:
        """The body, if all of it comes before ``end`` and the client is never silent for long.

        Raises:
            TimeoutError: it comes too slowly.
            Refusal: it ends too early.
        """
        silence_s = self.server.service.limits.silence_s
        parts, left = [], length
        while left:
            rest = end - time.monotonic()
            if rest <= 0:
                raise TimeoutError
            self.connection.settimeout(min(silence_s, rest))
            part = self.rfile.read1(min(left, 65_536))
            if not part:
                raise Refusal(HTTPStatus.BAD_REQUEST, "fewer bytes came than were said")
            parts.append(part)
            left -= len(part)
        self.connection.settimeout(silence_s)
        return b"".join(parts)

    def _answer(self, compute) -> None:
        try:
            self._write(HTTPStatus.OK, compute())
        except Refusal as refusal:
            self._refuse(refusal)
        except TimeoutError:
            self._refuse(Refusal(HTTPStatus.REQUEST_TIMEOUT, "the request came too slowly"))
        except ConnectionError:
            self.close_connection = True  # the client has gone
        except Exception:  # one request must not end the service, nor tell how it is built
            self.log_error("%s", "a request failed")
            self._refuse(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the service has a fault"))

    def _refuse(self, refusal: Refusal) -> None:
        self.close_connection = True  # the rest of the body is not read
        with contextlib.suppress(OSError):
            self._write(refusal.status, {"error": str(refusal)})
            if self._is_sending:
                self._let_end()

    def _let_end(self) -> None:
        """Read a little of what is too long, and drop it: most clients read no answer before."""
        limits = self.server.service.limits
        left, end = 2 * limits.body_bytes, time.monotonic() + limits.silence_s
        while left > 0 and time.monotonic() < end and (part := self.rfile.read1(65_536)):
            left -= len(part)

    def _write(self, status: HTTPStatus, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", JSON)
        self.send_header("Content-Length", str(len(body)))
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: a line for each request would fill a notebook."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # a request that hangs does not keep the process
    request_queue_size = 256  # connections that wait to be accepted

    def __init__(self, address: tuple[str, int], service: Service):
        self.service = service
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error of the service."""


@contextlib.contextmanager
def open_service(service: Service, port: int = 0) -> Iterator[str]:
    """Serve on this machine alone while the context lasts; its address.

    Args:
        port: 0: any that is free.
    """
    with _Server(("127.0.0.1", port), service) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(CLOSE_S)


def main() -> None:
    """Serve a package on this machine until the process is ended."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("path", type=Path, help="a file of save_package")
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with open_service(Service(load_package(given.path)), given.port) as address:
        print(address, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
