"""Checks of single values.

Each raises a ``ValueError`` that names the value and its range.
"""

from offbeat_client.checks import LARGEST_COUNT, LARGEST_FLOAT32, check_count, check_not_negative, check_positive

__all__ = [
    "LARGEST_COUNT",
    "LARGEST_FLOAT32",
    "check_client",
    "check_count",
    "check_not_negative",
    "check_positive",
]


def check_client(client: int, clients: int) -> None:
    """Raise ``ValueError`` unless 0 ≤ client < clients."""
    if not 0 <= client < clients:
        raise ValueError(f"client must be in 0 … {clients - 1}, got {client}")
