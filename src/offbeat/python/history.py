"""The result of ``offbeat.simulate``."""

from collections.abc import Sequence
from pathlib import Path

from pandas import DataFrame
from torch import nn

from offbeat.algorithms import Algorithm
from offbeat.python.run_record import RunRecord
from offbeat.simulation.totals import Evaluation


class History(DataFrame):
    """A pandas table with a row for each evaluation, and what is left of the run.

    Parts and results of the table are plain tables.

    Attributes:
        model: The final model, on the CPU and in evaluation mode.
        algorithm: The algorithm after the run.
        events: A table with a row for each visit that ended, as ``events.parquet``.
        record: The run as it was, for reports; changes of the table do not change it.
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
        from offbeat.python.report import write_report

        return write_report(self, folder)

    @property
    def _constructor(self) -> type[DataFrame]:
        return DataFrame
