"""Commands ``tokens``: tokens for enrolment and for roles."""

import os
from collections.abc import Sequence
from pathlib import Path

import click
from offbeat_core.errors import OffbeatError

from offbeat.cli.command_groups import DefaultGroup
from offbeat.cli.options import PATH
from offbeat.cli.server.server_place import SERVER, ServerPlace
from offbeat.cli.terminal import visible


@click.group(cls=DefaultGroup, epilog="\b\nExample:\n  offbeat server tokens runs/service")
def tokens() -> None:
    """List, make and revoke tokens for enrolment and roles.

    `offbeat server tokens FOLDER` is short for `offbeat server tokens list FOLDER`.
    """


@tokens.command("list", epilog="\b\nExample:\n  offbeat server tokens list runs/service")
@SERVER
def show(server: ServerPlace) -> None:
    """List the tokens by id, but not the clients'."""
    from offbeat.service.server import admin

    for token in admin.tokens(server.folder):
        parts = [token["kind"], token["state"]]
        if token["labels"]:
            parts.append(f"labels {' '.join(token['labels'])}")
        if token["uses"]:
            parts.append(f"{token['uses']} uses left")
        if token["state"] == "valid" and token["expires_seconds"] is not None:
            parts.append(f"expires in {token['expires_seconds'] / 3600:.1f} hours")
        click.echo(f"{token['id']}: {', '.join([*parts, *filter(None, [visible(token['name'])])])}")


@tokens.command(
    epilog="\b\nExample:\n  offbeat server tokens make runs/service enrolment --uses 8 --hours 24 --output ward-3-token"
)
@SERVER
@click.argument("kind", metavar="KIND", type=click.Choice(["enrolment", "viewer", "operator", "admin"]))
@click.option("--uses", metavar="N", type=click.IntRange(1, 2**31 - 1), help="How many clients may enrol with it.")
@click.option("--hours", metavar="HOURS", type=click.FloatRange(0, 1e6, min_open=True), help="How long it is valid.")
@click.option("--name", metavar="NAME", default="", help="Its purpose, for the list of tokens.")
@click.option(
    "--label",
    "labels",
    metavar="LABEL",
    multiple=True,
    help="A label of the sites that enrol with it, on a server of several runs. Repeatable.",
)
@click.option("--output", metavar="FILE", type=PATH, required=True, help="The token's file, which only you can read.")
def make(
    server: ServerPlace,
    kind: str,
    uses: int | None,
    hours: float | None,
    name: str,
    labels: Sequence[str],
    output: Path,
) -> None:
    """Make a token of a KIND: enrolment, viewer, operator or admin.

    A viewer sees the run, an operator also controls it and its sites, an admin also makes tokens.
    """
    from offbeat.service.server import admin

    if uses is not None and kind != "enrolment":
        raise OffbeatError("--uses is for enrolment tokens: leave it out")
    # The file is made first: a token that cannot be written must not be made.
    try:
        descriptor = os.open(output, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as error:
        raise OffbeatError(f"cannot write {output}: {error.strerror}: choose another --output") from None
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            seconds = None if hours is None else hours * 3600
            token = admin.make_token(server.folder, kind, uses=uses, seconds=seconds, name=name, labels=labels)
            file.write(f"{token}\n")
    except BaseException:  # also Ctrl-C: an empty file would be taken for a token
        output.unlink(missing_ok=True)
        raise
    click.echo(f"{output}: a new {kind} token")


@tokens.command(epilog="\b\nExample:\n  offbeat server tokens revoke runs/service 4be1")
@SERVER
@click.argument("which", metavar="ID")
def revoke(server: ServerPlace, which: str) -> None:
    """Revoke the token with this ID.

    `offbeat server tokens` lists the ids.
    """
    from offbeat.service.server import admin

    admin.revoke_token(server.folder, which)
    click.echo(f"{which}: revoked")
