"""``python -m course_utils.tools`` is the command ``course``."""

from course_utils.tools.start import main

main()
