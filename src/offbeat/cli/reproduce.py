"""``offbeat reproduce``: the papers' figures, run again, claim by claim."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table

from offbeat.config.experiment_sections import metric_name
from offbeat.errors import OffbeatError
from offbeat.report.export import write_file
from offbeat.reproduction.catalogue import AnyFigure, all_in, carry_out, find, outcome, with_beside
from offbeat.reproduction.file import Reproduction
from offbeat.reproduction.finished import place
from offbeat.reproduction.ledger import read_ledger, write_ledger
from offbeat.reproduction.outcome import Finding, Key, Record
from offbeat.reproduction.page import section_of
from offbeat.reproduction.sections import SCALES
from offbeat.runs.progress import Progress
from offbeat.runs.worker_processes import Workers

# What is piped into a file is not folded to 80 columns.
console = Console() if sys.stdout.isatty() else Console(width=160)

_RESULTS = Path("runs") / "reproduce"
_PAGES = Path("docs") / "results"  # whose ledger the list has verdicts from, unless another is named


@click.command(
    epilog="\b\nExamples:\n  offbeat reproduce --list\n  offbeat reproduce fedlaavg/fig4e --scale quick --jobs 2"
)
@click.argument("names", metavar="[FIGURE]...", nargs=-1)
@click.option("--list", "only_list", is_flag=True, help="List the figures, what they claim and what came of it.")
@click.option("--all", "everything", is_flag=True, help="All figures that have this scale.")
@click.option("--scale", type=click.Choice(SCALES), default="quick", show_default=True, help="How large.")
@click.option("--jobs", metavar="N", type=click.IntRange(min=1), default=os.cpu_count() or 1, help="Runs at once.")
@click.option("--pages", metavar="FOLDER", type=Path, help="Also write pages on all that has been run.")
@click.option(
    "--experiments", metavar="FOLDER", type=Path, default=Path("experiments"), help="Where the figures' files are."
)
def reproduce(
    names: Sequence[str],
    only_list: bool,
    everything: bool,
    scale: str,
    jobs: int,
    pages: Path | None,
    experiments: Path,
) -> None:
    """Run figures of the papers again, such as fedlaavg/fig4e, and say which of their claims hold.

    What was interrupted goes on where it was; what is finished is not run again.
    """
    if only_list:
        _list(all_in(experiments), pages or _PAGES)
        return
    if everything is bool(names):
        raise OffbeatError("name a figure, such as fedlaavg/fig4e, or give --all; offbeat reproduce --list lists them")
    figures = all_in(experiments) if everything else [one for name in names for one in find(name, experiments)]
    wanted = with_beside([one for one in figures if scale in one.scales])
    if not wanted:
        scales = ", ".join(known for known in SCALES if any(known in one.scales for one in figures))
        raise OffbeatError(f"no figure of {' '.join(names) or experiments} has a scale {scale}: there is {scales}")
    if others := [one.name for one in figures if scale not in one.scales and not everything]:
        click.echo(f"Left out, since they have no scale {scale}: {', '.join(others)}")
    if pages is not None:
        read_ledger(pages)  # a broken one is told now, not after hours
    with Workers(jobs) as workers:
        failed = _reproduce_each(wanted, scale, workers)
    if pages is not None:
        _write_pages(all_in(experiments), pages)
    if failed:
        raise OffbeatError(f"not all was run: {', '.join(failed)}; what each lacks is said above")


def _write_pages(figures: Sequence[AnyFigure], folder: Path) -> None:
    run = [outcome(one, scale, _RESULTS) for one in figures for scale in one.scales]
    written = write_ledger([one for one in run if one is not None], _fingerprints(figures), folder)
    if written.outdated:
        click.echo(f"Marked as outdated, since their files have changed: {_listed(written.outdated)}")
    if written.removed:
        click.echo(f"No longer in the pages, since no file has them: {_listed(written.removed)}")
    click.echo(f"Pages: {written.first_page}")


def _listed(keys: Sequence[Key]) -> str:
    return ", ".join(f"{name} ({scale})" for name, scale in keys)


def _fingerprints(figures: Sequence[AnyFigure]) -> dict[Key, str]:
    return {(one.name, scale): one.fingerprint(scale) for one in figures for scale in one.scales}


def _reproduce_each(figures: Sequence[AnyFigure], scale: str, workers: Workers) -> list[str]:
    """Run figures, the others also if one lacks something; return the names of those that were not run."""
    failed: list[str] = []
    for figure in figures:
        beside = figure.beside.values() if isinstance(figure, Reproduction) else ()
        try:
            if lacking := [one.name for one in beside if one.name in failed]:
                raise OffbeatError(f"it is compared with {lacking[0]}, which was not run")
            _reproduce(figure, scale, workers)
        except OffbeatError as error:
            if len(figures) == 1:
                raise
            click.echo(f"{figure.name}: {error}", err=True)
            failed.append(figure.name)
    return failed


def _reproduce(figure: AnyFigure, scale: str, workers: Workers) -> None:
    click.echo(f"\n{figure.name}, {scale}: {figure.section.figure}. {figure.section.question}")
    made = carry_out(figure, scale, _RESULTS, workers=workers, progress=lambda figure: _progress(figure, scale))
    table = Table("Claim", "In the paper", "Ours", "", "Verdict", box=box.SIMPLE)
    for one in made.findings:
        table.add_row(one.claim, one.paper, one.ours, one.other, one.verdict)
    console.print(table)
    folder = place(figure.name, scale, _RESULTS)
    record = made.record(folder, "figure")
    page = write_file(folder / "page.md", section_of(record).encode())
    click.echo("\n".join([*(f"Figure: {folder / figure}" for figure in record.figures), f"Page: {page}"]))


def _progress(figure: Reproduction, scale: str) -> Progress:
    experiment = figure.experiment(scale)
    return Progress(console, experiment.stop, metric_name(experiment.metrics[0]) if experiment.metrics else None)


def _list(figures: Sequence[AnyFigure], pages: Path) -> None:
    ledger, fingerprints = read_ledger(pages), _fingerprints(figures)
    table = Table("Name", "Paper", "Figure", "Data", "Claim", "About", "Verdict", box=box.SIMPLE)
    for one in figures:
        about = "\n".join(f"{scale}: {_minutes(_about(one, scale, ledger))}" for scale in one.scales)
        found: dict[str, Sequence[Finding]] = {}
        for scale in one.scales:
            key = one.name, scale
            if (made := outcome(one, scale, _RESULTS)) is not None:
                found[scale] = made.findings
            elif key in ledger and ledger[key].fingerprint == fingerprints[key]:
                found[scale] = ledger[key].findings
        for number, claim in enumerate(one.claims):
            first = (one.name, one.section.paper, one.section.figure, _data(one)) if not number else ("", "", "", "")
            verdict = "\n".join(f"{scale}: {findings[number].word}" for scale, findings in found.items())
            table.add_row(*first, claim.name, about if not number else "", verdict or "not run")
    console.print(table)


def _data(figure: AnyFigure) -> str:
    if not isinstance(figure, Reproduction):
        return "none"
    return figure.experiment(next(iter(figure.scales))).data.name.rpartition("/")[2]


def _about(figure: AnyFigure, scale: str, ledger: Mapping[Key, Record]) -> float:
    """Return about how many minutes a figure takes here: as the last time on as many cores, or as its file says."""
    record = ledger.get((figure.name, scale))
    return record.minutes / (os.cpu_count() or 1) if record else figure.scales[scale].minutes


def _minutes(minutes: float) -> str:
    return f"{minutes:.2g} min" if minutes < 100 else f"{minutes / 60:.0f} h"
