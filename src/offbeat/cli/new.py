"""Command ``new``: a folder from a template."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from offbeat_core.errors import OffbeatError, did_you_mean

from offbeat.cli.options import PATH

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


@click.command(epilog="\b\nExamples:\n  offbeat new my-experiment\n  offbeat new my-federation --template service")
@click.argument("folder", metavar="FOLDER", type=PATH)
@click.option(
    "--template",
    metavar="NAME",
    default="own",
    show_default=True,
    help="own (your model and data), service (a server and its sites), notebook, quickstart, all-algorithms, "
    "compression, private, or algorithms (those of the pages on algorithms).",
)
def new(folder: Path, template: str) -> None:
    """Write the files of a template into a new FOLDER."""
    known = _templates()
    if template not in known:
        raise OffbeatError(f"--template {template}: {did_you_mean(template, known)}")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise OffbeatError(f"{folder} is not an empty folder: choose another name")
    for name, file in known[template].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(file.read_bytes())
    names = sorted(known[template])
    click.echo(f"{folder}: {', '.join(names)}")
    settings = [name for name in names if name.endswith(".toml")]
    if settings:
        command = "server start" if template == "service" else "compare"
        click.echo(f"Next: cd {shlex.quote(str(folder))} && offbeat {command} {settings[0]}")


def _templates() -> "dict[str, dict[str, Traversable]]":
    """Return the files of each template, by their paths in the folder."""
    from importlib.resources import files

    root = files("offbeat") / "templates"
    experiments = root / "experiments"
    folders = {name: root / name for name in ("own", "service", "notebook")} | {
        "algorithms": experiments / "algorithms"
    }
    return {
        **{name: dict(_files(folder)) for name, folder in folders.items()},
        **{
            file.name.removesuffix(".toml"): {file.name: file}
            for file in experiments.iterdir()
            if file.name.endswith(".toml")
        },
    }


def _files(folder: "Traversable", within: str = "") -> "Iterator[tuple[str, Traversable]]":
    """Yield the files of a folder, by path, without bytecode of an installer."""
    for entry in folder.iterdir():
        if entry.is_file():
            yield within + entry.name, entry
        elif entry.name != "__pycache__":
            yield from _files(entry, f"{within}{entry.name}/")
