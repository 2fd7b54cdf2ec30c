"""The ledger: the records of all figures, from which the pages are made.

It is a file beside the pages, so that figures can be run a few at a time and on different machines.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from offbeat.errors import OffbeatError
from offbeat.report.export import write_file
from papers.figures.figure_result import FigureRecord, FigureResult, Key, PaperFigure
from papers.figures.sections import SCALES
from papers.results.pages import IMAGES, paper_of, write_pages

_LEDGER = "ledger.json"
_RECORDS = TypeAdapter(tuple[FigureRecord, ...])


class Pages(NamedTuple):
    """The pages that were written."""

    first_page: Path
    outdated: list[Key]  # measured before their settings or claims changed; the pages mark them
    removed: list[Key]  # from the ledger, because they are no longer in any file


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

    A record stays until its figure is run again. Its texts are those of the figure's file, unless the settings or
    claims there have changed. ``results`` are the figures that were run here, ``figures`` all, in the order of the
    pages.
    """
    known = read_ledger(folder)
    records = dict(known)
    for one in results:
        record = one.record(folder / IMAGES, f"{one.source.name.replace('/', '-')}-{one.scale}")
        records[record.key] = replace(record, minutes=round(record.minutes, 2))
    ordered: list[FigureRecord] = []
    outdated: list[Key] = []
    missing: dict[str, list[str]] = {scale: [] for scale in SCALES}
    for figure in figures:
        for scale in figure.scales:
            record = records.get((figure.name, scale))
            if record is None:
                missing[scale].append(figure.name)
            elif record.fingerprint == figure.fingerprint(scale):
                ordered.append(record.with_words_of(figure))
            else:
                ordered.append(record.in_file_of(figure))
                outdated.append(record.key)
    _remove_unused(list(known.values()), ordered, folder)
    write_file(folder / _LEDGER, _RECORDS.dump_json(tuple(ordered), indent=1) + b"\n")
    kept = {one.key for one in ordered}
    return Pages(write_pages(ordered, outdated, missing, folder), outdated, [key for key in known if key not in kept])


def _remove_unused(before: Sequence[FigureRecord], now: Sequence[FigureRecord], folder: Path) -> None:
    """Remove the pictures and pages that only earlier records have."""
    for figure in {name for one in before for name in one.figures} - {name for one in now for name in one.figures}:
        (folder / IMAGES / figure).unlink(missing_ok=True)
    for paper in {paper_of(one) for one in before} - {paper_of(one) for one in now}:
        (folder / f"{paper}.md").unlink(missing_ok=True)
