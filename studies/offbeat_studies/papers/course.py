"""The course of ``offbeat papers``: run figures, judge claims, write pages."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from offbeat_core.errors import OffbeatError
from rich import box
from rich.markup import escape
from rich.table import Table

from offbeat.cli.terminal import console
from offbeat.config.experiment_sections import metric_name
from offbeat.report.export import write_file
from offbeat.runs.progress import Progress
from offbeat.runs.worker_processes import Workers
from offbeat_studies.papers import SCALES
from offbeat_studies.papers.figures.catalogue import AnyFigure, find, read_all, result_of, run_figure, with_compared
from offbeat_studies.papers.figures.completed_runs import figure_folder
from offbeat_studies.papers.figures.figure_file import ComparisonFigure
from offbeat_studies.papers.figures.figure_result import FigureRecord, FigureResult
from offbeat_studies.papers.figures.finding import Finding
from offbeat_studies.papers.figures.verdicts import with_verdicts
from offbeat_studies.papers.results.claims_table import effect_text, verdict_text
from offbeat_studies.papers.results.ledger import read_ledger, write_ledger
from offbeat_studies.papers.results.paper_page import page_of

_RUNS = Path("runs") / "reproduce"
_PAGES = Path("docs") / "results"  # --list shows the verdicts of this ledger unless --pages names another


def run_and_write(
    names: Sequence[str],
    folders: Sequence[Path],
    scale: str,
    seeds: int,
    jobs: int,
    pages: Path | None,
    *,
    everything: bool,
) -> None:
    """Run figures by name, or all; then write pages if they have a folder.

    Raises:
        OffbeatError: A figure could not be run; the others were, and the pages are written.
    """
    failed: list[str] = []
    if everything or names:
        selected = read_all(folders) if everything else [one for name in names for one in find(name, folders)]
        wanted = _at_scale(selected, scale, is_reported=not everything)
        if pages is not None:
            read_ledger(pages)  # refuses a broken ledger before hours of runs
        with Workers(jobs) as workers:
            failed = _run_each(wanted, scale, seeds, workers)
    if pages is not None:
        _write_pages(read_all(folders), pages)
    if failed:
        raise OffbeatError(f"could not run {', '.join(failed)}; the reason for each is printed above")


def _at_scale(selected: Sequence[AnyFigure], scale: str, *, is_reported: bool) -> list[AnyFigure]:
    """Return figures with a scale, and those that they compare with; report others."""
    wanted = with_compared([one for one in selected if scale in one.scales])
    if not wanted:
        scales = ", ".join(known for known in SCALES if any(known in one.scales for one in selected))
        names = ", ".join(one.name for one in selected)
        raise OffbeatError(f"{names}: no scale {scale}; choose from {scales}")
    if is_reported and (others := [one.name for one in selected if scale not in one.scales]):
        click.echo(f"Left out, since they have no scale {scale}: {', '.join(others)}")
    return wanted


def _run_each(figures: Sequence[AnyFigure], scale: str, seeds: int, workers: Workers) -> list[str]:
    """Run figures one after the other, also after an error; return those that failed."""
    failed: list[str] = []
    for figure in figures:
        compared = figure.compared.values() if isinstance(figure, ComparisonFigure) else ()
        try:
            if missing := [one.name for one in compared if one.name in failed]:
                raise OffbeatError(f"its claims compare with {missing[0]}, which failed")
            _run(figure, scale, seeds, workers)
        except OffbeatError as error:
            if len(figures) == 1:
                raise
            click.echo(f"{figure.name}: {error}", err=True)
            failed.append(figure.name)
    return failed


def _run(figure: AnyFigure, scale: str, seeds: int, workers: Workers) -> None:
    click.echo(f"\n{figure.name}, {scale}: {figure.section.figure}. {figure.section.question}")
    result = run_figure(
        figure, scale, _RUNS, seeds=seeds, workers=workers, progress=lambda figure: _progress(figure, scale)
    )
    folder = figure_folder(figure.name, scale, _RUNS)
    (record,) = with_verdicts([result.record(folder, "figure")])
    table = Table("Claim", "In the paper", "Ours", "", "Effect", "Verdict", box=box.SIMPLE)
    for one in record.findings:
        texts = (one.claim, one.paper, one.ours, one.other, effect_text(one), verdict_text(one))
        table.add_row(*map(escape, texts))  # [sic] is not markup
    console().print(table)
    page = write_file(folder / "page.md", page_of(record).encode())
    click.echo("\n".join([*(f"Figure: {folder / figure}" for figure in record.figures), f"Page: {page}"]))


def _progress(figure: ComparisonFigure, scale: str) -> Progress:
    experiment = figure.experiment(scale)
    return Progress(console(), experiment.stop, metric_name(experiment.metrics[0]) if experiment.metrics else None)


def _write_pages(figures: Sequence[AnyFigure], folder: Path) -> None:
    results = [result_of(one, scale, _RUNS) for one in figures for scale in one.scales]
    written = write_ledger([one for one in results if one is not None], figures, folder)
    for title, keys in (
        ("Outdated, since their settings or claims have changed", written.outdated),
        ("Removed, since no file has them", written.removed),
        ("Kept as they were, since the ledger has more seeds", written.kept),
    ):
        if keys:
            click.echo(f"{title}: {', '.join(f'{name} ({scale})' for name, scale in keys)}")
    click.echo(f"Pages: {written.first_page}")


def list_figures(folders: Sequence[Path], pages: Path | None) -> None:
    """Print all figures with their claims and verdicts.

    Verdicts are those of the ledger in ``pages``, or of newer runs here.
    """
    figures, ledger = read_all(folders), read_ledger(pages or _PAGES)
    table = Table("Name", "Paper", "Figure", "Data", "Claim", "Duration", "Verdict", box=box.SIMPLE)
    for one in figures:
        durations = "\n".join(f"{scale}: {_duration(one, scale, ledger)}" for scale in one.scales)
        found: dict[str, Sequence[Finding]] = {}
        for scale in one.scales:
            record, result = ledger.get((one.name, scale)), result_of(one, scale, _RUNS)
            if record and record.fingerprint != one.fingerprint(scale):
                record = None
            if result is not None and (record is None or len(record.seeds) <= len(result.seeds)):
                found[scale] = _with_verdicts(result)
            elif record is not None:
                found[scale] = record.findings
        first = (one.name, one.section.paper, one.section.figure, _data(one))
        for number, claim in enumerate(one.claims):
            verdict = "\n".join(f"{scale}: {findings[number].verdict}" for scale, findings in found.items())
            start, duration = (first, durations) if number == 0 else (("",) * len(first), "")
            table.add_row(*start, claim.name, duration, verdict or "not run")
    console().print(table)


def _with_verdicts(result: FigureResult) -> Sequence[Finding]:
    """Return a result's findings, with verdicts as if the paper had no other figure."""
    (record,) = with_verdicts([result.bare_record()])
    return record.findings


def _data(figure: AnyFigure) -> str:
    if not isinstance(figure, ComparisonFigure):
        return "none"
    return str(figure.experiment(next(iter(figure.scales))).data.name).rpartition("/")[2]


def _duration(figure: AnyFigure, scale: str, ledger: Mapping[tuple[str, str], FigureRecord]) -> str:
    """Return a figure's last duration, divided by the cores, or that in its file."""
    record = ledger.get((figure.name, scale))
    minutes = record.minutes / (os.cpu_count() or 1) if record else figure.scales[scale].minutes
    return f"{minutes:.2g} min" if minutes < 100 else f"{minutes / 60:.0f} h"
