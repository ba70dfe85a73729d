"""One image file of any kind: what is read of it, and what is said."""

import dataclasses
import io
import struct
import warnings

import numpy as np
import pytest
from PIL import Image

from course_utils.data.read_image import Note, read_image, tell_notes
from course_utils.errors import CourseError

ORIENTATION = 0x0112


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_32_bits_are_refused(tmp_path, kind):
    path = tmp_path / "a.tif"
    Image.fromarray(np.linspace(0, 1e6, 32 * 32).reshape(32, 32).astype(kind)).save(path)
    with pytest.raises(CourseError, match="32 bits per pixel: save it with 8 or 16"):
        read_image(path)


def draw_sky():
    """``(32, 32, 3)``: light above, dark below."""
    upright = np.zeros((32, 32, 3), dtype=np.uint8)
    upright[:16] = 200
    return upright


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_that_the_camera_turned_stands_upright(tmp_path, orientation):
    upright = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    turned = {  # what the camera stored: the opposite of how it is to be shown
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.swapaxes(0, 1),
        6: np.rot90(upright),
        7: np.rot90(upright.swapaxes(0, 1), 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    Image.fromarray(np.ascontiguousarray(turned)).save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(read_image(tmp_path / "a.png").pixels, upright)


def write_entry(tag, kind, count, value):
    """An entry of EXIF; a kind that does not fit its tag, or an offset to nowhere, as you like."""
    return struct.pack(">HHI4s", tag, kind, count, value)


ORIENTED = write_entry(ORIENTATION, 3, 1, b"\0\6\0\0")  # to be turned
DAMAGED_EXIF = {
    "text for a ratio": [ORIENTED, write_entry(0x011A, 2, 4, b"abc\0")],
    "a ratio that lies nowhere": [ORIENTED, write_entry(0x011A, 5, 1, b"\xff\xff\xff\0")],
    "a part that is no part": [ORIENTED, write_entry(0x8769, 2, 4, b"abc\0")],
    "a place that is no place": [ORIENTED, write_entry(0x8825, 3, 1, b"\0\1\0\0")],
    "bytes for a number": [ORIENTED, write_entry(0x0100, 7, 4, b"\1\2\3\4")],
    "an unknown kind": [ORIENTED, write_entry(0x0100, 99, 1, b"\0\1\0\0")],
    "far too many": [ORIENTED, write_entry(0x0102, 3, 0xFFFFFFF0, b"\0\0\0\x08")],
    "orientation as text": [write_entry(ORIENTATION, 2, 4, b"up\0\0")],
    "orientation 90": [write_entry(ORIENTATION, 3, 1, b"\0\x5a\0\0")],
    "nothing after the header": None,
}


def save_with_exif(path, block):
    stored = Image.fromarray(np.rot90(draw_sky()).copy())
    stored.save(path, quality=95, exif=b"Exif\0\0MM\0*\0\0\0\x08" + block)


@pytest.mark.parametrize("entries", DAMAGED_EXIF.values(), ids=DAMAGED_EXIF)
def test_damaged_exif_leaves_a_photograph_as_it_is_or_turns_it(tmp_path, entries):
    path = tmp_path / "a.jpg"
    block = b""
    if entries:
        block = struct.pack(">H", len(entries)) + b"".join(entries) + b"\0\0\0\0"
    save_with_exif(path, block)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the reader of a folder hides them
        pixels = read_image(path).pixels.astype(int)
    turned = bool(entries) and entries[0] is ORIENTED
    expected = draw_sky() if turned else np.rot90(draw_sky())
    assert np.abs(pixels - expected).mean() < 5


def try_to_read(path):
    """Why an image was refused; empty if it was read."""
    try:
        assert read_image(path).pixels.shape == (32, 32, 3)
    except CourseError as error:
        return str(error)
    return ""


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_any_bytes_for_exif_are_read_or_refused_in_one_line(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "a.jpg"
    refused = 0
    for _ in range(400):
        count = int(rng.integers(1, 5))
        block = struct.pack(">H", count)
        for _ in range(count):
            tag = int(rng.choice([ORIENTATION, 0x011A, 0x8769, 0x8825, 0xA005, 0x0100, 0x927C]))
            kind, number = int(rng.integers(0, 14)), int(rng.choice([0, 1, 2, 5, 2**31]))
            block += write_entry(tag, kind, number, rng.bytes(4))
        save_with_exif(path, block + rng.bytes(int(rng.integers(0, 40))))
        refused += bool(try_to_read(path))
    assert refused < 20  # a viewer shows them


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_any_bytes_for_an_image_are_read_or_refused_in_one_line(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "a.jpg"
    for number in range(300):
        file = io.BytesIO()
        kind = ("jpeg", "png", "tiff", "webp", "bmp")[number % 5]
        Image.fromarray(draw_sky()).save(file, kind)
        content = np.frombuffer(file.getvalue(), np.uint8).copy()
        places = rng.integers(0, min(200, len(content)), 6)
        content[places] = rng.integers(0, 256, 6)
        path.write_bytes(content[: int(rng.integers(1, len(content) + 1))].tobytes())
        why = try_to_read(path)
        assert "\n" not in why
        assert str(path) not in why


def hide_red(mode):
    """An image of 32 × 32 pixels whose right half is transparent, and red below."""
    pixels = np.full((32, 32, 4), (0, 0, 255, 255), dtype=np.uint8)
    pixels[:, 16:] = (255, 0, 0, 0)
    image = Image.fromarray(pixels)
    if mode == "P":
        return image.quantize(4), {}
    if mode == "RGB":
        return image.convert("RGB"), {"transparency": (255, 0, 0)}
    return image.convert(mode), {}


@pytest.mark.parametrize("mode", ["RGBA", "P", "RGB", "LA"])
def test_what_is_transparent_is_white_whatever_colour_is_below(tmp_path, mode, recwarn):
    image, options = hide_red(mode)
    image.save(tmp_path / "a.png", **options)
    picture = read_image(tmp_path / "a.png")
    assert (picture.pixels[:, 16:] == 255).all()
    assert picture.pixels[:, :16, 0].max() < 60
    assert picture.note == Note.TRANSPARENT
    assert not recwarn.list  # Pillow warns of palettes with transparency


def test_an_opaque_image_with_an_alpha_channel_is_as_it_is(tmp_path):
    Image.fromarray(draw_sky()).convert("RGBA").save(tmp_path / "a.png")
    picture = read_image(tmp_path / "a.png")
    assert picture.note == Note.NONE
    assert np.array_equal(picture.pixels, draw_sky())


@pytest.mark.parametrize("kind", ["webp", "tiff", "png"])
def test_the_first_frame_is_read(tmp_path, kind):
    frames = [Image.fromarray(np.full((32, 32, 3), grey, np.uint8)) for grey in (10, 120, 240)]
    path = tmp_path / f"a.{kind}"
    options = {"lossless": True} if kind == "webp" else {}
    frames[0].save(path, save_all=True, append_images=frames[1:], **options)
    picture = read_image(path)
    assert (picture.pixels == 10).all()
    assert picture.note == Note.FRAMES


@pytest.mark.parametrize(("largest", "dim"), [(4095, True), (255, True), (4096, False)])
def test_twelve_bits_in_files_of_sixteen_are_noted(tmp_path, largest, dim):
    ramp = np.linspace(0, largest, 32 * 32).round().astype(np.uint16).reshape(32, 32)
    for name in ("a.png", "a.tif"):
        Image.fromarray(ramp).save(tmp_path / name)
        assert read_image(tmp_path / name).note == (Note.DEEP | Note.DIM if dim else Note.DEEP)


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ([Note.NONE] * 3, ""),
        ([Note.RESIZED, Note.NONE], "1 of 2 images are not 32×32: resized.\n"),
        ([Note.TRANSPARENT] * 2, "2 of 2 images are transparent in parts: shown on white.\n"),
        ([Note.FRAMES, Note.NONE], "1 of 2 images have several frames or pages: the first is r"),
        ([Note.DEEP | Note.DIM] * 2, "2 of 2 images have 16 bits, but no value above 4,095"),
        ([Note.DEEP | Note.DIM, Note.DEEP], ""),  # one of them is dark
    ],
)
def test_a_line_for_each_thing_that_happened(capsys, notes, said):
    tell_notes(notes)
    out = capsys.readouterr().out
    assert out.startswith(said)
    assert out.count("\n") == bool(said)


def test_a_picture_is_not_changed_by_who_reads_it(tmp_path):
    Image.fromarray(draw_sky()).save(tmp_path / "a.png")
    picture = read_image(tmp_path / "a.png")
    with pytest.raises(dataclasses.FrozenInstanceError):
        picture.note = Note.DEEP


def test_a_large_jpeg_is_decoded_in_part_and_looks_the_same(tmp_path):
    rng = np.random.default_rng(0)
    areas = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    large = areas.resize((1600, 1200), Image.Resampling.BICUBIC)
    large.save(tmp_path / "a.jpg", quality=95)
    large.save(tmp_path / "a.png")
    part, whole = (read_image(tmp_path / name) for name in ("a.jpg", "a.png"))
    assert np.abs(part.pixels.astype(int) - whole.pixels).mean() < 3
    assert part.is_slow
    assert part.note == whole.note == Note.RESIZED
