"""Command ``offbeat new``: a folder with an experiment to change."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from offbeat_core.errors import OffbeatError, did_you_mean

from offbeat.cli.options import PATH

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


@click.command(epilog="\b\nExample:\n  offbeat new my-experiment")
@click.argument("folder", metavar="FOLDER", type=PATH)
@click.option(
    "--template",
    metavar="NAME",
    default="own",
    show_default=True,
    help="own (your model and data), notebook, quickstart, all-algorithms, compression, private, or algorithms (those "
    "of the pages on algorithms).",
)
def new(folder: Path, template: str) -> None:
    """Write the files of a template into a new FOLDER."""
    known = _templates()
    if template not in known:
        raise OffbeatError(f"--template {template}: {did_you_mean(template, known)}")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise OffbeatError(f"{folder} is not an empty folder: choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(file.name for file in known[template])
    for file in known[template]:
        (folder / file.name).write_bytes(file.read_bytes())
    click.echo(f"{folder}: {', '.join(names)}")
    experiments = [name for name in names if name.endswith(".toml")]
    if experiments:
        click.echo(f"Next: cd {shlex.quote(str(folder))} && offbeat compare {experiments[0]}")


def _templates() -> "dict[str, list[Traversable]]":
    """Return the files of each template by its name."""
    from importlib.resources import files

    root = files("offbeat") / "templates"
    experiments = root / "experiments"
    folders = {"own": root / "own", "notebook": root / "notebook", "algorithms": experiments / "algorithms"}
    return {
        **{name: [file for file in folder.iterdir() if file.is_file()] for name, folder in folders.items()},
        **{file.name.removesuffix(".toml"): [file] for file in experiments.iterdir() if file.name.endswith(".toml")},
    }
