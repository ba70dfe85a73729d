"""DALI: the training images are read from JPEG files."""

import contextlib
import io
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch

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
    """Validation is torchvision's decode, resize and normalise; training sees each file once."""
    if not has_dali():
        return
    mean, std = torch.tensor([123.7, 116.3, 103.5]), torch.tensor([58.4, 57.1, 57.4])
    numbers = torch.arange(10)
    levels = (9 * numbers[:, None] - mean) / std  # the files have one grey level each
    [first, *others] = card["dali_loader"](card["files"], numbers.tolist(), 4, False, size=32)
    assert [len(batch["x"]) for [batch] in (first, *others)] == [4, 4, 2]
    images = torch.cat([batch["x"] for [batch] in (first, *others)])
    torch.testing.assert_close(images.mean(dim=(2, 3)), levels, atol=1e-4, rtol=0)
    assert images.shape == (10, 3, 32, 32)
    orders = []
    for seed in (0, 0, 1):
        loader = card["dali_loader"](card["files"], numbers.tolist(), 4, True, size=32, seed=seed)
        orders.append([torch.cat([b["y"].squeeze(1) for [b] in loader]).tolist() for _ in range(2)])
    assert orders[0] == orders[1] != orders[2]
    assert all(len(set(order)) == len(order) == 8 for epochs in orders for order in epochs)
    shards = []
    for rank in range(2):
        options = {"size": 32, "rank": rank, "n": 2}
        loader = card["dali_loader"](card["files"], numbers.tolist(), 4, False, **options)
        shards.append(torch.cat([b["y"].squeeze(1) for [b] in loader]).tolist())
    assert sorted(shards[0] + shards[1]) == numbers.tolist(), "each rank reads files of its own"
    assert card["x"].shape == (4, 3, 224, 224)
    assert card["y"].dtype == torch.int64


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
