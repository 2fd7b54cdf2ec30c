"""Record of a tuning, in the folder ``tuning`` of the runs at the best settings."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from offbeat_core.errors import OffbeatError
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from offbeat.runs import directory as run_directory
from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label, experiment_of

FOLDER = "tuning"
_FILE = "tuning.json"
_FROZEN = ConfigDict(frozen=True, extra="forbid")


class TunedSetting(BaseModel):
    """A setting that was searched: its key, its values as for ``--over``, those found."""

    model_config = _FROZEN
    key: str
    searched: str
    untuned: JsonValue
    best: JsonValue = None
    edge: str = ""
    """lower or upper, if the best value lies at that end of its range."""


class TrialResult(BaseModel):
    """A trial on the validation part."""

    model_config = _FROZEN
    number: int
    value: float | None
    """Mean of the last evaluations of the measure; None if it diverged."""
    seconds: float | None
    """Virtual time to the target; None if there is none, or it was missed."""


class TunedLabel(BaseModel):
    """The tuning of one algorithm."""

    model_config = _FROZEN
    trials: int
    settings: Sequence[TunedSetting]
    untuned: TrialResult | None = None
    best: TrialResult | None = None
    """None until all trials have ended."""


class TuningRecord(BaseModel):
    """The values and the rules of a search; after it also its result."""

    model_config = _FROZEN
    share: Annotated[float, Field(gt=0, le=1)]
    """Of the end of the runs, at which trials end."""
    validation: Annotated[float, Field(gt=0, lt=1)]
    """Share of the training examples."""
    seed: int
    measure: str
    last: int
    """How many last evaluations a value is the mean of."""
    target: float | None
    labels: Mapping[str, TunedLabel]

    def asked(self) -> "TuningRecord":
        """Return the record as it was before the search."""
        labels = {
            label: TunedLabel(
                trials=one.trials,
                settings=[setting.model_copy(update={"best": None, "edge": ""}) for setting in one.settings],
            )
            for label, one in self.labels.items()
        }
        return self.model_copy(update={"labels": labels})


def holds_tuning(folder: Path) -> bool:
    """Return whether a folder is that of a tuning's trials."""
    return (folder / _FILE).is_file()


def read_tuning(folder: Path) -> TuningRecord | None:
    """Read the record in a folder of runs; None if there is none."""
    path = folder / FOLDER / _FILE
    try:
        return TuningRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        raise OffbeatError(
            f"{path} is broken: choose another folder with --output, or replace it with --fresh"
        ) from None


def write_tuning(folder: Path, record: TuningRecord) -> None:
    """Write the record; a kill leaves the earlier one, or the new one."""
    path = folder / FOLDER / _FILE
    hidden = path.with_name(f".{_FILE}")
    with run_directory.disk_errors(str(path), "choose another folder with --output"):
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden.write_text(json.dumps(record.model_dump(mode="json"), indent=1), encoding="utf-8")
        hidden.replace(path)


def tuning_of(runs: Sequence[Run]) -> dict[str, tuple[TuningRecord, TunedLabel]]:
    """Return the tuning of each label whose runs all have the best settings of one."""
    found: dict[str, tuple[TuningRecord, TunedLabel]] = {}
    records = {folder: read_tuning(folder) for folder in {experiment_of(run) for run in runs}}
    for label, group in by_label(runs).items():
        record = records[experiment_of(group[0])]
        (name,) = group[0].config["algorithms"]  # without the experiment's name, which a report may have added
        tuned = None if record is None else record.labels.get(name)
        if record is None or tuned is None or tuned.best is None:
            continue
        if all(experiment_of(run) == experiment_of(group[0]) and _is_at_best(run, name, tuned) for run in group):
            found[label] = record, tuned
    return found


def _is_at_best(run: Run, name: str, tuned: TunedLabel) -> bool:
    return all(_value(run, name, setting.key) == setting.best for setting in tuned.settings)


def _value(run: Run, name: str, key: str) -> object:
    """Return a run's value of a key of ``[algorithms.LABEL]``."""
    section, _, _ = key.partition(".")
    table: object = run.config if section in ("local", "privacy") else run.config["algorithms"][name]
    for part in key.split("."):
        table = table.get(part) if isinstance(table, Mapping) else None
    return table
