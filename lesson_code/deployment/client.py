"""A client of the service, and requests that it has to refuse."""

import base64
import io
import json
import struct
import urllib.error
import urllib.request
import zlib
from http import HTTPStatus
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

__all__ = [
    "BadRequest",
    "encode_as_clients_do",
    "encode_batch",
    "encode_photograph",
    "list_bad_requests",
    "send_request",
]

JSON = "application/json"
WAIT_S = 30  # for an answer
ORIENTATION, HELD_UPRIGHT = 0x0112, 6  # EXIF: turn the stored pixels by 90° to see them upright


class BadRequest(NamedTuple):
    """What is sent, and the status of HTTP that it should get."""

    status: HTTPStatus
    body: bytes
    kind: str


def encode_photograph(pixels: Tensor, kind: str = "PNG") -> bytes:
    """The bytes of a file, from pixels ``(3, H, W)`` uint8 in RGB."""
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels.permute(1, 2, 0))).save(file, kind)
    return file.getvalue()


def encode_as_clients_do(photographs: np.ndarray) -> list[bytes]:
    """Files of photographs ``(N, H, W, 3)`` uint8, N ≥ 3, which need all of a reader's steps.

    The first is a large JPEG of a camera that was held upright, so its pixels lie on their side
    and EXIF says so. The second is a large PNG, wider than high, and transparent in a part.
    The others are PNGs of the size that they have.
    """
    turned, transparent = io.BytesIO(), io.BytesIO()
    side, wide = 5 * photographs.shape[1], (7 * photographs.shape[2], 5 * photographs.shape[1])
    exif = Image.Exif()
    exif[ORIENTATION] = HELD_UPRIGHT
    held = (
        Image.fromarray(photographs[0]).resize((side, wide[0])).transpose(Image.Transpose.ROTATE_90)
    )
    held.save(turned, "JPEG", exif=exif)
    large = Image.fromarray(photographs[1]).resize(wide).convert("RGBA")
    large.paste((0, 0, 0, 0), (wide[0] // 3, 0, wide[0] // 2, side // 4))
    large.save(transparent, "PNG")
    small = [encode_photograph(torch.from_numpy(x).permute(2, 0, 1)) for x in photographs[2:]]
    return [turned.getvalue(), transparent.getvalue(), *small]


def encode_batch(*files: bytes) -> bytes:
    """One request with several files."""
    return json.dumps({"images": [base64.b64encode(file).decode() for file in files]}).encode()


def send_request(
    address: str, body: bytes | None = None, kind: str = "image/png"
) -> tuple[int, dict[str, Any]]:
    """Status and content of the answer.

    Args:
        address: with its path.
        body: None: ask by GET.
        kind: type of the body.

    Raises:
        OSError: no answer came, such as after a time-out.
    """
    headers = {} if body is None else {"Content-Type": kind}
    try:
        request = urllib.request.Request(address, body, headers)
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def make_large(width: int, height: int) -> bytes:
    """A small file of PNG with many pixels."""
    file = io.BytesIO()
    Image.new("1", (width, height)).save(file, "PNG")
    return file.getvalue()


def make_header(width: int, height: int) -> bytes:
    """A header of PNG without pixels, which may name a size that no memory has."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    length, checksum = struct.pack(">I", len(chunk) - 4), struct.pack(">I", zlib.crc32(chunk))
    return b"\x89PNG\r\n\x1a\n" + length + chunk + checksum


def list_bad_requests(photograph: Tensor) -> dict[str, BadRequest]:
    """By what is wrong with them.

    Args:
        photograph: pixels ``(3, H, W)`` uint8, of which good and damaged files are made.
    """
    good = encode_photograph(photograph)
    jpeg, gif = (encode_photograph(photograph, kind) for kind in ("JPEG", "GIF"))
    bad = HTTPStatus.BAD_REQUEST
    damaged = HTTPStatus.UNPROCESSABLE_ENTITY
    too_large = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    other_type = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    requests = {
        "not an image": (damaged, b"hello", "image/png"),
        "half an image": (damaged, jpeg[: len(jpeg) // 2], "image/jpeg"),
        "100 megapixels": (too_large, make_large(10_000, 10_000), "image/png"),
        "5 MB": (too_large, bytes(5_000_000), "image/jpeg"),
        "nothing": (bad, b"", "image/png"),
        "another type": (other_type, good, "text/plain"),
        "no JSON": (bad, b"{", JSON),
        "an empty batch": (bad, b'{"images": []}', JSON),
        "50 in one request": (too_large, encode_batch(*[good] * 50), JSON),
        "zeros": (damaged, bytes(1000), "image/jpeg"),
        "a header alone": (damaged, good[:20], "image/png"),
        "damaged in the middle": (damaged, good[:60] + bytes(20) + good[80:], "image/png"),
        "more than Pillow opens": (damaged, make_header(60_000, 60_000), "image/png"),
        "10^18 pixels": (damaged, make_header(2**31 - 1, 2**31 - 1), "image/png"),
        "16 photographs of 12 megapixels": (
            too_large,
            encode_batch(*[make_large(4000, 3000)] * 16),
            JSON,
        ),
        "two of 7 megapixels": (too_large, encode_batch(*[make_large(3500, 2000)] * 2), JSON),
        "a row of pixels": (too_large, make_large(13_000_000, 1), "image/png"),
        "a GIF": (damaged, gif, "image/png"),
        "a GIF that says so": (other_type, gif, "image/gif"),
        "no type": (other_type, good, ""),
        "a form": (other_type, good, "multipart/form-data; boundary=x"),
        "JSON that is no object": (bad, b"[1, 2]", JSON),
        "another name": (bad, b'{"image": []}', JSON),
        "null": (bad, b'{"images": null}', JSON),
        "numbers": (bad, b'{"images": [1, 2]}', JSON),
        "a text in place of a list": (bad, b'{"images": "abcd"}', JSON),
        "an object in place of a list": (bad, b'{"images": {"abcd": 1}}', JSON),
        "no base64": (bad, b'{"images": ["\xc3\xa4"]}', JSON),
        "base64 of nothing": (bad, b'{"images": [""]}', JSON),
        "base64 of no image": (damaged, b'{"images": ["aGVsbG8="]}', JSON),
        "one of two is bad": (damaged, encode_batch(good, b"hello"), JSON),
        "deep JSON": (bad, b'{"images": ' + b"[" * 100_000, JSON),
        "NaN": (bad, b'{"images": [NaN]}', JSON),
        "bytes that are no text": (bad, b"\xff\xfe\x00", JSON),
    }
    return {name: BadRequest(*parts) for name, parts in requests.items()}
