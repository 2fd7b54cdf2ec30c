"""Reports on the histories of ``offbeat.simulate``."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from offbeat_core.errors import OffbeatError

from offbeat.config.experiment_file import FOLDER_NAME
from offbeat.python.history import History
from offbeat.python.run_record import RunRecord
from offbeat.report.collect import collect
from offbeat.report.html import write_report as write_report_of_runs
from offbeat.runs.settings import differences

Histories = History | Sequence[History] | Mapping[str, History | Sequence[History]]


def write_report(histories: Histories, folder: str | Path) -> Path:
    """Write a report that compares histories, as ``offbeat report`` does for runs.

    Args:
        histories: One history or several, or a dict of histories by name. Several of one name are seeds of one
            algorithm; the name of an unnamed one is its algorithm's.
        folder: The folder of ``report.html`` and ``plots``.

    Returns:
        The path of ``report.html``.

    Raises:
        OffbeatError: There is nothing to compare, or two histories of one name do not belong together.
    """
    named = _named(histories)
    _check(named)
    folder = Path(folder)
    with TemporaryDirectory() as runs:
        paths = [record.write(Path(runs), name) for name, record in named]
        return write_report_of_runs(collect(paths), folder, folder.resolve().name, "offbeat.write_report(…)")


def _named(histories: Any) -> list[tuple[str, RunRecord]]:
    """Return the record of each history, with its name."""
    groups = cast("Mapping[Any, Any]", histories).items() if isinstance(histories, Mapping) else [(None, histories)]
    found: list[tuple[str, RunRecord]] = []
    for name, group in groups:
        several: Iterable[Any] = [group] if isinstance(group, History) or not isinstance(group, Iterable) else group
        for history in several:
            if not isinstance(history, History):
                kind = type(history).__name__
                raise OffbeatError(f"a report is about histories of offbeat.simulate; got a value of type {kind}")
            found.append((history.record.label if name is None else str(name), history.record))
    if not found:
        raise OffbeatError("there is no history to report on")
    return found


def _check(named: Sequence[tuple[str, RunRecord]]) -> None:
    """Check that histories of one name differ in their seeds only."""
    groups: dict[str, list[RunRecord]] = {}
    for name, record in named:
        groups.setdefault(name, []).append(record)
    for name, records in groups.items():
        if not re.fullmatch(FOLDER_NAME, name):
            raise OffbeatError(f"{name!r}: a name must be made of letters, digits, spaces and . _ + -")
        settings = [
            {**record.config, "name": "", "seeds": [], "algorithms": record.config["algorithms"][record.label]}
            for record in records
        ]
        different = differences(settings)
        if different or len({record.seed for record in records}) < len(records):
            problem = f"differ in {', '.join(different)}" if different else "have the same seed"
            raise OffbeatError(
                f"the histories of {name} {problem}: name them, for instance "
                "write_report({'first': one, 'second': other}, folder)"
            )
