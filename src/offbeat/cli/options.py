"""Arguments and options that several commands have."""

from pathlib import Path

import click

FILE = click.argument("file", metavar="FILE", type=Path)
SET = click.option("--set", "changes", metavar="KEY=VALUE", multiple=True, help="Change a key of the file. Repeatable.")
ALGORITHM = click.option("--algorithm", "labels", metavar="LABEL", multiple=True, help="Only this one. Repeatable.")
