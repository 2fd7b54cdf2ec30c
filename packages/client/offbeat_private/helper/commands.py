"""Commands ``offbeat-helper …``: the second party of masked sums.

``offbeat helper …`` are the same ones.
"""

import logging
from collections.abc import Sequence
from copy import copy
from pathlib import Path

import click
from offbeat_core.command_line import Utf8Path

_PATH = Utf8Path()
_FOLDER = click.option(
    "--folder", metavar="FOLDER", type=_PATH, default=Path("helper"), show_default=True, help="The helper's folder."
)


class _Command(click.Command):
    """A command whose example names the program that shows it."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = copy(self)
        shown.epilog = (self.epilog or "").replace("offbeat-helper", ctx.command_path.rpartition(" ")[0])
        super(_Command, shown).format_epilog(ctx, formatter)


@click.group(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def helper() -> None:
    """Open the masked sums of a server.

    The server must not see single updates.
    """


@helper.command(
    cls=_Command, epilog="\b\nExample:\n  offbeat-helper enrol roster.toml --folder helper --host helper.example"
)
@click.argument("file", metavar="FILE", type=_PATH)
@_FOLDER
@click.option(
    "--host",
    "hosts",
    metavar="NAME",
    multiple=True,
    default=("localhost", "127.0.0.1"),
    show_default=True,
    help="Name or address by which the server calls the helper. Repeatable.",
)
def enrol(file: Path, folder: Path, hosts: Sequence[str]) -> None:
    """Begin a run with the terms and clients of FILE.

    Participations of earlier runs in this folder still count.
    """
    from offbeat_core.serving.certificates import fingerprint
    from offbeat_core.tables.toml_table import read_table
    from offbeat_private.helper import roster
    from offbeat_private.helper.helper_folder import HelperFolder

    enrolled = roster.enrol(roster.parse_roster(read_table(file), file), folder, hosts)
    files = HelperFolder(folder)
    click.echo(f"Run {enrolled.terms.run.hex()}: {enrolled.clients} clients")
    click.echo(f"For server and clients: {files.terms}")
    click.echo(f"Fingerprint, which each client compares: {enrolled.terms.fingerprint}")
    click.echo(f"For the server: {files.tls / 'ca.pem'} (SHA-256 {fingerprint(files.tls / 'ca.pem')})")
    click.echo(f"For the server, not shown again: {enrolled.token}")


@helper.command(cls=_Command, epilog="\b\nExample:\n  offbeat-helper serve --folder helper --host 0.0.0.0")
@_FOLDER
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=9443,
    show_default=True,
    help="The TCP port; 0 for any free port.",
)
@click.option("--log", "logs", is_flag=True, help="Write each event to standard error, as a line of JSON.")
def serve(folder: Path, host: str, port: int, logs: bool) -> None:
    """Open sums until Ctrl-C.

    The same command resumes.
    """
    from offbeat_core.serving.console_log import write_logs
    from offbeat_private.helper.helper_server import run_helper

    write_logs(logging.INFO if logs else logging.WARNING)
    run_helper(folder, host, port, lambda url: click.echo(f"Listening at {url}"))
    click.echo("Stopped; the same command resumes")


@helper.command(cls=_Command, epilog="\b\nExample:\n  offbeat-helper status --folder helper")
@_FOLDER
def status(folder: Path) -> None:
    """Show the opened sums, and what they cost the clients."""
    from offbeat_private.helper.status import status as read_status

    now = read_status(folder)
    click.echo(f"run: {now.run}, {now.clients} clients")
    click.echo(f"fingerprint: {now.fingerprint}")
    click.echo(f"batches: {now.batches}{', stopped: this folder is an old copy' if now.is_stopped else ''}")
    click.echo(f"participations by client: {_spread(now.participations)}")
    click.echo(f"epsilon by client: {_spread(now.epsilon)} (delta {now.delta:g})")
    click.echo(f"epsilon by client, replace-one: {_spread(now.epsilon_replace_one)} (delta {now.delta:g})")


def _spread(values: tuple[float, float]) -> str:
    return "largest {:.4g}, median {:.4g}".format(*values)
