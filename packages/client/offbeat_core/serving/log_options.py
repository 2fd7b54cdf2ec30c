"""Options of commands that run a server: its log."""

from collections.abc import Callable
from typing import Any, TypeVar

import click
from offbeat_core.command_line import Utf8Path
from offbeat_core.serving.console_log import LEVELS

F = TypeVar("F", bound=Callable[..., Any])


def log_options(command: F) -> F:
    """Add the options ``log_level`` and ``log_file``, the arguments of ``write_logs``."""
    add_level = click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        default="info",
        show_default=True,
        help="The least level of events that are logged.",
    )
    add_file = click.option(
        "--log-file",
        metavar="PATH",
        type=Utf8Path(),
        help="Write events there as JSON, in 5 files of at most 10 MB; standard error by default.",
    )
    return add_level(add_file(command))
