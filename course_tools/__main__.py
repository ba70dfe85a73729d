"""``python -m course_tools`` is the command ``course``."""

from course_tools.cli.start import main

main()
