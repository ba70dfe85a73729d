"""``python -m course_utils.tools`` is the command ``course``."""

from course_utils.tools.cli import main

main()
