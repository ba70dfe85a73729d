"""One image file to 32 × 32 pixels, and what a person should hear about how it was read."""

from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from course_utils.data.shapes import IMAGE_SIZE
from course_utils.errors import CourseError

__all__ = ["Note", "Picture", "describe_damage", "read_image", "tell_notes"]

ORIENTATION = 0x0112  # the tag of EXIF in which a camera notes how it was held
TURNS = {  # its values, and what turns the pixels upright; 1 is upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
DRAFT = 4 * IMAGE_SIZE  # a JPEG decoder may halve the sides down to this, in a tenth of the time
TWELVE_BITS = 4095  # the largest value that a camera of 12 bits writes
SLOW = 256 * 256  # pixels: decoding more takes a few milliseconds


class Note(IntFlag):
    """What happened to an image on its way to 32 × 32 pixels of 8 bits."""

    NONE = 0
    RESIZED = 1
    TRANSPARENT = 2  # some of it shows the white that was put behind it
    FRAMES = 4  # an animation or a file of several pages: the first one was read
    DEEP = 8  # 16 bits of grey
    DIM = 16  # 16 bits of grey, of which at most 12 are used


@dataclass(frozen=True)
class Picture:
    """An image as the course uses it."""

    pixels: np.ndarray  # (32, 32, 3) uint8
    note: Note = Note.NONE
    is_slow: bool = False  # large: worth keeping once it is reduced


def read_image(path: Path) -> Picture:
    """One image, upright and on white, cropped to a square of 32 × 32 pixels.

    A large JPEG is decoded at a half, a fourth or an eighth of its sides.

    Raises:
        CourseError: it cannot be decoded, or has more than 16 bits of grey; says why, without
            the path.
    """
    try:
        with Image.open(path) as file:
            size = file.size
            frames = Note.FRAMES if _count_frames(file) > 1 else Note.NONE
            file.draft(None, (DRAFT, DRAFT))
            rgb, note = _convert(_turn_upright(file))
    except Exception as error:  # Pillow's parsers raise whatever they stumble over
        raise CourseError(describe_damage(error)) from None
    note |= frames
    if size != (IMAGE_SIZE, IMAGE_SIZE):
        note |= Note.RESIZED
        rgb = ImageOps.fit(rgb, (IMAGE_SIZE, IMAGE_SIZE))
    return Picture(np.asarray(rgb), note, is_slow=size[0] * size[1] > SLOW)


def describe_damage(error: Exception) -> str:
    """Why an image cannot be read, without its path, which Pillow writes into some messages."""
    if isinstance(error, UnidentifiedImageError):
        return "it holds no image of a known format"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def _count_frames(file: Image.Image) -> int:
    """Frames or pages; one for a phone's photograph with its preview, or where they are damaged."""
    if file.format == "MPO":
        return 1
    try:
        return getattr(file, "n_frames", 1)
    except Exception:
        file.seek(0)
        return 1


def _turn_upright(file: Image.Image) -> Image.Image:
    """The pixels as a viewer shows them: cameras turn a photograph by a note in its EXIF.

    EXIF that cannot be parsed turns nothing. `ImageOps.exif_transpose` would also write it anew,
    and fall over its other tags.
    """
    try:
        turn = TURNS.get(file.getexif().get(ORIENTATION, 1))
    except Exception:
        turn = None
    return file if turn is None else file.transpose(turn)


def _convert(image: Image.Image) -> tuple[Image.Image, Note]:
    """The image in 8 bits of red, green and blue. What is transparent becomes white.

    Pixels under transparency keep colours that no viewer shows, so they must not be read.

    Raises:
        ValueError: 32 bits of grey.
    """
    if image.mode in ("I", "F"):  # their range is not fixed, so they cannot be scaled
        raise ValueError("32 bits per pixel: save it with 8 or 16")
    if image.mode.startswith("I;16"):  # convert would clip, not scale
        grey = np.asarray(image)
        note = Note.DEEP | (Note.DIM if grey.max() <= TWELVE_BITS else Note.NONE)
        return Image.fromarray((grey / 257).astype(np.uint8)).convert("RGB"), note
    if not image.has_transparency_data:
        return image.convert("RGB"), Note.NONE
    rgba = image.convert("RGBA")
    if rgba.getchannel("A").getextrema()[0] == 255:
        return rgba.convert("RGB"), Note.NONE
    white = Image.new("RGBA", rgba.size, "white")
    return Image.alpha_composite(white, rgba).convert("RGB"), Note.TRANSPARENT


def tell_notes(notes: list[Note]) -> None:
    """Print one line for each thing that happened to some of the images."""
    total = f"of {len(notes):,} images"

    def count(note: Note) -> int:
        return sum(note in one for one in notes)

    if count(Note.RESIZED):
        side = f"{IMAGE_SIZE}×{IMAGE_SIZE}"
        print(f"{count(Note.RESIZED):,} {total} are not {side}: resized.")
    if count(Note.TRANSPARENT):
        print(f"{count(Note.TRANSPARENT):,} {total} are transparent in parts: shown on white.")
    if count(Note.FRAMES):
        print(f"{count(Note.FRAMES):,} {total} have several frames or pages: the first is read.")
    if count(Note.DEEP) and count(Note.DIM) == count(Note.DEEP):
        print(
            f"{count(Note.DIM):,} {total} have 16 bits, but no value above {TWELVE_BITS:,} of "
            "65,535, so that 16 levels of grey are left: multiply their values by 16 and save "
            "them again."
        )
