"""Commands ``clients``: the clients of a server."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from offbeat.cli.command_groups import DefaultGroup
from offbeat.cli.server.server_place import SERVER, ServerPlace
from offbeat.cli.terminal import visible

_HEAD = (
    "client",
    "enrolled (UTC)",
    "last seen (UTC)",
    "visits",
    "counted",
    "refused",
    "lost",
    "staleness",
    "revoked",
    "name",
)
_CLIENT = click.argument("which", metavar="CLIENT")


@click.group(cls=DefaultGroup, epilog="\b\nExample:\n  offbeat server clients runs/service")
def clients() -> None:
    """List, rename, revoke and forget the clients of a server.

    `offbeat server clients FOLDER` is short for `offbeat server clients list FOLDER`. CLIENT is a client's name, or its
    number, as 3 or client-3.
    """


@clients.command("list", epilog="\b\nExample:\n  offbeat server clients list runs/service --json")
@SERVER
@click.option("--json", "as_json", is_flag=True, help="Print JSON; times are Unix seconds.")
def show(server: ServerPlace, as_json: bool) -> None:
    """List the clients of a server.

    The server may be stopped, and FOLDER may be a backup.
    """
    from offbeat.service.server import admin

    found = admin.clients(*server)
    if as_json:
        click.echo(json.dumps({"listens": found.listens, "clients": found.clients}))
        return
    if not found.listens:
        click.echo("The server is stopped: these are the clients in its folder.", err=True)
    for line in _table(found.clients):
        click.echo(line)


@clients.command(epilog="\b\nExample:\n  offbeat server clients revoke runs/service 'ward 3'")
@SERVER
@_CLIENT
def revoke(server: ServerPlace, which: str) -> None:
    """Revoke CLIENT.

    Its requests are refused, and its visit is lost.
    """
    from offbeat.service.server import admin

    click.echo(f"client-{admin.revoke_client(server.folder, which)}: revoked")


@clients.command(epilog="\b\nExample:\n  offbeat server clients forget runs/service 'ward 3'")
@SERVER
@_CLIENT
def forget(server: ServerPlace, which: str) -> None:
    """Revoke CLIENT, and delete what the server holds of it.

    That cannot be undone. Prints what was deleted, and what cannot be.
    """
    from offbeat.service.server import admin

    forgotten = admin.forget_client(server.folder, which)
    show_forgotten(f"client-{forgotten['client']}", forgotten)


def show_forgotten(name: str, forgotten: dict[str, Any]) -> None:
    """Print what was deleted of a client or a site, and what was not."""
    click.echo(f"{name}: forgotten")
    for sentence in forgotten["deleted"]:
        click.echo(f"- {sentence}")
    click.echo("What stays:")
    for sentence in forgotten["stays"]:
        click.echo(f"- {sentence}")


@clients.command(epilog="\b\nExample:\n  offbeat server clients rename runs/service client-3 'ward 3'")
@SERVER
@_CLIENT
@click.argument("name", metavar="NAME")
def rename(server: ServerPlace, which: str, name: str) -> None:
    """Give CLIENT another NAME."""
    from offbeat.service.server import admin

    click.echo(f"client-{admin.rename_client(server.folder, which, name)}: renamed")


def _table(listed: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table; names come last, since some are long."""
    rows = [_HEAD, *map(_row, listed)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        *cells, name = row
        yield "  ".join([*(cell.rjust(width) for cell, width in zip(cells, widths, strict=False)), name]).rstrip()


def _row(client: dict[str, Any]) -> tuple[str, ...]:
    staleness = client["mean_staleness"]
    return (
        str(client["client"]),
        _time(client["enrolled"]),
        _time(client["last_seen"]),
        *(f"{client[name]:,}" for name in ("visits", "counted", "refused", "lost")),
        "-" if staleness is None else f"{staleness:.2f}",
        _time(client["revoked"]),
        visible(client["name"]),
    )


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
