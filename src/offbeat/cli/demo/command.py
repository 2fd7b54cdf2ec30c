"""Command ``demo``: a server with clients on this machine."""

from pathlib import Path

import click

from offbeat.cli.options import PATH


@click.command(epilog="\b\nExample:\n  offbeat demo --private")
@click.option("--private", is_flag=True, help="Mask the updates; a helper opens their sums, and is killed too.")
@click.option(
    "--folder",
    metavar="FOLDER",
    type=PATH,
    default=Path("runs/demo"),
    show_default=True,
    help="Folder of all processes.",
)
def demo(private: bool, folder: Path) -> None:
    """Run a server and clients here, and kill some of them.

    There are eight clients. Prints the model's accuracy.
    """
    from offbeat.cli.demo.demo_run import run_demo
    from offbeat.cli.demo.private import run_private_demo

    (run_private_demo if private else run_demo)(click.echo, folder)
