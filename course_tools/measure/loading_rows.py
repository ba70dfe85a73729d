"""Rows about data: copies to the device, decoding of JPEGs, a training that waits for its loader.

The JPEGs are photographs of the course, enlarged to the size of common ones. Enlarged photographs
are smoother than others of this size, so decoding them is a little faster.
"""

import os
import time
from collections.abc import Callable
from functools import cache, partial

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import v2

from course_tools.measure.row import Impossible, Row, Values
from course_tools.measure.scale import Scale
from course_utils.data.photos import open_photos
from course_utils.measure.timing import synchronize, time_calls

__all__ = ["list_loading_rows"]

Decode = Callable[[list[np.ndarray], torch.device], Callable[[], object]]


@cache
def _make_codes(width: int, height: int, count: int) -> list[np.ndarray]:
    """``count`` JPEGs, each as its bytes ``(n,)`` uint8."""
    _, _, pick = open_photos()
    codes = []
    for image in pick(np.arange(count)):
        large = cv2.resize(image, (width, height), interpolation=cv2.INTER_CUBIC)
        codes.append(cv2.imencode(".jpg", large[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])[1])
    return codes


class _Photos(Dataset):
    """Decodes a JPEG, crops and flips it at random: ``(3, H, W)`` uint8 and a target."""

    def __init__(self, scale: Scale):
        self.codes = _make_codes(*scale.photo_size, scale.photos)
        self.crop = v2.Compose(
            [v2.RandomResizedCrop(scale.pixels, antialias=True), v2.RandomHorizontalFlip()]
        )

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = cv2.imdecode(self.codes[index], cv2.IMREAD_COLOR_RGB)
        return self.crop(torch.from_numpy(image).permute(2, 0, 1)), index % 10


def _limit_threads(_: int) -> None:
    cv2.setNumThreads(0)
    torch.set_num_threads(1)


def _measure_copy(scale: Scale, pinned: bool, device: torch.device) -> Values:
    if device.type == "cpu":
        raise Impossible("there is no other device to copy to")
    images, _ = scale.make_batch(torch.device("cpu"))
    images = images.pin_memory() if pinned else images
    call = partial(images.to, device)
    time_calls(call, device)
    ms = time_calls(call, device)
    return {"ms": ms, "gb_per_s": images.nbytes / ms / 1e6}


def _measure_loader(scale: Scale, workers: int, pinned: bool, device: torch.device) -> Values:
    """Train on what a loader delivers; ``waiting`` is the share of time without a batch.

    The clock starts with the third batch, so that the start of the workers does not count.
    """
    loader = DataLoader(
        _Photos(scale),
        scale.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        pin_memory=pinned,
        persistent_workers=workers > 0,
        worker_init_fn=_limit_threads,
    )
    network = scale.make_convolutional().to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    waited, seen, batches, start = 0.0, 0, 0, time.perf_counter()
    while time.perf_counter() < start + scale.loader_seconds or batches < 4:
        asked = time.perf_counter()
        for images, targets in loader:
            batches += 1
            if batches == 3:
                waited, seen, start = 0.0, 0, time.perf_counter()
            elif batches > 3:
                waited += time.perf_counter() - asked
                seen += len(images)
            images = images.to(device, non_blocking=pinned)
            targets = targets.to(device, non_blocking=pinned)
            with torch.autocast(device.type, torch.bfloat16):
                images = (images / 255).contiguous(memory_format=torch.channels_last)
                loss = F.cross_entropy(network(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            synchronize(device)
            asked = time.perf_counter()
            if asked > start + scale.loader_seconds and batches >= 4:
                break
    seconds = time.perf_counter() - start
    return {"images_per_s": seen / seconds, "waiting": waited / seconds}


def _decode_by_opencv(codes: list[np.ndarray], device: torch.device) -> Callable[[], object]:
    threads = cv2.getNumThreads()

    def call() -> None:
        cv2.setNumThreads(1)
        for code in codes:
            cv2.imdecode(code, cv2.IMREAD_COLOR_RGB)
        cv2.setNumThreads(threads)

    return call


def _decode_by_nvjpeg(codes: list[np.ndarray], device: torch.device) -> Callable[[], object]:
    if device.type != "cuda":
        raise Impossible("only NVIDIA GPUs decode JPEGs")
    tensors = [torch.from_numpy(code) for code in codes]
    return partial(decode_jpeg, tensors, mode=ImageReadMode.RGB, device=device)


def _decode_by_dali(
    where: str, codes: list[np.ndarray], device: torch.device
) -> Callable[[], object]:
    if where == "mixed" and device.type != "cuda":
        raise Impossible("only NVIDIA GPUs decode JPEGs")
    try:
        from nvidia.dali import fn, pipeline_def
    except ImportError:
        raise Impossible("DALI is not installed") from None

    @pipeline_def(
        batch_size=len(codes),
        num_threads=os.cpu_count() or 1,
        device_id=device.index or 0 if where == "mixed" else None,  # type: ignore[arg-type]
    )
    def decode():
        return fn.decoders.image(fn.external_source(lambda: codes, batch=True), device=where)

    pipeline = decode()
    pipeline.build()
    return pipeline.run


def _measure_decoder(
    scale: Scale,
    decode: Decode,
    device: torch.device,
) -> Values:
    codes = _make_codes(*scale.photo_size, scale.photos)
    call = decode(codes, device)
    time_calls(call, device)
    ms = time_calls(call, device)
    return {"ms": ms, "images_per_s": 1000 * len(codes) / ms}


def list_loading_rows(scale: Scale) -> list[Row]:
    """Every row about data, those first that answer most."""
    rows = [
        Row("copies", {"memory": name}, partial(_measure_copy, scale, name == "pinned"))
        for name in ("pageable", "pinned")
    ]
    decoders: dict[str, Decode] = {
        "OpenCV, one thread": _decode_by_opencv,
        "torchvision on the GPU (nvJPEG)": _decode_by_nvjpeg,
        "DALI, all cores": partial(_decode_by_dali, "cpu"),
        "DALI on the GPU": partial(_decode_by_dali, "mixed"),
    }
    for name, decode in decoders.items():
        rows.append(Row("decoding", {"decoder": name}, partial(_measure_decoder, scale, decode)))
    most = max(1, (os.cpu_count() or 1) - 1)
    for workers, pinned in ((0, False), (min(4, most), False), (most, False), (most, True)):
        settings = {"workers": workers, "pinned": pinned}
        row = Row("loader", settings, partial(_measure_loader, scale, workers, pinned))
        if settings not in [other.settings for other in rows]:
            rows.append(row)
    return rows
