"""Overview of a folder: all its experiments and sweeps."""
