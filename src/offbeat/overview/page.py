"""Page of all experiments and sweeps in a folder, ``index.html`` beside them."""

import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from offbeat_core.errors import OffbeatError

from offbeat.overview.entries import Entry, entries
from offbeat.report.export import write_file
from offbeat.web.self_contained_page import file_text, render, script_of

_FILE = "index.html"
_SECONDS = 2.0  # that a command takes for it, apart from its own results
_MARK = "<!-- Overview by Offbeat. -->"
_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
_HERE = "offbeat.overview"
_THERE = "offbeat.report.page"


def overview_page(folder: Path, found: Sequence[Entry], *, connects: bool = False) -> str:
    """Return the page of a folder's entries; one that ``connects`` stays up to date."""
    scripts = (_THERE, "elements.js"), (_THERE, "tables.js"), (_HERE, "overview.js")
    return render(
        file_text(_HERE, "overview.html"),
        file_text(_THERE, "report.css") + file_text(_HERE, "overview.css"),
        script_of(*scripts),
        {"entries": list(found), "connects": connects},
        connects=connects,
        title=folder.resolve().name.encode(errors="backslashreplace").decode(),
    )


def write_overview(folder: Path, seconds: float = math.inf) -> Path | None:
    """Write ``index.html`` anew; None if somebody else has a page of that name.

    What has not changed since the last time comes from the page itself, and ``seconds`` are those of ``entries``.
    """
    path = folder / _FILE
    before = _read(path)
    if path.exists() and _MARK not in before:
        return None
    return write_file(
        path, overview_page(folder, entries(folder, entries_of(before), seconds)).encode(errors="backslashreplace")
    )


def update_overview(results: Path, *, is_default: bool) -> None:
    """Bring the page beside a folder of results up to date.

    It is begun only below ``runs``, where ``is_default``. A page that cannot be written does not matter to the results.
    """
    if is_default or _MARK in _read(results.parent / _FILE):
        with suppress(OffbeatError):
            write_overview(results.parent, _SECONDS)


def entries_of(page: str) -> list[Entry]:
    """Return the entries that a page has; none of a page that is broken."""
    try:
        found = _DATA.search(page)
        own = json.loads(found[1])["entries"] if found else []
        return [entry for entry in own if isinstance(entry, dict) and isinstance(entry.get("finished"), str)]
    except (ValueError, LookupError, TypeError):
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
