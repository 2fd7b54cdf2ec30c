"""The ledger: the records of all figures, from which the pages are made.

It is a file beside the pages, so that figures can be run a few at a time and on different machines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from offbeat_core.errors import OffbeatError
from pydantic import TypeAdapter, ValidationError

from offbeat.report.export import write_file
from offbeat_studies.papers import SCALES
from offbeat_studies.papers.figures.figure_result import FigureRecord, FigureResult, Key, PaperFigure
from offbeat_studies.papers.figures.verdicts import with_verdicts
from offbeat_studies.papers.results.pages import IMAGES, write_pages
from offbeat_studies.papers.results.statement_chart import chart_name

_LEDGER = "ledger.json"
_RECORDS = TypeAdapter(tuple[FigureRecord, ...])


class Pages(NamedTuple):
    """The pages that were written."""

    first_page: Path
    outdated: list[Key]  # measured before their settings or claims changed; the pages mark them
    removed: list[Key]  # from the ledger, because they are no longer in any file
    kept: list[Key]  # run here with fewer seeds than the ledger has, which stay


def read_ledger(folder: Path) -> dict[Key, FigureRecord]:
    """Return the records in a folder of pages; none without a ledger."""
    path = folder / _LEDGER
    try:
        records = _RECORDS.validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError):
        raise OffbeatError(f"{path} is broken: restore an older one, or remove it and run its figures again") from None
    return {one.key: one for one in records}


def write_ledger(results: Sequence[FigureResult], figures: Sequence[PaperFigure], folder: Path) -> Pages:
    """Write the ledger and its pages.

    A record stays until its figure is run again, with as many seeds or after a change. Its texts are those of the
    figure's file, unless the settings or claims there have changed. ``results`` are the figures that were run here,
    ``figures`` all, in the order of the pages.
    """
    known = read_ledger(folder)
    records = dict(known)
    kept: list[Key] = []
    for one in results:
        if _has_fewer_seeds(one, known):
            kept.append(one.key)
            continue
        record = one.record(folder / IMAGES, f"{one.source.name.replace('/', '-')}-{one.scale}")
        records[record.key] = replace(record, minutes=round(record.minutes, 2))
    ordered: list[FigureRecord] = []
    outdated: list[Key] = []
    missing: dict[str, list[str]] = {scale: [] for scale in SCALES}
    for figure in figures:
        for scale in figure.scales:
            record = records.get((figure.name, scale))
            if record is None:
                missing[scale].append(f"{figure.path.parent.name}/{figure.path.stem}")
            elif record.fingerprint == figure.fingerprint(scale):
                ordered.append(record.with_words_of(figure))
            else:
                ordered.append(record.in_file_of(figure))
                outdated.append(record.key)
    ordered = with_verdicts(ordered, outdated)
    _remove_unused(list(known.values()), ordered, folder)
    write_file(folder / _LEDGER, _RECORDS.dump_json(tuple(ordered), indent=1) + b"\n")
    present = {one.key for one in ordered}
    removed = [key for key in known if key not in present]
    return Pages(write_pages(ordered, outdated, missing, folder), outdated, removed, kept)


def _has_fewer_seeds(result: FigureResult, known: Mapping[Key, FigureRecord]) -> bool:
    """Return whether the ledger has the same experiment with more seeds."""
    record = known.get(result.key)
    return (
        record is not None
        and record.fingerprint == result.source.fingerprint(result.scale)
        and len(record.seeds) > len(result.seeds)
    )


def _remove_unused(before: Sequence[FigureRecord], now: Sequence[FigureRecord], folder: Path) -> None:
    """Remove the pictures and pages that only earlier records have."""
    for figure in {name for one in before for name in one.figures} - {name for one in now for name in one.figures}:
        (folder / IMAGES / figure).unlink(missing_ok=True)
    for paper in {one.page for one in before} - {one.page for one in now}:
        (folder / f"{paper}.md").unlink(missing_ok=True)
        (folder / IMAGES / chart_name(paper)).unlink(missing_ok=True)
