"""Arguments and options that several commands have.

The modules of commands import nothing heavy at their top, so that help and completion are fast: what a command needs
is imported in its function.
"""

import click
from offbeat_core.command_line import Utf8Path

PATH = Utf8Path()

FILE = click.argument("file", metavar="FILE", type=PATH)
SET = click.option("--set", "changes", metavar="KEY=VALUE", multiple=True, help="Change a key of the file. Repeatable.")
ALGORITHM = click.option("--algorithm", "labels", metavar="LABEL", multiple=True, help="Only this one. Repeatable.")
JOBS = click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Runs at once, each in a process of its own.",
)
FRESH = click.option(
    "--fresh", is_flag=True, help="Start anew. Otherwise finished runs are kept, and unfinished ones resumed."
)
