"""The report, the README's table, and what is kept in data/results."""
