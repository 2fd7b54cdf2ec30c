"""Commands of the service: server, tokens, backups, demo."""

import logging
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from offbeat.cli.options import FILE, PATH, SET

if TYPE_CHECKING:
    from offbeat.service.server.server import Listening


@click.command(epilog="\b\nExample:\n  offbeat serve examples/service/server.toml")
@FILE
@SET
@click.option("--log", "logs", is_flag=True, help="Write each event to standard error, as a line of JSON.")
def serve(file: Path, changes: Sequence[str], logs: bool) -> None:
    """Run the server of FILE until Ctrl-C; the same command resumes the run."""
    from offbeat_core.serving.certificates import fingerprint
    from offbeat_core.serving.console_log import write_logs

    from offbeat.config.server_file import load
    from offbeat.worlds.serve import run_server

    write_logs(logging.INFO if logs else logging.WARNING)
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
        status_of = shlex.join(["offbeat", "status", str(folder)])
        click.echo(f"Status: {status_of}; metrics: {listening.url}/metrics (token in {folder}/admin-token)")

    run_server(server, ready)
    click.echo("Stopped; the same command resumes the run")


_STOPPED = 3  # an exit code


@click.command(epilog="\b\nExample:\n  offbeat status runs/service")
@click.argument("folder", metavar="FOLDER", type=PATH)
def status(folder: Path) -> int:
    """Show the progress of the server with this FOLDER.

    The exit code is 3 if no server runs there.
    """
    from offbeat.service.server import admin

    now = admin.status(folder)
    by_clients, privacy = now.pop("evaluated_by_clients", None), now.pop("privacy", None)
    for key, value in now.items():
        if value is not None:
            click.echo(f"{key.replace('_', ' ')}: {f'{value:.2f}' if isinstance(value, float) else value}")

    for line in [] if by_clients is None else _client_evaluation_lines(by_clients):
        click.echo(line)
    for line in [] if privacy is None else _privacy_lines(privacy):
        click.echo(line)
    return _STOPPED if now.get("server") == "stopped" else 0


def _client_evaluation_lines(summary: dict[str, Any]) -> Iterator[str]:
    """Yield the status lines on the last evaluation by clients."""
    yield (
        f"evaluated by clients: version {summary['version']}, {summary['answered']} of {summary['asked']} clients, "
        f"{summary['examples']} examples"
    )
    names = {"weighted": "by examples", "mean": "mean", "p10": "10th percentile", "p90": "90th percentile",
             "worst": "worst tenth"}  # fmt: skip
    for metric, values in summary["metrics"].items():
        yield f"{metric} on clients: {', '.join(f'{name} {values[key]:.4g}' for key, name in names.items())}"


def _privacy_lines(privacy: dict[str, Any]) -> Iterator[str]:
    """Yield the status lines on privacy, in a private run."""
    for key, name in (("epsilon", "epsilon"), ("epsilon_replace_one", "epsilon, replace-one")):
        if privacy[key] is None:
            yield f"{name}: unbounded, without noise"
        else:
            largest, median = (privacy[key][which] for which in ("largest", "median"))
            yield f"{name}: largest {largest:.4g}, median {median:.4g} (delta {privacy['delta']:g})"
    counts = (f"{privacy[f'sums_{name}']} {name}" for name in ("opened", "waiting", "discarded"))
    yield f"sums: {', '.join(counts)}"
    yield f"suspended clients: {privacy['suspended_clients']}"
    if privacy["helper"] is not None:
        yield f"helper: {privacy['helper']}"


@click.command(epilog="\b\nExample:\n  offbeat runs runs")
@click.argument("folder", metavar="FOLDER", type=PATH, default=Path("runs"))
def runs(folder: Path) -> None:
    """List the servers' folders in FOLDER."""
    from offbeat_core.errors import OffbeatError

    from offbeat.service.server import admin

    found = admin.runs(folder)
    if not found:
        raise OffbeatError(
            f"{folder} does not hold a server's folder: start a server, or name the folder above its own"
        )
    for run in found:
        state = f"listens, {run.counted:,} updates counted" if run.listens else "does not run"
        click.echo(f"{run.folder}: {run.algorithm}, version {run.version}, {state}")


@click.command(epilog="\b\nExample:\n  offbeat export runs/service --output model.safetensors")
@click.argument("folder", metavar="FOLDER", type=PATH)
@click.option(
    "--output", metavar="FILE", type=PATH, default=Path("model.safetensors"), show_default=True, help="The new file."
)
def export(folder: Path, output: Path) -> None:
    """Copy the newest model of the server with this FOLDER to a safetensors file."""
    from offbeat.service.server import admin

    click.echo(f"Version {admin.export_model(folder, output)}: {output}")


@click.command(epilog="\b\nExample:\n  offbeat backup runs/service backups/monday")
@click.argument("folder", metavar="FOLDER", type=PATH)
@click.argument("target", metavar="TARGET", type=PATH)
def backup(folder: Path, target: Path) -> None:
    """Copy the FOLDER of a server to TARGET, while the server runs.

    A server can resume from the copy, unless its run is private.
    """
    from offbeat.service.store.backup import back_up

    click.echo(f"{target}: up to record {back_up(folder, target)} of the log")


@click.command(epilog="\b\nExample:\n  offbeat demo --private")
@click.option("--private", is_flag=True, help="Mask the updates; a helper opens their sums, and is killed too.")
@click.option(
    "--folder",
    metavar="FOLDER",
    type=PATH,
    default=Path("runs/demo"),
    show_default=True,
    help="Folder of all processes.",
)
def demo(private: bool, folder: Path) -> None:
    """Run a server and eight clients on this machine, and kill some of them.

    Prints the model's accuracy.
    """
    from offbeat.cli.demo.plain import run_demo
    from offbeat.cli.demo.private import run_private_demo

    (run_private_demo if private else run_demo)(click.echo, folder)
