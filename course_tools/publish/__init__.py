"""For students and instructors: exercises, grading, release, slides, site."""
