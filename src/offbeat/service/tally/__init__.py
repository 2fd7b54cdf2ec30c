"""Counts of each client's visits, by the records of the log."""
