"""Commands ``pause``, ``resume`` and ``extend``."""

from pathlib import Path

import click

from offbeat.cli.options import PATH

_FOLDER = click.argument("folder", metavar="FOLDER", type=PATH)


@click.command(epilog="\b\nExample:\n  offbeat pause runs/service")
@_FOLDER
def pause(folder: Path) -> None:
    """Give out no more work, until offbeat resume.

    Updates of visits under way still count. The run stays paused if the server is restarted.
    """
    from offbeat.service.server import admin

    admin.set_paused(folder, is_paused=True)
    click.echo("Paused")


@click.command(epilog="\b\nExample:\n  offbeat resume runs/service")
@_FOLDER
def resume(folder: Path) -> None:
    """Give out work again after offbeat pause."""
    from offbeat.service.server import admin

    admin.set_paused(folder, is_paused=False)
    click.echo("Resumed")


@click.command(epilog="\b\nExample:\n  offbeat extend runs/service 500")
@_FOLDER
@click.argument("versions", metavar="VERSIONS", type=click.IntRange(min=1))
def extend(folder: Path, versions: int) -> None:
    """Let the run end at version VERSIONS, later than before.

    A finished run continues.
    """
    from offbeat.service.server import admin

    click.echo(f"The run ends at version {admin.extend(folder, versions)['stop_versions']}")
