"""Commands ``tokens``: enrolment and admin tokens."""

import copy
import os
from pathlib import Path

import click
from offbeat_core.errors import OffbeatError

from offbeat.cli.default_group import DefaultGroup
from offbeat.cli.options import PATH
from offbeat.cli.terminal_text import visible


def _renamed(command: click.Command, name: str) -> click.Command:
    """Return a copy of a command with its name in the group."""
    copied = copy.copy(command)
    copied.epilog = (command.epilog or "").replace(f"offbeat {command.name} ", f"offbeat tokens {name} ")
    copied.name = name
    return copied


@click.group(cls=DefaultGroup, epilog="\b\nExample:\n  offbeat tokens runs/service")
def tokens() -> None:
    """List, make and revoke enrolment and admin tokens.

    `offbeat tokens FOLDER` is short for `offbeat tokens list FOLDER`. `offbeat make-token` is another name of `offbeat
    tokens make`, and `offbeat revoke` of `offbeat tokens revoke`.
    """


@tokens.command("list", epilog="\b\nExample:\n  offbeat tokens list runs/service")
@click.argument("folder", metavar="FOLDER", type=PATH)
def show(folder: Path) -> None:
    """List the enrolment and admin tokens of the server with this FOLDER, by id."""
    from offbeat.service.server import admin

    for token in admin.tokens(folder):
        parts = [token["kind"], token["state"]]
        if token["uses"]:
            parts.append(f"{token['uses']} uses left")
        if token["state"] == "valid" and token["expires_seconds"] is not None:
            parts.append(f"expires in {token['expires_seconds'] / 3600:.1f} hours")
        click.echo(f"{token['id']}: {', '.join([*parts, *filter(None, [visible(token['name'])])])}")


@click.command(
    epilog="\b\nExample:\n  offbeat make-token runs/service enrolment --uses 8 --hours 24 --output ward-3-token"
)
@click.argument("folder", metavar="FOLDER", type=PATH)
@click.argument("kind", metavar="KIND", type=click.Choice(["enrolment", "admin"]))
@click.option("--uses", metavar="N", type=click.IntRange(1, 2**31 - 1), help="How many clients may enrol with it.")
@click.option("--hours", metavar="HOURS", type=click.FloatRange(0, 1e6, min_open=True), help="How long it is valid.")
@click.option("--name", metavar="NAME", default="", help="Its purpose, for the list of tokens.")
@click.option("--output", metavar="FILE", type=PATH, required=True, help="The token's file, which only you can read.")
def make_token(folder: Path, kind: str, uses: int | None, hours: float | None, name: str, output: Path) -> None:
    """Make an enrolment or admin token (KIND) for the server with this FOLDER."""
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
            file.write(f"{admin.make_token(folder, kind, uses=uses, seconds=seconds, name=name)}\n")
    except BaseException:  # also Ctrl-C: an empty file would be taken for a token
        output.unlink(missing_ok=True)
        raise
    click.echo(f"{output}: a new {kind} token")


@click.command(epilog="\b\nExample:\n  offbeat revoke runs/service client-3")
@click.argument("folder", metavar="FOLDER", type=PATH)
@click.argument("which", metavar="WHICH")
def revoke(folder: Path, which: str) -> None:
    """Revoke a token of the server with this FOLDER.

    WHICH is the token's id as in `offbeat tokens`, or a client such as `client-3`, whose tokens are then revoked.
    """
    from offbeat.service.server import admin

    admin.revoke(folder, which)
    click.echo(f"{which}: revoked")


tokens.add_command(_renamed(make_token, "make"))
tokens.add_command(_renamed(revoke, "revoke"))
