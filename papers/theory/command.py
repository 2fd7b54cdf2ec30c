"""``python -m papers theory``: the table of all measured bounds."""

import click
from rich import box
from rich.table import Table
from rich.text import Text

from offbeat.cli.terminal import console
from papers.theory import check
from papers.theory.measured_bound import Row

COLUMNS = ("Claim", "Setting", "Measured", "Bound", "Ratio", "")


def cells(row: Row) -> tuple[str, ...]:
    """Return a row of the table as text, by ``COLUMNS``."""
    spread = f" ± {row.half_width:.2g}" if row.half_width else ""
    return row.claim, row.setting, f"{row.measured:.4g}{spread}", f"{row.bound:.4g}", f"{row.ratio:.4g}", row.verdict


@click.command(epilog="\b\nExample:\n  python -m papers theory --seeds 20")
@click.option(
    "--seeds",
    metavar="N",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Independent runs of each setting.",
)
@click.pass_context
def theory(context: click.Context, seeds: int) -> None:
    """Measure every bound on small problems.

    The exit code is 1 if a bound is not as expected.
    """
    rows = check(seeds)
    table = Table(box=box.SIMPLE)
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in ("Measured", "Bound", "Ratio") else "left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in cells(row)))
    console().print(table)
    context.exit(0 if all(row.as_expected for row in rows) else 1)
