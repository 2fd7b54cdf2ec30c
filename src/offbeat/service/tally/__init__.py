"""Counts of each client's visits, from the records of the log."""
