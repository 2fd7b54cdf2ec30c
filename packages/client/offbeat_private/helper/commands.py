"""Commands ``offbeat-helper …``: the second party of masked sums.

``offbeat helper …`` are the same ones.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING

import click
from offbeat_core.command_line import Utf8Path
from offbeat_core.serving.log_options import log_options

if TYPE_CHECKING:
    from offbeat_private.helper.opening_rules import ClientHistory

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
    from offbeat_core.files import read_table
    from offbeat_core.serving.certificates import fingerprint
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
@log_options
def serve(folder: Path, host: str, port: int, log_level: str, log_file: Path | None) -> None:
    """Open sums until Ctrl-C.

    The same command resumes.
    """
    from offbeat_core.serving.console_log import write_logs
    from offbeat_private.helper.helper_server import run_helper

    write_logs(log_level, log_file)
    run_helper(folder, host, port, lambda url: click.echo(f"Listening at {url}"))
    click.echo("Stopped; the same command resumes")


@helper.command(cls=_Command, epilog="\b\nExample:\n  offbeat-helper status --folder helper")
@_FOLDER
@click.option("--clients", "by_client", is_flag=True, help="Also each client's participations and ε.")
def status(folder: Path, by_client: bool) -> None:
    """Show the opened sums, and what the runs cost the clients."""
    now = read_status(folder)
    click.echo(f"run: {now.run}, {now.clients} clients")
    click.echo(f"fingerprint: {now.fingerprint}")
    click.echo(f"batches: {now.batches}{', stopped: this folder is an old copy' if now.is_stopped else ''}")
    click.echo(f"participations by client: {_spread(now.participations)}")
    click.echo(f"epsilon by client: {_spread(now.epsilon)} (delta {now.delta:g})")
    click.echo(f"epsilon by client, replace-one: {_spread(now.epsilon_replace_one)} (delta {now.delta:g})")
    if now.epsilon_total is not None:
        click.echo(f"epsilon of a client over all runs: at most {now.epsilon_total:g}")
    for name, (participations, epsilon, replace_one) in sorted(now.by_client.items()) if by_client else ():
        click.echo(f"{name}: {participations} participations, epsilon {epsilon:.4g}, replace-one {replace_one:.4g}")


def _spread(values: tuple[float, float]) -> str:
    return "largest {:.4g}, median {:.4g}".format(*values)


@dataclass(frozen=True)
class HelperStatus:
    """The progress of a helper.

    Pairs are the largest and the median value of a client, over all runs. ε is for the run's δ, and for zero-out or
    replace-one adjacency.
    """

    run: str
    fingerprint: str
    clients: int
    batches: int
    is_stopped: bool
    participations: tuple[int, int]
    delta: float
    epsilon: tuple[float, float]
    epsilon_replace_one: tuple[float, float]
    epsilon_total: float | None  # the limit of a client
    by_client: dict[str, tuple[int, float, float]]  # by name: participations, and ε for either adjacency


def read_status(folder: Path) -> HelperStatus:
    """Return the status of a helper, which may be running.

    Raises:
        OffbeatError: The folder is not an enrolled one.
    """
    from offbeat_private.accounting import composed_epsilon
    from offbeat_private.helper.helper_database import HelperDatabase

    with closing(HelperDatabase(folder, read_only=True)) as store:
        run, roster, opened = store.run(), store.roster(), store.opened()
    histories = [opened.histories[key] for key in roster]

    def spread(value: "Callable[[ClientHistory], float]") -> tuple[float, float]:
        values = [value(history) for history in histories]
        return max(values), median_low(values)

    def epsilons(*, replace_one: bool) -> tuple[float, float]:
        most, usual = spread(lambda history: history.spent)
        largest, median = (composed_epsilon(value, run.delta, replace_one=replace_one) for value in (most, usual))
        return largest, median

    most, usual = spread(lambda history: history.participations)
    return HelperStatus(
        run=run.signed_terms.terms.run.hex(),
        fingerprint=run.signed_terms.terms.fingerprint,
        clients=len(histories),
        batches=len(opened.batches),
        is_stopped=opened.is_stopped,
        participations=(int(most), int(usual)),
        delta=run.delta,
        epsilon=epsilons(replace_one=False),
        epsilon_replace_one=epsilons(replace_one=True),
        epsilon_total=run.epsilon_total,
        by_client={
            name: (
                opened.histories[key].participations,
                composed_epsilon(opened.histories[key].spent, run.delta),
                composed_epsilon(opened.histories[key].spent, run.delta, replace_one=True),
            )
            for key, name in roster.items()
        },
    )
