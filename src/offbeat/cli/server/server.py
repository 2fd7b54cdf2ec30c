"""Group ``server``: progress, control and copies of a server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from offbeat.cli.options import PATH
from offbeat.cli.server.clients import clients
from offbeat.cli.server.tokens import tokens

_FOLDER = click.argument("folder", metavar="FOLDER", type=PATH)
_STOPPED = 3  # an exit code


@click.group()
def server() -> None:
    """Watch, steer and copy a server; its clients and tokens.

    FOLDER is the server's own, service.folder in its file.
    """


server.add_command(clients)
server.add_command(tokens)


@server.command(epilog="\b\nExample:\n  offbeat server status runs/service")
@_FOLDER
def status(folder: Path) -> int:
    """Show the progress of a run.

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


@server.command("list", epilog="\b\nExample:\n  offbeat server list runs")
@click.argument("folder", metavar="[FOLDER]", type=PATH, default=Path("runs"))
def list_servers(folder: Path) -> None:
    """List the servers in FOLDER, by default runs."""
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


@server.command(epilog="\b\nExample:\n  offbeat server export runs/service --output model.safetensors")
@_FOLDER
@click.option(
    "--output", metavar="FILE", type=PATH, default=Path("model.safetensors"), show_default=True, help="The new file."
)
def export(folder: Path, output: Path) -> None:
    """Copy the newest model to a safetensors file."""
    from offbeat.service.server import admin

    click.echo(f"Version {admin.export_model(folder, output)}: {output}")


@server.command(epilog="\b\nExample:\n  offbeat server pause runs/service")
@_FOLDER
def pause(folder: Path) -> None:
    """Give out no more work, until `offbeat server resume`.

    Updates of visits under way still count. The run stays paused if the server is restarted.
    """
    from offbeat.service.server import admin

    admin.set_paused(folder, is_paused=True)
    click.echo("Paused")


@server.command(epilog="\b\nExample:\n  offbeat server resume runs/service")
@_FOLDER
def resume(folder: Path) -> None:
    """Give out work again after `offbeat server pause`."""
    from offbeat.service.server import admin

    admin.set_paused(folder, is_paused=False)
    click.echo("Resumed")


@server.command(epilog="\b\nExample:\n  offbeat server extend runs/service 500")
@_FOLDER
@click.argument("versions", metavar="VERSIONS", type=click.IntRange(min=1))
def extend(folder: Path, versions: int) -> None:
    """Let the run end at version VERSIONS, later than before.

    A finished run continues.
    """
    from offbeat.service.server import admin

    click.echo(f"The run ends at version {admin.extend(folder, versions)['stop_versions']}")


@server.command(epilog="\b\nExample:\n  offbeat server backup runs/service backups/monday")
@_FOLDER
@click.argument("target", metavar="TARGET", type=PATH)
def backup(folder: Path, target: Path) -> None:
    """Copy the FOLDER to TARGET, also while the server runs.

    A server can resume from the copy, unless its run is private.
    """
    from offbeat.service.store.backup import back_up

    click.echo(f"{target}: up to row {back_up(folder, target)} of the log")


@server.group()
def audit() -> None:
    """Check or print the audit log of a server or a backup."""


@audit.command(epilog="\b\nExample:\n  offbeat server audit verify runs/service --heads client/audit-heads")
@_FOLDER
@click.option("--head", "texts", metavar="H", multiple=True, help="A head that the server gave out; repeatable.")
@click.option("--heads", "files", metavar="FILE", type=PATH, multiple=True, help="audit-heads of a client's folder.")
def verify(folder: Path, texts: tuple[str, ...], files: tuple[Path, ...]) -> None:
    """Check that no entry of the log was changed or removed.

    Only a head shows that the last entries were removed, or that the whole log was written anew.
    """
    from offbeat.service.audit import verification
    from offbeat.service.audit.verification import LogHead

    heads = [LogHead.parse(text) for text in texts]
    for file in files:
        heads += verification.read_heads(file)
    head = verification.verify(folder, heads)
    known = f"agrees with {len(heads)} head{'' if len(heads) == 1 else 's'}" if heads else "not compared with a head"
    click.echo(f"{head.number} entries, {known}")
    click.echo(f"head: {head}")


@audit.command(epilog="\b\nExample:\n  offbeat server audit show runs/service")
@_FOLDER
@click.option("--json", "as_json", is_flag=True, help="Print each entry as a line of JSON.")
def show(folder: Path, as_json: bool) -> None:
    """Print the audit log in FOLDER, which this does not check."""
    from offbeat.service.audit.verification import entries

    for entry in entries(folder):
        if as_json:
            click.echo(json.dumps(entry))
            continue
        number, at, kind = (entry.pop(key, "?") for key in ("number", "at", "kind"))
        facts = (f"{key}={json.dumps(value)}" for key, value in entry.items())
        click.echo("  ".join([f"{number}", f"{at}", f"{kind}", *facts]))
