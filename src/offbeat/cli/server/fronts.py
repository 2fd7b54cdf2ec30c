"""Commands ``server front`` and ``server certificates``."""

from collections.abc import Sequence
from pathlib import Path

import click
from offbeat_core.serving.log_options import log_options

from offbeat.cli.options import FILE, PATH, SET


@click.command(epilog="\b\nExample:\n  offbeat server front server.toml --set service.port=8443")
@FILE
@SET
@log_options
def front(file: Path, changes: Sequence[str], log_level: str, log_file: Path | None) -> None:
    """Serve clients for the server that leads, until Ctrl-C.

    FILE is the server's own, with [store] and [fronts]; service.folder is a folder of this machine. A front keeps
    nothing that matters: start as many as the load needs, behind any balancer.
    """
    from offbeat_core.serving.console_log import write_logs

    from offbeat.config.server_file import load
    from offbeat.worlds.front import run_front

    write_logs(log_level, log_file)
    server = load(file, changes)
    run_front(server, lambda: click.echo(f"Serves clients at port {server.service.port}"))
    click.echo("Stopped")


@click.command(epilog="\b\nExample:\n  offbeat server certificates internal-tls --leaders a,b --fronts c,d")
@click.argument("folder", metavar="FOLDER", type=PATH)
@click.option("--leaders", metavar="NAMES", required=True, help="Machines that may lead, separated by commas.")
@click.option("--fronts", metavar="NAMES", required=True, help="Machines of fronts, separated by commas.")
def certificates(folder: Path, leaders: str, fronts: str) -> None:
    """Make the certificates of leaders and fronts, or renew them.

    Those that are valid for 30 days more are kept. Copy ca.pem, NAME.pem and NAME.key to each machine, and name them in
    [fronts]. ca.key can make more: keep it here.
    """
    from offbeat.service.internal.internal_certificates import make_internal_certificates

    made = make_internal_certificates(folder, leaders.split(","), fronts.split(","))
    for machine, files in made.items():
        click.echo(f"{machine}: {files.ca.name}, {files.certificate.name}, {files.key.name}")
