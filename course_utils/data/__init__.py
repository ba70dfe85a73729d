"""Images and texts: sources, splits, augmentation, tokens, loaders."""

from course_utils.data.image_data import ImageData, Images
from course_utils.data.load import Data, load_data
from course_utils.data.text_data import TextData, Texts

__all__ = ["Data", "ImageData", "Images", "TextData", "Texts", "load_data"]
