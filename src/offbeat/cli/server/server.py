"""Group ``server``: start, progress, control and copies of a server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from offbeat.cli.options import PATH
from offbeat.cli.server.clients import clients
from offbeat.cli.server.fronts import certificates, front
from offbeat.cli.server.runs import STOPPED, runs, show_host
from offbeat.cli.server.server_place import SERVER, ServerPlace
from offbeat.cli.server.sites import sites
from offbeat.cli.server.spent_privacy import privacy
from offbeat.cli.server.start import start
from offbeat.cli.server.tokens import tokens


@click.group()
def server() -> None:
    """Start, watch, steer and copy a server; its clients and tokens.

    FOLDER is the server's own, service.folder in its file, or the file itself.
    """


server.add_command(start)
server.add_command(runs)
server.add_command(sites)
server.add_command(clients)
server.add_command(tokens)
server.add_command(privacy)
server.add_command(front)
server.add_command(certificates)


@server.command(epilog="\b\nExample:\n  offbeat server status runs/service")
@SERVER
@click.option("--json", "as_json", is_flag=True, help="Print all that the server says as a line of JSON.")
def status(server: ServerPlace, as_json: bool) -> int:
    """Show the progress of a run, or of all runs.

    With a shared store also who leads, who stands by, and how fast the store answers. The exit code is 3 if no server
    runs.
    """
    from offbeat.service.server import admin, host_admin
    from offbeat.service.server.host_folder import is_host_folder

    is_host = is_host_folder(server.folder)
    if is_host and not as_json:
        return show_host(server.folder)
    now = host_admin.status(server.folder) if is_host else admin.status(*server)
    if as_json:
        click.echo(json.dumps(now))
        return STOPPED if "server" in now else 0
    for problem in now.pop("problems", []):
        click.echo(f"problem: {problem}")
    by_clients, spent = now.pop("evaluated_by_clients", None), now.pop("privacy", None)
    if (best := now.get("best")) is not None:
        now["best"] = f"version {best['version']}, {best['metric']} {best['value']:.4g}"
    for key, value in now.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                click.echo(f"{key.replace('_', ' ')}: {f'{each:.2f}' if isinstance(each, float) else each}")

    for line in [] if by_clients is None else _client_evaluation_lines(by_clients):
        click.echo(line)
    for line in [] if spent is None else _privacy_lines(spent):
        click.echo(line)
    return STOPPED if "server" in now else 0


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
        state = f"listens, {run.counted:,} updates counted" if run.listens else run.state
        click.echo(f"{run.folder}: {run.algorithm}, version {run.version}, {state}")


@server.command(epilog="\b\nExample:\n  offbeat server export runs/service --output model.safetensors")
@SERVER
@click.option(
    "--output", metavar="FILE", type=PATH, default=Path("model.safetensors"), show_default=True, help="The new file."
)
@click.option("--best", is_flag=True, help="The version that service.keep_best keeps, in place of the newest.")
def export(server: ServerPlace, output: Path, best: bool) -> None:
    """Copy the newest model to a safetensors file, or the best one."""
    from offbeat.service.server import admin

    version = admin.export_model(server.folder, output, server.store, is_best=best)
    click.echo(f"Version {version}: {output}")


@server.command(epilog="\b\nExample:\n  offbeat server pause runs/service")
@SERVER
def pause(server: ServerPlace) -> None:
    """Give out no more work, until `offbeat server resume`.

    Updates of visits under way still count. The run stays paused if the server is restarted.
    """
    from offbeat.service.server import admin

    admin.set_paused(server.folder, is_paused=True)
    click.echo("Paused")


@server.command(epilog="\b\nExample:\n  offbeat server resume runs/service")
@SERVER
def resume(server: ServerPlace) -> None:
    """Give out work again after `offbeat server pause`."""
    from offbeat.service.server import admin

    admin.set_paused(server.folder, is_paused=False)
    click.echo("Resumed")


@server.command(epilog="\b\nExample:\n  offbeat server extend runs/service 500")
@SERVER
@click.argument("versions", metavar="VERSIONS", type=click.IntRange(min=1))
def extend(server: ServerPlace, versions: int) -> None:
    """Let the run end at version VERSIONS, later than before.

    A finished run continues.
    """
    from offbeat.service.server import admin

    click.echo(f"The run ends at version {admin.extend(server.folder, versions)['stop_versions']}")


@server.command(epilog="\b\nExample:\n  offbeat server grow runs/service 80")
@SERVER
@click.argument("clients", metavar="CLIENTS", type=click.IntRange(min=1))
def grow(server: ServerPlace, clients: int) -> None:
    """Let the run have CLIENTS clients, more than before.

    An algorithm that averages over all clients refuses, and so does a private run.
    """
    from offbeat.service.server import admin

    click.echo(f"The run has {admin.grow(server.folder, clients)} clients")


@server.command(epilog="\b\nExample:\n  offbeat server end runs/service")
@SERVER
def end(server: ServerPlace) -> None:
    """End the run at its newest version.

    `offbeat server extend` lets it go on.
    """
    from offbeat.service.server import admin

    click.echo(f"The run has ended at version {admin.end(server.folder)['stop_versions']}")


@server.command(epilog="\b\nExample:\n  offbeat server backup runs/service backups/monday")
@SERVER
@click.argument("target", metavar="TARGET", type=PATH)
def backup(server: ServerPlace, target: Path) -> None:
    """Copy the FOLDER to TARGET, also while the server runs.

    A server can resume from the copy, unless its run is private.
    """
    from offbeat.service.server.host_folder import is_host_folder
    from offbeat.service.store.backup import back_up, back_up_host
    from offbeat.service.store.shared_backup import back_up_shared

    folder, store = server
    if is_host_folder(folder):
        number = back_up_host(folder, target)
        click.echo(f"{target}: {number} run{'' if number == 1 else 's'}")
        return
    last = back_up(folder, target) if store is None else back_up_shared(folder, store, target)
    click.echo(f"{target}: up to row {last} of the log")


@server.command(
    epilog="\b\nExample:\n"
    "  offbeat server move runs/service --log postgresql://offbeat@db/offbeat --blobs s3://bucket/prefix\n"
    "  offbeat server move server.toml --folder runs/back"
)
@SERVER
@click.option("--log", metavar="URL", help="The new store.log; with --blobs.")
@click.option("--blobs", metavar="URL", help="The new store.blobs; with --log.")
@click.option("--folder", "target", metavar="TARGET", type=PATH, help="A new folder, for a server alone.")
def move(server: ServerPlace, log: str | None, blobs: str | None, target: Path | None) -> None:
    """Move a stopped run to a shared store, or back to a folder.

    All rows of the log and all files are copied; then no server starts at the old place. Repeat a move that was
    interrupted.
    """
    from offbeat_core.errors import OffbeatError
    from offbeat_core.tables.validation_errors import error_prefix

    from offbeat.service.server import move
    from offbeat.service.store_settings import StoreSettings

    folder, store = server
    if store is None and log and blobs and not target:
        with error_prefix("store"):
            settings = StoreSettings(log=log, blobs=blobs)
        last = move.move_to_store(folder, settings)
        click.echo(f"Moved up to row {last} of the log. Write into the server's file:")
        click.echo(f'[store]\nlog = "{log}"\nblobs = "{blobs}"')
    elif store is not None and target and not log and not blobs:
        last = move.move_to_folder(folder, store, target)
        click.echo(f"Moved up to row {last} of the log. In the server's file, set service.folder to {target}, and")
        click.echo("remove [store]")
    elif store is None:
        raise OffbeatError(f"the run of {folder} is in its folder: give --log and --blobs, where it is to move")
    else:
        raise OffbeatError(f"the run of {folder} is in {store.log}: give --folder, where it is to move")


@server.command(epilog="\b\nExample:\n  offbeat server accept server.toml")
@SERVER
def accept(server: ServerPlace) -> None:
    """Let the run go on in a database after a failover or restore.

    Acknowledged updates may be missing there, unless the replica was synchronous. Private runs are refused.
    """
    from offbeat_core.errors import OffbeatError

    from offbeat.service.server.accept import accept

    if server.store is None:
        raise OffbeatError(f"the run of {server.folder} is in its folder, where nothing is to be accepted")
    click.echo(f"Accepted after row {accept(server.store)} of the log; start the servers")


@server.group()
def audit() -> None:
    """Check or print the audit log of a server or a backup."""


@audit.command(epilog="\b\nExample:\n  offbeat server audit verify runs/service --heads client/audit-heads")
@SERVER
@click.option("--head", "texts", metavar="H", multiple=True, help="A head that the server gave out; repeatable.")
@click.option("--heads", "files", metavar="FILE", type=PATH, multiple=True, help="audit-heads of a client's folder.")
def verify(server: ServerPlace, texts: tuple[str, ...], files: tuple[Path, ...]) -> None:
    """Check that no entry of the log was changed or removed.

    Only a head shows that the last entries were removed, or that the whole log was written anew.
    """
    from offbeat.service.audit import verification
    from offbeat.service.audit.verification import LogHead
    from offbeat.service.server.shared_server import audit_rows

    heads = [LogHead.parse(text) for text in texts]
    for file in files:
        heads += verification.read_heads(file)
    rows = None if server.store is None else audit_rows(server.store)
    head = verification.verify(server.folder, heads, rows)
    known = f"agrees with {len(heads)} head{'' if len(heads) == 1 else 's'}" if heads else "not compared with a head"
    click.echo(f"{head.number} entries, {known}")
    click.echo(f"head: {head}")


@audit.command(epilog="\b\nExample:\n  offbeat server audit show runs/service")
@SERVER
@click.option("--json", "as_json", is_flag=True, help="Print each entry as a line of JSON.")
def show(server: ServerPlace, as_json: bool) -> None:
    """Print the audit log, which this does not check."""
    from offbeat.service.audit.verification import entries
    from offbeat.service.server.shared_server import audit_rows

    for entry in entries(server.folder, None if server.store is None else audit_rows(server.store)):
        if as_json:
            click.echo(json.dumps(entry))
            continue
        number, at, kind = (entry.pop(key, "?") for key in ("number", "at", "kind"))
        facts = (f"{key}={json.dumps(value)}" for key, value in entry.items())
        click.echo("  ".join([f"{number}", f"{at}", f"{kind}", *facts]))
