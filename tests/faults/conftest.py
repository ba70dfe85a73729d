"""The lessons and the command line of the tests of tools."""

from tests.tools.conftest import course, school, temporary

__all__ = ["course", "school", "temporary"]
