"""A simulation's run, kept so that it can be written as a run's folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import tomli_w
from torch import Tensor

from offbeat.algorithms import Algorithm
from offbeat.config.algorithm_table import hyper_parameters_of
from offbeat.config.experiment_file import Experiment
from offbeat.runs.writer import RunWriter
from offbeat.simulation.evaluations import ClientEvaluation
from offbeat.simulation.totals import Evaluation, VisitEnded

_GIVEN = "given in Python"


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

    def write(self, folder: Path, label: str) -> Path:
        """Write the run's folder, below another one and with a label of its own."""
        path = folder / f"{label}-seed{self.seed}"
        config = {**self.config, "algorithms": {label: self.config["algorithms"][self.label]}}
        writer = RunWriter.begin(path, config, self.evaluations[0].metrics, self.versions)
        for evaluation in self.evaluations:
            writer.add(evaluation, [])
        writer.add(None, [VisitEnded(**visit) for visit in self.visits.to_pylist()], list(self.by_clients))
        writer.finish(self.model, self.real_seconds, by_label=self.by_label)
        return path


def config_of(
    experiment: Experiment, label: str, data: str, algorithm: Algorithm, given: Mapping[str, object]
) -> dict[str, Any]:
    """Return the settings of a simulation's run, as in its ``config.toml``.

    ``given`` are the parts of the population that are arrays or functions.
    """
    (seed,) = experiment.seeds
    config = experiment.settings(label, seed, data)
    config["population"] |= dict.fromkeys(given, _GIVEN)
    name = experiment.algorithms[label].algorithm
    return config | {"algorithms": {label: {"algorithm": name, **_hyper_parameters(algorithm)}}}


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
