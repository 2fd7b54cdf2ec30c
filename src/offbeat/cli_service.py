"""The commands of the service: ``offbeat serve``, ``join``, ``status``, ``runs``, ``export``, ``backup``, ``demo``."""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from offbeat.experiments.import_path import load_callable
from offbeat.experiments.server_config import load
from offbeat.service.admin import newest_model
from offbeat.service.admin import runs as list_runs
from offbeat.service.admin import status as ask_status
from offbeat.service.backup import back_up
from offbeat.service.certificates import fingerprint
from offbeat.service.logs import write_logs

if TYPE_CHECKING:
    from offbeat.service.server import Listening

_SET = click.option(
    "--set", "changes", metavar="KEY=VALUE", multiple=True, help="Change a key of the file. Repeatable."
)


@click.command(epilog="\b\nExample:\n  offbeat serve examples/service/server.toml")
@click.argument("file", metavar="FILE", type=Path)
@_SET
@click.option("--log", "logs", is_flag=True, help="Write a line of JSON to standard error for all that happens.")
def serve(file: Path, changes: Sequence[str], logs: bool) -> None:
    """Run the server of FILE until Ctrl-C; the same command goes on where it was."""
    # What a server needs takes a second to import, for which clients need not wait.
    from offbeat.experiments.serving import run_server

    write_logs(logging.INFO if logs else logging.WARNING)
    server = load(file, changes)
    folder = Path(server.service.folder)

    def ready(listening: "Listening") -> None:
        status = listening.service.status()
        click.echo(f"Listening at {listening.url}: {status.algorithm}, version {status.version}")
        options = [f"--token {listening.enrolment_token}"]
        if server.service.tls and not server.service.certificate:
            ca = folder / "tls" / "ca.pem"
            options.append(f"--ca {ca}")
            click.echo(f"Certificate of its own CA, SHA-256 {fingerprint(ca)}")
        click.echo(f"Enrol clients: offbeat join {listening.url} {' '.join(options)} --client FILE.py:make_client")
        click.echo(f"Status: offbeat status {folder}; metrics: {listening.url}/metrics (token in {folder}/admin-token)")

    run_server(server, ready)
    click.echo("Stopped; the same command goes on from here")


@click.command(
    epilog="\b\nExample:\n  offbeat join https://localhost:8443 --token obe_… --ca ca.pem "
    "--client examples/service/client.py:make_client"
)
@click.argument("url", metavar="URL")
@click.option("--token", metavar="TOKEN", help="The enrolment token, for the first time.")
@click.option("--client", "path", metavar="FILE.py:NAME", required=True, help="What makes the client from its number.")
@click.option("--ca", metavar="FILE", type=Path, help="Certificates to trust; those of the system if it is left out.")
@click.option(
    "--folder", metavar="FOLDER", type=Path, default=Path("client"), show_default=True, help="What the client keeps."
)
@click.option("--name", metavar="NAME", help="The client's name, for people.")
@click.option("--visits", metavar="N", type=click.IntRange(min=1), help="Stop after so many updates.")
def join(
    url: str, token: str | None, path: str, ca: Path | None, folder: Path, name: str | None, visits: int | None
) -> None:
    """Take part in the run of the server at URL until it is over; the same command goes on where it was."""
    from offbeat.service.client.run import run_client

    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    counted = run_client(url, load_callable(path), folder, enrolment_token=token, name=name, ca=ca, visits=visits)
    click.echo(f"Done: {counted} updates counted")


@click.command(epilog="\b\nExample:\n  offbeat status runs/service")
@click.argument("folder", metavar="FOLDER", type=Path)
def status(folder: Path) -> None:
    """Say how far the run of the server with this FOLDER is."""
    for key, value in ask_status(folder).items():
        if value is not None:
            click.echo(f"{key.replace('_', ' ')}: {f'{value:.2f}' if isinstance(value, float) else value}")


@click.command(epilog="\b\nExample:\n  offbeat runs runs")
@click.argument("folder", metavar="FOLDER", type=Path, default=Path("runs"))
def runs(folder: Path) -> None:
    """List the servers' folders in FOLDER."""
    for run in list_runs(folder):
        state = f"listens, {run.counted:,} updates counted" if run.listens else "does not run"
        click.echo(f"{run.folder}: {run.algorithm}, version {run.version}, {state}")


@click.command(epilog="\b\nExample:\n  offbeat export runs/service --output model.safetensors")
@click.argument("folder", metavar="FOLDER", type=Path)
@click.option(
    "--output", metavar="FILE", type=Path, default=Path("model.safetensors"), show_default=True, help="Where it goes."
)
def export(folder: Path, output: Path) -> None:
    """Copy the newest model of the server with this FOLDER, a safetensors file."""
    model = newest_model(folder)
    shutil.copyfile(model, output)
    click.echo(f"Version {model.stem}: {output}")


@click.command(epilog="\b\nExample:\n  offbeat backup runs/service backups/monday")
@click.argument("folder", metavar="FOLDER", type=Path)
@click.argument("target", metavar="TARGET", type=Path)
def backup(folder: Path, target: Path) -> None:
    """Copy the FOLDER of a server to TARGET, while it runs; a server can go on from the copy."""
    click.echo(f"{target}: up to record {back_up(folder, target)} of the log")


@click.command(epilog="\b\nExample:\n  offbeat demo")
@click.option(
    "--folder",
    metavar="FOLDER",
    type=Path,
    default=Path("runs/demo"),
    show_default=True,
    help="What server and clients keep.",
)
def demo(folder: Path) -> None:
    """Run a server and eight clients on this machine, kill some of them on the way, and say how good the model is."""
    from offbeat.experiments.demo import run_demo

    run_demo(click.echo, folder)
