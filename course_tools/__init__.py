"""What instructors and CI run: the command ``course``. Never imported by a notebook."""
