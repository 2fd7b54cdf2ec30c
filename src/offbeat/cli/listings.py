"""Commands that list algorithms and data sets, and fetch data."""

import click


@click.command(epilog="\b\nExample:\n  offbeat algorithms")
def algorithms() -> None:
    """List the algorithms, with their hyper-parameters and defaults."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from offbeat.algorithms import ALGORITHMS
    from offbeat.cli.terminal import console
    from offbeat.config.algorithm_table import as_inline_toml, default_hyper_parameters, hyper_parameters_of

    table = Table("Algorithm", "Description", "Hyper-parameters", box=box.SIMPLE)
    for name, kind in ALGORITHMS.items():
        values = hyper_parameters_of(kind())
        listed = [
            f"{key} = {as_inline_toml(values[key])}" if key in values else f"{key}: none"
            for key in default_hyper_parameters(kind)
        ]
        table.add_row(name, (kind.__doc__ or "").partition("\n")[0], Text("\n".join(listed)))
    console().print(table)


@click.group()
def data() -> None:
    """List the built-in data sets, or fetch one."""


@data.command("list", epilog="\b\nExample:\n  offbeat data list")
def list_data() -> None:
    """List the built-in data sets and their places on this machine."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from offbeat.cli.terminal import console
    from offbeat.data.catalogue import list_datasets

    table = Table("Name", "Contents", "Train", "Test", "Place", box=box.SIMPLE)
    for entry in list_datasets():
        train, test = ("" if n is None else f"{n:,}" for n in (entry.train_examples, entry.test_examples))
        table.add_row(entry.name, entry.description, train, test, Text(entry.where, overflow="fold"))
    console().print(table)


@data.command("get", epilog="\b\nExample:\n  offbeat data get mnist")
@click.argument("name", metavar="NAME")
def get_data(name: str) -> None:
    """Download the data set NAME if it is missing.

    Prints its place.
    """
    from offbeat.data.catalogue import get_dataset

    click.echo(get_dataset(name).where)
