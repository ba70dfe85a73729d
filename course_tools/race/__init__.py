"""``course race``: recipes are trained on the same images, within the same budget, and ranked."""
