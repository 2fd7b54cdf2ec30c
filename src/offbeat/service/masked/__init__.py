"""Masked updates: their shares, the helper, and the opening of sums."""
