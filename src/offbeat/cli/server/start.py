"""Command ``server start``."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from offbeat_core.serving.log_options import log_options

from offbeat.cli.options import FILE, SET

if TYPE_CHECKING:
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

    The same command resumes the run.
    """
    # Large vectors in huge pages: PyTorch, which reads this when it is imported, gets their memory in half the time.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    from offbeat_core.serving.certificates import fingerprint
    from offbeat_core.serving.console_log import write_logs

    from offbeat.config.server_file import load
    from offbeat.worlds.serve import run_server

    write_logs(log_level, log_file)
    server = load(file, changes)
    folder = Path(server.service.folder)

    def ready(listening: "Listening") -> None:
        status = listening.service.status()
        click.echo(f"Listening at {listening.url}: {status.algorithm}, version {status.version}")
        options: list[object] = ["--token-file", folder / "enrolment-token"]
        if server.service.tls and not server.service.certificate:
            ca = folder / "tls" / "ca.pem"
            options += ["--ca", ca]
            click.echo(f"Certificate of its own CA, SHA-256 {fingerprint(ca)}")
        if server.privacy is not None and server.privacy.helper is not None:
            options += ["--terms", server.service.helper_terms]
        command = ["offbeat", "join", listening.public_url, *options, "--client", "FILE.py:make_client"]
        click.echo(f"Enrol clients: {shlex.join(map(str, command))}")
        click.echo(f"Live page: {listening.public_url}/ (its token is in {folder}/admin-token)")
        status_of = shlex.join(["offbeat", "server", "status", str(folder)])
        click.echo(f"Status: {status_of}; metrics: {listening.url}/metrics (token in {folder}/admin-token)")

    run_server(server, ready, fronts)
    click.echo("Stopped; the same command resumes the run")
