"""Shares of masked sums: clipped, quantised, masked and sealed updates."""
