"""The log of a run: numbered rows, appended by one leader at a time."""
