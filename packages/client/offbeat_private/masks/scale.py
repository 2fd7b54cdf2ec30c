"""The scale of a masked update, which the server chooses and the client checks."""

SMALLEST_SCALE = 1 / 8
"""The smallest weight by staleness; a smaller one would tell the client's share of a sum apart."""


def check_scale(scale: float) -> None:
    """Raise ``ValueError`` unless a client accepts the scale: 1/8 … 1."""
    if not SMALLEST_SCALE <= scale <= 1:
        raise ValueError(f"scale must be in {SMALLEST_SCALE} … 1, got {scale}")
