"""A command of another package."""

import click

NAME = "greet"


@click.command()
@click.argument("name")
def greet(name: str) -> None:
    """Greet NAME."""
    click.echo(f"Hello {name}")
