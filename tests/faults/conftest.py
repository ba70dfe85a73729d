"""The lessons and the command line of the tests of tools, for the cases of bad_inputs.md."""

from tests.tools.conftest import course, school, temporary

__all__ = ["course", "school", "temporary"]
