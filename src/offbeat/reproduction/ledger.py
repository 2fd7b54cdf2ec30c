"""What came of all figures so far, kept beside the pages, so that they can be run a few at a time, and anywhere."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from offbeat.errors import OffbeatError
from offbeat.report.export import write_file
from offbeat.reproduction.outcome import Key, Outcome, Record
from offbeat.reproduction.page import IMAGES, paper_of, write_pages
from offbeat.reproduction.sections import SCALES

_LEDGER = "ledger.json"
_RECORDS = TypeAdapter(tuple[Record, ...])


class Pages(NamedTuple):
    """A ledger's pages.

    Attributes:
        first_page: The path of the page that lists all claims.
        outdated: Figures whose results are from before their files changed; the pages say so.
        removed: Figures that the ledger had, and that are no longer in any file.
    """

    first_page: Path
    outdated: list[Key]
    removed: list[Key]


def read_ledger(folder: Path) -> dict[Key, Record]:
    """Return the records in a folder of pages; none if there is no ledger.

    Raises:
        OffbeatError: It is broken.
    """
    path = folder / _LEDGER
    try:
        records = _RECORDS.validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError):
        raise OffbeatError(f"{path} is broken: take an older one, or remove it and run its figures again") from None
    return {(one.name, one.scale): one for one in records}


def write_ledger(outcomes: Sequence[Outcome], fingerprints: Mapping[Key, str], folder: Path) -> Pages:
    """Write the ledger and its pages: the outcomes, and the other figures' records.

    A record whose figure has other settings or claims by now stays until the figure is run again.

    Args:
        outcomes: What was run here.
        fingerprints: Those of all figures at all scales, in the order of the pages.
        folder: Where ledger and pages are, or go.

    Raises:
        OffbeatError: The folder cannot be written, or the ledger there is broken.
    """
    known = read_ledger(folder)
    records = {key: one for key, one in known.items() if key in fingerprints}
    for one in outcomes:
        made = one.record(folder / IMAGES, f"{one.name.replace('/', '-')}-{one.scale}")
        records[one.name, one.scale] = replace(made, minutes=round(made.minutes, 2))
    ordered = [records[key] for key in fingerprints if key in records]
    outdated = [one.key for one in ordered if one.fingerprint != fingerprints[one.key]]
    drawn = {figure for one in ordered for figure in one.figures}
    for figure in {figure for one in known.values() for figure in one.figures} - drawn:
        (folder / IMAGES / figure).unlink(missing_ok=True)
    for paper in {paper_of(one) for one in known.values()} - {paper_of(one) for one in ordered}:
        (folder / f"{paper}.md").unlink(missing_ok=True)
    write_file(folder / _LEDGER, _RECORDS.dump_json(tuple(ordered), indent=1) + b"\n")
    missing = {
        scale: [name for name, its in fingerprints if its == scale and (name, scale) not in records] for scale in SCALES
    }
    first_page = write_pages(ordered, outdated, missing, folder)
    return Pages(first_page, outdated, [key for key in known if key not in records])
