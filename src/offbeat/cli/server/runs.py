"""Commands ``runs``: the runs of a server of several runs."""

from pathlib import Path
from typing import Any

import click

from offbeat.cli.command_groups import DefaultGroup
from offbeat.cli.options import PATH
from offbeat.cli.server.server_place import SERVER, ServerPlace

STOPPED = 3
"""The exit code of a status without a server."""

_RUN = click.argument("run", metavar="RUN")


@click.group(cls=DefaultGroup, epilog="\b\nExample:\n  offbeat server runs runs/server")
def runs() -> None:
    """List, begin and steer the runs of a server of several.

    `offbeat server runs FOLDER` is short for `offbeat server runs list FOLDER`. The folder of a run is
    FOLDER/runs/RUN: all commands for a server with one run take it, such as `offbeat server status`.
    """


@runs.command("list", epilog="\b\nExample:\n  offbeat server runs list runs/server")
@SERVER
def show(server: ServerPlace) -> int:
    """List all runs, with what keeps them from going on.

    The exit code is 3 if no server runs.
    """
    return show_host(server.folder)


@runs.command(epilog="\b\nExample:\n  offbeat server runs create runs/server retina.toml")
@SERVER
@click.argument("file", metavar="FILE", type=PATH)
@click.option("--name", metavar="RUN", help="The run's name; by default that of FILE without .toml.")
def create(server: ServerPlace, file: Path, name: str | None) -> None:
    """Begin the run of FILE.

    FILE is like that of a server with one run, without what is the server's. Code and models that it names are beside
    the server's file.
    """
    from offbeat.service.server import host_admin

    begun = host_admin.create(server.folder, name or file.stem, file)
    click.echo(f"{begun['name']}: {begun['algorithm']}, {begun['clients']} clients")


@runs.command(epilog="\b\nExample:\n  offbeat server runs pause runs/server retina")
@SERVER
@_RUN
def pause(server: ServerPlace, run: str) -> None:
    """Give out no more work of RUN.

    Updates of visits under way still count. `offbeat server runs resume` ends the pause.
    """
    from offbeat.service.server import admin, host_admin

    admin.set_paused(host_admin.folder_of(server.folder, run), is_paused=True)
    click.echo(f"{run}: paused")


@runs.command(epilog="\b\nExample:\n  offbeat server runs resume runs/server retina")
@SERVER
@_RUN
def resume(server: ServerPlace, run: str) -> None:
    """Give out work of RUN again."""
    from offbeat.service.server import admin, host_admin

    admin.set_paused(host_admin.folder_of(server.folder, run), is_paused=False)
    click.echo(f"{run}: resumed")


@runs.command(epilog="\b\nExample:\n  offbeat server runs extend runs/server retina 500")
@SERVER
@_RUN
@click.argument("versions", metavar="VERSIONS", type=click.IntRange(min=1))
def extend(server: ServerPlace, run: str, versions: int) -> None:
    """Let RUN end at version VERSIONS, later than before.

    A finished run continues.
    """
    from offbeat.service.server import admin, host_admin

    end = admin.extend(host_admin.folder_of(server.folder, run), versions)["stop_versions"]
    click.echo(f"{run}: ends at version {end}")


@runs.command(epilog="\b\nExample:\n  offbeat server runs grow runs/server retina 80")
@SERVER
@_RUN
@click.argument("clients", metavar="CLIENTS", type=click.IntRange(min=1))
def grow(server: ServerPlace, run: str, clients: int) -> None:
    """Let RUN have CLIENTS clients, more than before."""
    from offbeat.service.server import admin, host_admin

    number = admin.grow(host_admin.folder_of(server.folder, run), clients)
    click.echo(f"{run}: {number} clients")


@runs.command(epilog="\b\nExample:\n  offbeat server runs end runs/server retina")
@SERVER
@_RUN
def end(server: ServerPlace, run: str) -> None:
    """End RUN at its newest version.

    `offbeat server runs extend` lets it go on.
    """
    from offbeat.service.server import admin, host_admin

    version = admin.end(host_admin.folder_of(server.folder, run))["stop_versions"]
    click.echo(f"{run}: has ended at version {version}")


def show_host(folder: Path) -> int:
    """Print what is known of a server's problems, runs and sites.

    Return 3 if it does not run.
    """
    from offbeat.service.server import host_admin

    now = host_admin.status(folder)
    if "server" in now:
        click.echo(f"server: {now['server']}")
        for run in now["runs"]:
            click.echo(f"{run['name']}: {run['algorithm']}, version {run['version']}")
        return STOPPED
    for problem in now["problems"]:
        click.echo(f"problem: {problem}")
    for run in now["runs"]:
        click.echo(_line(run))
    numbers = [_number(len(now["runs"]), "run"), _number(now["sites"], "site")]
    if now["revoked_sites"]:
        numbers.append(f"{now['revoked_sites']} of them revoked")
    click.echo(", ".join(numbers))
    return 0


def _number(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _line(run: dict[str, Any]) -> str:
    if run["algorithm"] is None:
        return f"{run['name']}: {run['state']}"
    end = "" if run["stop_versions"] is None else f" of {run['stop_versions']}"
    return (
        f"{run['name']}: {run['state']}, {run['algorithm']}, version {run['version']}{end}, {run['enrolled']} of "
        f"{run['clients']} clients, {run['at_work']} at work, {run['waiting']} waiting, {run['counted']:,} counted"
    )
