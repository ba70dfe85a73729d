"""This process and those that it starts: what they inherit, and how many threads they take."""
