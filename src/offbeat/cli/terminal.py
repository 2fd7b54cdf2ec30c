"""The terminal: its console, and text from others on it."""

import shlex
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@cache
def console() -> "Console":
    """Return the console of all commands; rich is imported when it is first used."""
    from rich.console import Console

    # Output to a file or pipe is not folded to 80 columns.
    return Console() if sys.stdout.isatty() else Console(width=160)


def command_line() -> str:
    """Return the command that this process carries out, for a shell."""
    return shlex.join(["offbeat", *sys.argv[1:]])


def visible(text: str) -> str:
    """Return a text with escapes of the characters that could change the terminal."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
