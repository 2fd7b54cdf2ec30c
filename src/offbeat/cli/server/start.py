"""Command ``server start``."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from offbeat_core.errors import OffbeatError
from offbeat_core.serving.log_options import log_options

from offbeat.cli.options import FILE, SET

if TYPE_CHECKING:
    from offbeat.config.server_file import PlaceSection
    from offbeat.service.hosting.hosting import HostListening
    from offbeat.service.server.serving import Listening


@click.command(epilog="\b\nExample:\n  offbeat server start server.toml")
@FILE
@SET
@click.option(
    "--fronts", metavar="N", type=click.IntRange(0, 64), default=0, help="Serve clients in N processes of their own."
)
@log_options
def start(file: Path, changes: Sequence[str], fronts: int, log_level: str, log_file: Path | None) -> None:
    """Run the server of FILE until Ctrl-C.

    The same command resumes. A FILE without a model and an algorithm is that of a server of several runs.
    """
    # Large vectors in huge pages: PyTorch, which reads this when it is imported, gets their memory in half the time.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    from offbeat_core.files import read_table
    from offbeat_core.serving.console_log import write_logs

    from offbeat.config.host_file import is_host_file

    if is_host_file(read_table(file)):
        if changes:
            raise OffbeatError("--set is for a server with one run: leave it out")
        write_logs(log_level, log_file)
        _start_host(file, fronts)
    else:
        write_logs(log_level, log_file)
        _start_server(file, changes, fronts)
    click.echo("Stopped; the same command resumes")


def _start_server(file: Path, changes: Sequence[str], fronts: int) -> None:
    from offbeat.config.server_file import load
    from offbeat.worlds.serve import run_server

    server = load(file, changes)
    folder = Path(server.service.folder)

    def ready(listening: "Listening") -> None:
        status = listening.service.status()
        click.echo(f"Listening at {listening.url}: {status.algorithm}, version {status.version}")
        options: list[object] = []
        if server.privacy is not None and server.privacy.helper is not None:
            options += ["--terms", server.service.helper_terms]
        _show_how_to_join(server.service, listening.public_url, options)
        status_of = shlex.join(["offbeat", "server", "status", str(folder)])
        click.echo(f"Status: {status_of}; metrics: {listening.url}/metrics (token in {folder}/admin-token)")

    run_server(server, ready, fronts)


def _start_host(file: Path, fronts: int) -> None:
    from offbeat.config.host_file import load
    from offbeat.worlds.host import run_host

    host = load(file)
    folder = Path(host.service.folder)

    def ready(listening: "HostListening") -> None:
        runs = listening.service.status().runs
        click.echo(f"Listening at {listening.url}: {len(runs)} run{'' if len(runs) == 1 else 's'}")
        for run in runs:
            click.echo(f"Run {run.name}: {run.state}{f', {run.problem}' if run.problem else ''}")
        _show_how_to_join(host.service, listening.public_url, [])
        create = shlex.join(["offbeat", "server", "runs", "create", str(folder), "RUN.toml"])
        click.echo(f"Begin a run: {create}")

    run_host(host, file.parent, ready, fronts)


def _show_how_to_join(service: "PlaceSection", url: str, more: Sequence[object]) -> None:
    """Print how clients enrol, and where the live page is."""
    from offbeat_core.serving.certificates import fingerprint

    folder = Path(service.folder)
    options: list[object] = ["--token-file", folder / "enrolment-token"]
    if service.tls and not service.certificate:
        ca = folder / "tls" / "ca.pem"
        options += ["--ca", ca]
        click.echo(f"Certificate of its own CA, SHA-256 {fingerprint(ca)}")
    command = ["offbeat", "join", url, *options, *more, "--client", "FILE.py:make_client"]
    click.echo(f"Enrol clients: {shlex.join(map(str, command))}")
    click.echo(f"Live page: {url}/ (its token is in {folder}/admin-token)")
