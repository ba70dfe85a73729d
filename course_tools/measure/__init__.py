"""``course measure``: what a reader's own accelerator takes, for the tables of the lessons."""
