"""Networks by name, the pretrained backbone, and freezing."""

from course_utils.models.create import create_model
from course_utils.models.freeze import freeze_before

__all__ = ["create_model", "freeze_before"]
