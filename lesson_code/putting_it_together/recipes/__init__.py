"""The recipes of lesson 12, as students hand in theirs."""
