"""DALI: the training images are read from JPEG files."""

import tempfile
from pathlib import Path

import torch

from course_utils.data.dali import DaliLoader, has_dali
from course_utils.data.jpegs import write_jpegs

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
