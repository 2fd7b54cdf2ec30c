"""Command ``ui``."""

import webbrowser
from pathlib import Path

import click
from offbeat_core.errors import OffbeatError

from offbeat.cli.options import PATH


@click.command(epilog="\b\nExample:\n  offbeat ui runs")
@click.argument("folder", metavar="[FOLDER]", type=PATH, default=Path("runs"))
@click.option("--port", metavar="N", type=click.IntRange(0, 65535), default=0, help="A free one by default.")
@click.option("--no-browser", is_flag=True, help="Do not open the page.")
def ui(folder: Path, port: int, no_browser: bool) -> None:
    """Show all experiments and sweeps in FOLDER, with live progress.

    FOLDER is runs by default. The page is for this machine only, at 127.0.0.1; Ctrl-C ends it.
    """
    from offbeat.overview.page import write_overview
    from offbeat.overview.server import OverviewServer

    if not folder.is_dir():
        raise OffbeatError(f"{folder} is not a folder: name a folder of experiments, such as runs")
    with OverviewServer(folder, port) as server:
        server.entries()
        write_overview(folder)
        click.echo(f"{server.url} shows {folder}; Ctrl-C ends it")
        if not no_browser:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo()
