import gc
import multiprocessing

import albumentations as A
import numpy as np
import pytest
import torch
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms.v2 import functional

from course_utils.data.image_data import Images
from course_utils.errors import CourseError
from lesson_code.dali import dali_loader as dali
from lesson_code.dali.jpegs import JpegFiles, write_jpegs

needs_dali = pytest.mark.skipif(not dali.has_dali(), reason="DALI is not installed")
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
LEVELS = ((0, 0, 0), (1 / 255,) * 3)  # mean and std that leave 0 to 255


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """45 images whose targets are their own numbers, so that a batch tells whom it holds."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (45, 4, 4, 3), dtype=np.uint8).repeat(8, 1).repeat(8, 2)
    return write_jpegs(Images(images, np.arange(45)), tmp_path_factory.mktemp("jpegs"))


@pytest.fixture(scope="module")
def decoded(files):
    return torch.stack([decode_image(str(path), ImageReadMode.RGB) for path in files.paths]).float()


def take(loader):
    """All images and targets of one epoch."""
    return tuple(torch.cat(parts) for parts in zip(*loader, strict=True))


@needs_dali
def test_without_augmentation_it_is_decode_and_normalise(files, decoded):
    loader = dali.DaliLoader(files, MEAN, STD, 16, train=False)
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    for _ in range(2):  # epochs
        batches = list(loader)
        assert [len(targets) for _, targets in batches] == [16, 16, 13]
        images, targets = take(batches)
        assert targets.tolist() == list(range(45))
        torch.testing.assert_close(images, (decoded / 255 - mean) / std, atol=1e-5, rtol=0)


@needs_dali
def test_the_middle_is_cropped_and_then_resized(files, decoded):
    """One pixel of the file is 8 wide: what is resized lies where torchvision's lies."""
    cropped, _ = take(dali.DaliLoader(files, *LEVELS, 16, train=False, crop=16))
    assert torch.equal(cropped.round(), decoded[:, :, 8:24, 8:24])
    resized, _ = take(dali.DaliLoader(files, *LEVELS, 16, train=False, crop=16, size=8))
    expected = functional.resize(decoded[:, :, 8:24, 8:24], [8, 8], antialias=True)
    assert resized.shape == (45, 3, 8, 8)
    assert (resized - expected).abs().mean() < 2
    augmented, _ = take(dali.DaliLoader(files, *LEVELS, 15, crop=16, size=8))
    assert augmented.shape == (45, 3, 8, 8)


@needs_dali
def test_batches_are_the_baselines(files):
    loader = dali.DaliLoader(files, MEAN, STD, 16)
    assert len(loader) == 2
    for images, targets in loader:
        assert (images.shape, images.dtype) == ((16, 3, 32, 32), torch.float32)
        assert (targets.shape, targets.dtype) == ((16,), torch.int64)
    assert len(list(dali.DaliLoader(files, MEAN, STD, 1000))) == 1  # fewer images than a batch


@needs_dali
def test_an_epoch_sees_each_image_once_in_an_order_of_its_own(files):
    loader = dali.DaliLoader(files, MEAN, STD, 5, seed=1)
    epochs = [take(loader)[1].tolist() for _ in range(3)]
    assert all(sorted(epoch) == list(range(45)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in [*epochs, list(range(45))]}) == 4


@needs_dali
def test_the_same_seed_repeats_and_another_does_not(files):
    def epochs(seed, threads):
        loader = dali.DaliLoader(files, MEAN, STD, 16, seed=seed, threads=threads)
        images, targets = zip(*(take(loader) for _ in range(2)), strict=True)
        return torch.stack(images), torch.stack(targets)

    images, order = epochs(3, threads=1)
    again, same_order = epochs(3, threads=2)
    assert torch.equal(images, again)
    assert torch.equal(order, same_order)
    others, other_order = epochs(4, threads=1)
    assert not torch.equal(images, others)
    assert not (order == other_order).all(dim=1).any()
    assert not torch.equal(order[0], order[1])


@needs_dali
def test_ranks_and_seeds_change_the_same_image_differently(files):
    same = JpegFiles(files.paths[:1] * 32, files.targets[:1] * 32)
    loaders = [
        dali.DaliLoader(same, MEAN, STD, 16, seed=seed, shard=shard)
        for seed, shard in ((1, (0, 2)), (1, (1, 2)), (2, (0, 2)))
    ]
    first, other_rank, other_seed = (take(loader)[0] for loader in loaders)
    assert not torch.equal(first, other_rank)
    assert not torch.equal(first, other_seed)


@needs_dali
@pytest.mark.parametrize("count", [45, 41, 33])
def test_shards_are_disjoint_and_equal_in_batches(files, count):
    """With 33 images and batches of 16 one shard alone would have a batch more."""
    part = JpegFiles(files.paths[:count], files.targets[:count])
    loaders = [dali.DaliLoader(part, MEAN, STD, 16, shard=(rank, 2)) for rank in range(2)]
    for _ in range(2):
        first, second = (take(loader)[1] for loader in loaders)
        assert len(first) == len(second) == len(loaders[0]) * 16
        assert not set(first.tolist()) & set(second.tolist())
    loaders = [
        dali.DaliLoader(part, MEAN, STD, 16, train=False, shard=(rank, 2)) for rank in range(2)
    ]
    for _ in range(2):
        seen = torch.cat([take(loader)[1] for loader in loaders])
        assert sorted(seen.tolist()) == list(range(count))


@needs_dali
def test_who_stops_early_begins_the_next_epoch_anew(files):
    loader = dali.DaliLoader(files, MEAN, STD, 5)
    for _ in loader:
        break
    assert sorted(take(loader)[1].tolist()) == list(range(45))


