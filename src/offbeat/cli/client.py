"""Group ``client``: a client's key, and the models that it got."""

from pathlib import Path

import click

from offbeat.cli.options import PATH


@click.group()
def client() -> None:
    """Make a client's key; compare the models that clients got.

    A client takes part with `offbeat join`.
    """


@client.command(epilog="\b\nExample:\n  offbeat client key --folder client")
@click.option(
    "--folder", metavar="FOLDER", type=PATH, default=Path("client"), show_default=True, help="The client's folder."
)
def key(folder: Path) -> None:
    """Print a client's public key for the helper's roster.

    If the folder has no key, it is made.
    """
    from offbeat_client.private_updates import public_key

    click.echo(public_key(folder))


@client.command(
    "compare-models",
    epilog="\b\nExample:\n  offbeat client compare-models 1/models-4e9d….txt 2/models-4e9d….txt",
)
@click.argument("one", metavar="FILE", type=PATH)
@click.argument("two", metavar="FILE", type=PATH)
def compare(one: Path, two: Path) -> None:
    """Check that two clients got the same models.

    Each FILE is models-….txt of a client's folder. A server that gives clients different models may single one out.
    """
    from offbeat_client.client_folder.trained_models import compare_models

    count = compare_models(one, two)
    click.echo(f"{count} version{' is' if count == 1 else 's are'} in both, with the same models")
