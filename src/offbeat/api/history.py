"""The result of ``offbeat.simulate``, and reports on several of them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from offbeat_core.errors import OffbeatError
from pandas import DataFrame
from torch import nn

from offbeat.algorithms import Algorithm
from offbeat.api.run_record import RunRecord
from offbeat.config.experiment_file import FOLDER_NAME
from offbeat.runs.settings import differences
from offbeat.simulation.totals import Evaluation


class History(DataFrame):
    """A pandas table with a row for each evaluation, and what is left of the run.

    Parts and results of the table are plain tables.

    Attributes:
        model: The final model, on the CPU and in evaluation mode.
        algorithm: The algorithm after the run.
        events: A table with a row for each visit that ended, as ``events.parquet``.
        record: The run as it was, for reports; changes of the table do not change it.

    Examples:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        >>> world = {"population": 20, "local": {"steps": 5, "batch_size": 10, "lr": 0.1}, "progress": False}
        >>> history = offbeat.simulate(model, "digits", "fedavg", updates=20, evaluate_every_versions=1, **world)
        >>> history[["version", "counted"]].iloc[-1].tolist()
        [2, 20]
        >>> history.events.columns[:3].tolist()
        ['client', 'visit', 'version']
        >>> path = history.report("report")
    """

    # pandas takes these for attributes, not for columns.
    _metadata = ["model", "algorithm", "events", "record"]  # noqa: RUF012

    model: nn.Module
    algorithm: Algorithm
    events: DataFrame
    record: RunRecord

    def __init__(
        self,
        evaluations: Sequence[Evaluation],
        *,
        model: nn.Module,
        algorithm: Algorithm,
        events: DataFrame,
        record: RunRecord,
    ) -> None:
        rows = DataFrame([{**row._asdict(), **row.metrics} for row in evaluations])
        super().__init__(rows.drop(columns="metrics"))
        self.model = model
        self.algorithm = algorithm
        self.events = events
        self.record = record

    def report(self, folder: str | Path) -> Path:
        """Write ``report.html`` into a folder, as ``offbeat report``; return its path.

        ``offbeat.write_report`` compares several histories.
        """
        return write_report(self, folder)

    @property
    def _constructor(self) -> type[DataFrame]:
        return DataFrame


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

    Examples:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        >>> world = {"population": 20, "local": {"steps": 5, "batch_size": 10, "lr": 0.1}, "progress": False}
        >>> histories = [
        ...     offbeat.simulate(model, "digits", name, updates=20, evaluate_every_versions=1, **world)
        ...     for name in ("fedavg", "fedbuff")
        ... ]
        >>> path = offbeat.write_report(histories, "report")
    """
    # Imported here, because matplotlib takes long to import.
    from offbeat.report.collect import collect
    from offbeat.report.page.page import write_report as write_report_of_runs

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
