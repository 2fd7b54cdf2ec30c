"""The figures, tables and theorems of the papers, measured again."""

SCALES = ("quick", "medium", "full")
DEFAULT_SEEDS = 3  # of a figure's file, unless more are asked for
