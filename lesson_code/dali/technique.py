"""DALI: the training images are read from JPEG files."""

import contextlib
import io
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch
from torchvision.transforms.v2 import functional

from lesson_code.dali.dali_loader import DaliLoader, has_dali
from lesson_code.dali.jpegs import write_jpegs

MISSING = "" if has_dali() else "DALI is not installed: no training combines it with the others"


class ReadByDali:
    """The data seam: the training images as JPEG files, read by DALI; keeps what it delivers.

    In memory the channels of a pixel stand together, as in the default loader's batches: without,
    bf16 convolutions make all these trainings on a CPU three times as long.
    """

    def __init__(self, data, seed):
        self.folder = tempfile.TemporaryDirectory()
        files = write_jpegs(data.train, Path(self.folder.name))
        self.loader = DaliLoader(files, data.mean, data.std, data.batch_size, seed=seed)
        self.delivered = []

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        for images, targets in self.loader:
            batch = images.contiguous(memory_format=torch.channels_last), targets
            self.delivered.append(batch)
            yield batch


SEAM = {"make_loader": ReadByDali}
NOT_FOR_TEXT = "it reads photographs"


def invariant(record):
    """The first that changes a batch, or the loss, gets DALI's batches: every image once."""
    images, targets = (list(part) for part in zip(*record.loader.delivered, strict=True))
    assert sorted(torch.cat(targets).tolist()) == sorted(record.data.train.targets)
    different = {image.sum().item() for batch in images for image in batch}
    assert len(different) == len(record.data.train)
    for name in list(record.batch_transforms)[:1]:
        for batch, ((before, _), _) in zip(images, record.batches[name], strict=True):
            assert torch.equal(batch, before)
    if not record.batch_transforms:
        for batch, (_, used, _) in zip(targets, record.losses, strict=True):
            assert torch.equal(batch, used)


class RepeatABatch(ReadByDali):
    """In place of the last one: what a pipeline does that fills up its last batch."""

    def __iter__(self):
        batches = list(super().__iter__())
        self.delivered[-1] = batches[0]
        yield from self.delivered


FAULTS = [("make_loader", RepeatABatch)]


def check_pytorch_card(card):
    """Each image is mirrored and shifted by itself; what is loaded, and in which order."""
    mean, std = torch.tensor([123.7, 116.3, 103.5]), torch.tensor([58.4, 57.1, 57.4])
    levels = torch.arange(10, dtype=torch.uint8)
    images = card["shift_and_flip"](levels[:, None, None, None].expand(10, 3, 8, 8))
    expected = (levels[:, None].float() - mean) / std  # of images with one grey level
    assert images.shape == (10, 3, 8, 8)
    torch.testing.assert_close(images.amin(dim=(2, 3)), expected)
    torch.testing.assert_close(images.amax(dim=(2, 3)), expected)

    image = torch.randint(256, (3, 8, 8), dtype=torch.uint8)
    changed = card["shift_and_flip"](image.expand(200, 3, 8, 8), shift=1)
    pixels = changed * std[:, None, None] + mean[:, None, None]
    possible = []
    for flipped in (image, image.flip(2)):
        wider = functional.pad(flipped, [1, 1, 1, 1], padding_mode="edge")
        possible += [wider[:, y : y + 8, x : x + 8] for y in range(3) for x in range(3)]
    gaps = (pixels[:, None] - torch.stack(possible)).abs().amax(dim=(2, 3, 4))  # (200, 18)
    assert gaps.amin(dim=1).max() < 1e-3
    assert len(gaps.argmin(dim=1).unique()) == len(possible), "a batch has all shifts and flips"

    for train, sizes in ((True, [48]), (False, [48, 16])):
        batches = list(card["load"](card["my_files"], 48, train=train))
        assert [len(targets) for _, targets in batches] == sizes
        order = torch.cat([images[:, 0, 0, 0] for images, _ in batches]).tolist()
        assert (order == list(range(64))) == (not train)


def check_lightning_card(card):
    """Waiting is what lies between two steps, but for the first batch and for validation."""
    stall, now = card["DataStall"](), [0.0]

    def pass_time(seconds):
        now[0] += seconds

    with mock.patch.object(card["time"], "perf_counter", side_effect=lambda: 100 + now[0]):
        stall.on_train_start(None, None)
        pass_time(50)  # the first batch is a warm-up
        for _ in range(3):
            stall.on_train_batch_start(None, None, None, 0)
            pass_time(6)
            stall.on_train_batch_end(None, None, None, None, 0)
            pass_time(2)
        stall.on_validation_start(None, None)
        pass_time(90)  # validation is neither
        stall.on_train_batch_start(None, None, None, 0)
        pass_time(6)
        stall.on_train_batch_end(None, None, None, None, 0)
    assert (stall.waited, stall.stepped) == (4, 24)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        stall.on_train_end(SimpleNamespace(print=print), None)
    assert printed.getvalue() == "data stall: at most 14% of the time\n"
