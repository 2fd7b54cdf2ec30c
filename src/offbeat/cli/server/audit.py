"""Commands ``audit verify`` and ``audit show``."""

import json
from pathlib import Path

import click

from offbeat.cli.options import PATH


@click.group()
def audit() -> None:
    """Check or print the audit log of a server or a backup."""


@audit.command(epilog="\b\nExample:\n  offbeat server audit verify runs/service --heads client/audit-heads")
@click.argument("folder", metavar="FOLDER", type=PATH)
@click.option("--head", "texts", metavar="H", multiple=True, help="A head that the server gave out; repeatable.")
@click.option("--heads", "files", metavar="FILE", type=PATH, multiple=True, help="audit-heads of a client's folder.")
def verify(folder: Path, texts: tuple[str, ...], files: tuple[Path, ...]) -> None:
    """Check that no entry of the log was changed or removed.

    Only a head shows that the last entries were removed, or that the whole log was written anew.
    """
    from offbeat.service.audit import verification
    from offbeat.service.audit.log_head import LogHead

    heads = [LogHead.parse(text) for text in texts]
    for file in files:
        heads += verification.read_heads(file)
    head = verification.verify(folder, heads)
    known = f"agrees with {len(heads)} head{'' if len(heads) == 1 else 's'}" if heads else "not compared with a head"
    click.echo(f"{head.number} entries, {known}")
    click.echo(f"head: {head}")


@audit.command(epilog="\b\nExample:\n  offbeat server audit show runs/service")
@click.argument("folder", metavar="FOLDER", type=PATH)
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
