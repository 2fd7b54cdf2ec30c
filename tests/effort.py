"""Number of random cases that a test draws."""

import os

IS_LONG = "OFFBEAT_LONG" in os.environ
"""``make test-long``: draw all of them."""


def cases(number: int) -> int:
    """Return how many of this number of cases to draw: a fifth, or all in a long test."""
    return number if IS_LONG else -(-number // 5)
