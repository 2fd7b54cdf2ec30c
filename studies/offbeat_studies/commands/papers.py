"""Command ``papers``: figures of the papers, their claims and pages."""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from offbeat_studies.papers import DEFAULT_SEEDS, SCALES


@click.command(
    epilog="\b\nExample:\n  offbeat papers fedlaavg/fig4e --scale quick --jobs 2\n  offbeat papers --list",
)
@click.argument("names", metavar="[FIGURE]...", nargs=-1)
@click.option("--list", "only_list", is_flag=True, help="List the figures, their claims and the verdicts so far.")
@click.option("--all", "everything", is_flag=True, help="All figures that have this scale.")
@click.option("--scale", type=click.Choice(SCALES), default="quick", show_default=True, help="Size of the experiment.")
@click.option(
    "--seeds",
    metavar="N",
    type=click.IntRange(min=1),
    default=DEFAULT_SEEDS,
    show_default=True,
    help="The first N seeds of a figure's file, or all. A verdict needs five, the ledger has ten. Theorems and "
    "the study of displacement always take all.",
)
@click.option("--jobs", metavar="N", type=click.IntRange(min=1), default=os.cpu_count() or 1, help="Runs at once.")
@click.option(
    "--pages",
    metavar="FOLDER",
    type=Path,
    help="Also write the pages of results. Without a figure: only write them, from the ledger in FOLDER and the runs "
    "that are finished here.",
)
@click.option(
    "--experiments",
    metavar="FOLDER",
    type=Path,
    multiple=True,
    help="A folder with figures' files; those of this package and ./experiments by default.",
)
def papers(
    names: Sequence[str],
    only_list: bool,
    everything: bool,
    scale: str,
    seeds: int,
    jobs: int,
    pages: Path | None,
    experiments: Sequence[Path],
) -> None:
    """Run figures of the papers again and judge their claims.

    An interrupted run resumes; a finished one is not run again.
    """
    from offbeat_core.errors import OffbeatError

    from offbeat_studies.papers import course
    from offbeat_studies.papers.figures.catalogue import figure_folders

    folders = experiments or figure_folders()
    if only_list:
        course.list_figures(folders, pages)
    elif (everything and names) or not (everything or names or pages):
        raise OffbeatError("name a figure, such as fedlaavg/fig4e, or give --all; offbeat papers --list lists them")
    else:
        course.run_and_write(names, folders, scale, seeds, jobs, pages, everything=everything)
