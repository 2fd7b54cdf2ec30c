"""A simulation's run, to be written as a run's folder or as plain tables."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
from offbeat_core.errors import OffbeatError
from safetensors.torch import save
from torch import Tensor

from offbeat.algorithms import Algorithm
from offbeat.config.algorithm_table import hyper_parameters_of
from offbeat.config.experiment_file import Experiment
from offbeat.config.import_path import check_utf8
from offbeat.metric_bounds import Bounds
from offbeat.runs.directory import disk_errors
from offbeat.runs.writer import RunWriter
from offbeat.simulation.client_time import ClientTime
from offbeat.simulation.evaluations import ClientEvaluation
from offbeat.simulation.totals import Evaluation, VisitEnded

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class RunRecord:
    """One run: its settings, and all that its folder holds."""

    label: str
    seed: int
    config: Mapping[str, Any]
    versions: Mapping[str, str]
    evaluations: Sequence[Evaluation]
    visits: pa.Table
    by_clients: Sequence[ClientEvaluation]
    model: Mapping[str, Tensor]
    real_seconds: float
    by_label: Mapping[str, float] = field(default_factory=dict)
    client_time: ClientTime | None = None
    bounds: Mapping[str, Bounds] = field(default_factory=dict)

    def write(self, folder: Path, label: str) -> Path:
        """Write the run's folder, below another one and with a label of its own."""
        path = folder / f"{label}-seed{self.seed}"
        config = {**self.config, "algorithms": {label: self.config["algorithms"][self.label]}}
        writer = RunWriter.begin(path, config, self.evaluations[0].metrics, self.versions)
        for evaluation in self.evaluations:
            writer.add(evaluation, [])
        writer.add(None, [VisitEnded(**visit) for visit in self.visits.to_pylist()], list(self.by_clients))
        writer.finish(
            self.model, self.real_seconds, by_label=self.by_label, client_time=self.client_time, bounds=self.bounds
        )
        return path


def config_of(experiment: Experiment, label: str, data: str, algorithm: Algorithm) -> dict[str, Any]:
    """Return the settings of a simulation's run, as in its ``config.toml``."""
    (seed,) = experiment.seeds
    config = experiment.settings(label, seed, data)
    return config | {"algorithms": {label: {"algorithm": experiment.name_of(label), **_hyper_parameters(algorithm)}}}


def _hyper_parameters(algorithm: Algorithm) -> dict[str, Any]:
    """Return hyper-parameters as TOML; what cannot be written becomes a text."""
    try:
        found = hyper_parameters_of(algorithm)
    except AttributeError:
        return {}
    return {key: value if _is_toml(value) else str(value) for key, value in found.items()}


def _is_toml(value: object) -> bool:
    try:
        tomli_w.dumps({"value": value})
    except TypeError:
        return False
    return True


def make_folder(folder: Path) -> Path:
    """Make the folder, which must not be that of a run."""
    check_utf8(folder)
    if (folder / "config.toml").exists():
        raise OffbeatError(f"output = {str(folder)!r} holds a run: choose another folder")
    with _disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_output(folder: Path, history: "DataFrame", record: RunRecord) -> None:
    """Write the tables and the model."""
    with _disk_errors(folder):
        history.to_parquet(folder / "history.parquet", index=False)
        pq.write_table(record.visits, folder / "events.parquet")
        if record.by_clients:
            rows = pa.Table.from_pylist([evaluation.row() for evaluation in record.by_clients])
            pq.write_table(rows, folder / "clients.parquet")
        (folder / "model.safetensors").write_bytes(save(dict(record.model)))


def _disk_errors(folder: Path) -> AbstractContextManager[None]:
    return disk_errors(f"into {folder}", "choose another output")
