"""Sweeps: trials of an experiment's algorithms with other settings."""