@needs_dali
def test_changes_are_those_that_were_drawn(files, decoded):
    """Against a matrix product at each pixel."""
    images, targets = take(dali.DaliLoader(files, *LEVELS, 5, seed=2))
    rng = np.random.default_rng([2, 0])
    drawn = [dali.draw_changes(rng, 40, 32) for _ in range(2)]
    matrices, gain, offset = (
        torch.from_numpy(np.concatenate(part)) for part in zip(*drawn, strict=True)
    )
    place = torch.stack(torch.meshgrid(torch.arange(32), torch.arange(32), indexing="xy")) + 0.5
    grid = torch.einsum("nij,jyx->nyxi", matrices[:, :, :2], place)
    grid = (grid + matrices[:, None, None, :, 2]) / 16 - 1
    moved = torch.nn.functional.grid_sample(
        decoded[targets], grid[:45], padding_mode="border", align_corners=False
    )
    gain, offset = (part[:45, :, None, None] for part in (gain, offset))
    expected = (moved * gain + offset).clamp(0, 255)
    assert (images - expected).abs().max() < 2  # rounded to whole numbers twice
    assert ((images == 0) | (images == 255)).any(), "nothing was cut off"


def test_drawn_changes_have_the_baselines_ranges():
    matrices, gain, offset = dali.draw_changes(np.random.default_rng(0), 4000, 32)
    turn, shift = matrices[:, :, :2], matrices[:, :, 2]
    scale = 1 / np.linalg.norm(turn, axis=2)  # of the two axes
    angle = np.rad2deg(np.arctan2(-turn[:, 0, 1], turn[:, 0, 0]))
    for values, limit, middle in ((scale, 0.1, 1), (angle, 15, 0)):
        assert np.abs(values - middle).max() <= limit * 1.001
        assert np.abs(values - middle).max() > limit * 0.98
        assert abs(values.mean() - middle) < limit / 20
    assert abs(np.corrcoef(scale.T)[0, 1]) < 0.1
    center = np.linalg.solve(turn, (16 - shift)[..., None])[..., 0]  # comes from the middle
    assert set(np.unique(center.round(3))) == {14, 15, 16, 17, 18}
    assert gain.min() > 0.799
    assert gain.max() < 1.201
    assert 0.45 < (gain[:, 0] == 1).mean() < 0.55
    assert 0.2 < (offset == 0).all(axis=1).mean() < 0.3
    assert 0.45 < (offset[:, 0] == offset[:, 1]).mean() < 0.55  # channels apart in half of them
    assert np.abs(offset).max() < 1.2 * 20 + 51


@needs_dali
def test_files_that_cannot_be_read_are_one_line(files, tmp_path):
    for content in (b"not an image", None):
        path = tmp_path / "x.jpg"
        path.write_bytes(content) if content else path.unlink()
        broken = JpegFiles((*files.paths[:3], path), files.targets[:4])
        with pytest.raises(CourseError, match="write them again") as found:
            list(dali.DaliLoader(broken, MEAN, STD, 2, train=False))
        assert "\n" not in str(found.value)


def test_changes_are_albumentations_affine(decoded):
    """With its own numbers, in the middle of the image: the edges are filled differently."""
    image = decoded[0].byte().permute(1, 2, 0).numpy()
    for angle, scale, shift in ((10, (1.05, 0.95), (2, -1)), (-15, (0.9, 1.1), (0, 2))):
        numbers = {"x": (scale[0],) * 2, "y": (scale[1],) * 2}
        move = {"x": (shift[0],) * 2, "y": (shift[1],) * 2}
        one = A.Affine(rotate=(angle,) * 2, scale=numbers, translate_px=move, p=1.0)
        theirs = A.Compose([one])(image=image)["image"].astype(float)

        matrix = torch.from_numpy(dali.affine_matrices([angle], [scale], [shift], 32)).double()
        size = torch.arange(32) + 0.5
        place = torch.stack([*torch.meshgrid(size, size, indexing="xy"), torch.ones(32, 32)])
        grid = torch.einsum("nij,jyx->nyxi", matrix, place.double()) / 16 - 1
        ours = torch.nn.functional.grid_sample(decoded[:1].double(), grid, align_corners=False)
        gap = ours[0].permute(1, 2, 0).numpy() - theirs
        assert np.abs(gap[9:23, 9:23]).max() < 1


@needs_dali
def test_a_rank_without_files_is_one_line(files):
    few = JpegFiles(files.paths[:2], files.targets[:2])
    with pytest.raises(CourseError, match="rank 0 of 3 gets none of 2 files: use fewer"):
        dali.DaliLoader(few, MEAN, STD, 2, shard=(0, 3))


def test_without_dali_there_is_a_cure(files, monkeypatch):
    monkeypatch.setattr(dali, "has_dali", lambda: False)
    with pytest.raises(CourseError, match=r"not installed: pip install '\.\[dali\]'"):
        dali.DaliLoader(files, MEAN, STD, 2)


@needs_dali
def test_a_forked_process_does_not_collect_the_pipelines_of_its_parent(files):
    """It has not their threads, and would wait for them for ever: so did workers of a loader."""
    loader = dali.DaliLoader(files, MEAN, STD, 16)
    loader.cycle = loader  # which the garbage collector alone finds
    gc.disable()
    del loader
    process = multiprocessing.get_context("fork").Process(target=gc.collect)
    process.start()
    process.join(60)
    process.kill()
    gc.enable()
    process.join()
    assert process.exitcode == 0
