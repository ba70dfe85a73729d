"""A service for photographs over HTTP, of Python's standard library alone.

``POST /predict`` takes one photograph, or JSON with several, and answers with probabilities.
``GET /health`` says whether the network still computes what was validated. Whatever else comes is
refused with a status and a sentence, before it costs memory or time. A framework such as FastAPI
takes over routes and parsing, and none of the limits below.

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

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

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
    pixels: int = 12_000_000  # of a photograph; read from its header, before it is decoded
    side: int = 8  # pixels that a photograph has at least
    photographs: int = 16  # of one request
    waiting: int = 64  # requests that are read or wait for the network at once
    wait_s: float = 5.0  # for the network
    read_s: float = 5.0  # for the client's next bytes, and for the whole body


class Refusal(Exception):
    """A request that is not answered: a status of HTTP, and why."""

    def __init__(self, status: HTTPStatus, reason: str):
        super().__init__(reason)
        self.status = status


class Package(NamedTuple):
    """What is served: a program, its classes, and examples with the logits that were validated."""

    program: torch.nn.Module  # pixels (N, 3, H, W) uint8 to logits (N, C)
    class_names: tuple[str, ...]
    examples: Tensor  # (M, 3, H, W) uint8
    logits: Tensor  # (M, C)

    def find_difference(self) -> float:
        """The largest difference of a logit of the examples from the validated one."""
        with torch.inference_mode():
            return float((self.program(self.examples) - self.logits).abs().max())


def save_package(
    path: Path,
    exported: torch.export.ExportedProgram,
    class_names: Sequence[str],
    examples: Tensor,
    logits: Tensor,
) -> None:
    """One file with everything that `load_package` returns.

    Args:
        exported: maps pixels ``(N, 3, H, W)`` uint8 to logits ``(N, C)``.
        examples: ``(M, 3, H, W)`` uint8.
        logits: ``(M, C)``: those of the network that was validated, not of the exported one.
    """
    about = {
        "class_names": list(class_names),
        "shape": list(examples.shape),
        "examples": base64.b64encode(examples.contiguous().numpy().tobytes()).decode("ascii"),
        "logits": logits.tolist(),
    }
    torch.export.save(exported, path, extra_files={ABOUT: json.dumps(about)})


def load_package(path: Path) -> Package:
    """The program of a file and what was stored beside it."""
    files = {ABOUT: ""}
    exported = torch.export.load(path, extra_files=files)
    about = json.loads(files[ABOUT])
    pixels = np.frombuffer(base64.b64decode(about["examples"]), np.uint8).reshape(about["shape"])
    return Package(
        exported.module(),
        tuple(about["class_names"]),
        torch.from_numpy(pixels.copy()),
        torch.tensor(about["logits"]),
    )


def decode(body: bytes, limits: Limits) -> Tensor:
    """The middle square of one photograph, ``(3, S, S)`` uint8 in RGB, as the course reads images.

    Raises:
        Refusal: it is no JPEG or PNG, is damaged, or has too many pixels or too few.
    """
    if not body:
        raise Refusal(HTTPStatus.BAD_REQUEST, "the photograph is empty")
    try:
        with Image.open(io.BytesIO(body), formats=FORMATS) as image:
            if image.width * image.height > limits.pixels:
                reason = (
                    f"{image.width} × {image.height} pixels: at most {limits.pixels:,} are read"
                )
                raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
            side = min(image.size)
            if side < limits.side:
                reason = f"{image.width} × {image.height} pixels: {limits.side} are the least"
                raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, reason)
            left, top = (image.width - side) // 2, (image.height - side) // 2
            square = image.crop((left, top, left + side, top + side))
            pixels = np.array(square.convert("RGB"))
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"no photograph: {error}") from None
    except (OSError, SyntaxError, ValueError) as error:  # Pillow, of a damaged file
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"a damaged photograph: {error}") from None
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _read_bodies(body: bytes, kind: str, limits: Limits) -> list[bytes]:
    """The files of one request."""
    if kind in IMAGES:
        return [body]
    if kind != JSON:
        reason = f"{kind or 'no type'} is not read: send {', '.join((*IMAGES, JSON))}"
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)
    try:
        files = json.loads(body)["images"]
        found = [base64.b64decode(file, validate=True) for file in files]
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error):
        reason = 'send {"images": [a file in base64, …]}'
        raise Refusal(HTTPStatus.BAD_REQUEST, reason) from None
    if not isinstance(files, list) or not found:
        raise Refusal(HTTPStatus.BAD_REQUEST, "an empty batch")
    if len(found) > limits.photographs:
        reason = f"{len(found)} photographs, and at most {limits.photographs} are read"
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
    return found


class Service:
    """Answers requests one after the other, and refuses what it cannot answer in time.

    Args:
        package: what is served.
        limits: of one request.
        tolerance: the largest difference of a logit of the package's examples.

    Raises:
        ValueError: the program does not compute what was validated.
    """

    def __init__(self, package: Package, limits: Limits | None = None, tolerance: float = 1e-3):
        self.package, self.limits, self.tolerance = package, limits or Limits(), tolerance
        self._places = threading.BoundedSemaphore(self.limits.waiting)
        self._network = threading.Lock()  # PyTorch's threads are all used by one call
        difference = package.find_difference()
        if not difference <= tolerance:
            raise ValueError(
                f"logits of the examples differ by {difference:.2g} from the validated ones, and "
                f"{tolerance:g} is allowed: is it the same program, version and preprocessing?"
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

    def predict(self, body: bytes, kind: str) -> dict[str, Any]:
        """The answer to one request, by the name of what it holds.

        Args:
            body: a JPEG or PNG, or JSON with several in base64.
            kind: its type, such as ``"image/png"``.

        Raises:
            Refusal: it cannot be answered; the reason is for the client.
        """
        files = _read_bodies(body, kind, self.limits)
        photographs = [decode(file, self.limits) for file in files]
        if not self._network.acquire(timeout=self.limits.wait_s):
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the network is busy: try later")
        try:
            with torch.inference_mode():  # sizes differ, so each goes alone
                logits = torch.cat([self.package.program(x[None]) for x in photographs])
        finally:
            self._network.release()
        if not logits.isfinite().all():
            raise Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the network's answer is not finite")
        probabilities = logits.softmax(dim=1)
        names = self.package.class_names
        return {
            "classes": [names[place] for place in probabilities.argmax(dim=1).tolist()],
            "probabilities": [[round(p, 6) for p in row] for row in probabilities.tolist()],
        }

    def check_health(self) -> dict[str, Any]:
        """Whether the examples still have their logits.

        Raises:
            Refusal: they have not, or the network is busy for too long.
        """
        if not self._network.acquire(timeout=self.limits.wait_s):
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the network is busy")
        try:
            difference = self.package.find_difference()
        finally:
            self._network.release()
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
        self.connection.settimeout(self.server.service.limits.read_s)  # of every read

    def do_GET(self) -> None:
        if self.path != "/health":
            self._refuse(Refusal(HTTPStatus.NOT_FOUND, "ask for /health, or post to /predict"))
            return
        self._answer(self.server.service.check_health)

    def do_POST(self) -> None:
        if self.path != "/predict":
            self._refuse(Refusal(HTTPStatus.NOT_FOUND, "ask for /health, or post to /predict"))
            return
        self._answer(self._predict)

    def _predict(self) -> dict[str, Any]:
        service = self.server.service
        with service.enter():
            length = self.headers.get("Content-Length", "")
            if not (length.isascii() and length.isdigit()):
                raise Refusal(HTTPStatus.LENGTH_REQUIRED, "say how many bytes you send")
            if len(length) > 12 or int(length) > service.limits.body_bytes:
                reason = f"at most {service.limits.body_bytes:,} bytes are read"
                self._is_sending = True
                raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
            body = self._read(int(length), service.limits.read_s)
            return service.predict(body, self.headers.get_content_type())

    def _read(self, length: int, seconds: float) -> bytes:
        """The body, if all of it comes in time: each read has a limit of its own, and so has all.

        Raises:
            TimeoutError: it comes too slowly.
            Refusal: it ends too early.
        """
        parts, left, end = [], length, time.monotonic() + seconds
        while left:
            if time.monotonic() > end:
                raise TimeoutError
            part = self.rfile.read1(min(left, 65_536))
            if not part:
                raise Refusal(HTTPStatus.BAD_REQUEST, "fewer bytes came than were said")
            parts.append(part)
            left -= len(part)
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
        left, end = 2 * limits.body_bytes, time.monotonic() + limits.read_s
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
