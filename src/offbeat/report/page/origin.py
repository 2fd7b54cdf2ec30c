"""Origin of the runs of a page: date, machine, commit."""

import json
from collections.abc import Sequence

from offbeat.runs.directory import Run


def origin(runs: Sequence[Run]) -> str:
    """Return dates, machines and commits, as far as the runs' folders record them."""
    tables = [_read(run) for run in runs]
    days = sorted(table["finished"][:10] for table in tables if "finished" in table)
    parts = [" to ".join(dict.fromkeys((days[0], days[-1])))] if days else []
    for key in ("machine", "commit"):
        values = dict.fromkeys(table[key] for table in tables if key in table)
        name = "commit " if key == "commit" else ""
        parts += [f"{name}{'; '.join(values)}"] if values else []
    return " · ".join(parts)


def _read(run: Run) -> dict[str, str]:
    # An unfinished run may lack the file.
    try:
        content = json.loads((run.path / "timing.json").read_text(encoding="utf-8"))
        return {key: value for key, value in content.items() if isinstance(value, str)}
    except (OSError, ValueError, AttributeError):
        return {}
