"""Images: sources, splits, augmentation, loaders."""

from course_utils.data.image_data import ImageData, Images, load_data

__all__ = ["ImageData", "Images", "load_data"]
