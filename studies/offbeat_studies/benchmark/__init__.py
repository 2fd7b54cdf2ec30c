"""The benchmark: all algorithms in a few worlds, each with the same tuning."""
