"""Command lines: how a program ends, and the helper's commands."""
