"""Console of all commands."""

import sys

from rich.console import Console

# Output to a file or pipe is not folded to 80 columns.
console = Console() if sys.stdout.isatty() else Console(width=160)
