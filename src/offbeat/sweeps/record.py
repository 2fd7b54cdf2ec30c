"""``sweep.json``: what a sweep searches, and its trials so far.

A report on a sweep reads nothing else of it, so that it needs neither Optuna nor the experiment's file.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError

from offbeat.report.export import write_file
from offbeat.sweeps.search_space import Choices, Numbers, Space, Values, size_of
from offbeat.sweeps.trials import Trial, rank_score

_FILE = "sweep.json"

Trials = Mapping[str, Sequence[Trial]]
"""The trials of each label, in order."""


@dataclass(frozen=True)
class Searched:
    """The spaces that a sweep searches, and the measure that compares trials."""

    name: str  # of the experiment
    measure: str  # column of the history
    better: str  # "higher" or "lower"
    seeds: tuple[int, ...]
    trials: int  # of each label; a space with fewer points has one trial for each of these
    spaces: Mapping[str, Space]
    target: float | None = None  # of the measure: trials are compared by the time to it, as by ``rank_score``

    def number(self, label: str) -> int:
        """Return how many trials a label gets."""
        return int(min(self.trials, size_of(self.spaces[label])))

    @property
    def runs(self) -> int:
        """The number of runs of all trials."""
        return sum(map(self.number, self.spaces)) * len(self.seeds)


def write_record(searched: Searched, trials: Trials, folder: Path) -> Path:
    """Write ``sweep.json``."""
    content = {
        **asdict(searched),
        "spaces": {label: {key: _table(values) for key, values in s.items()} for label, s in searched.spaces.items()},
        "values": {
            label: [
                {
                    "point": dict(trial.point),
                    "value": trial.value if math.isfinite(trial.value) else None,
                    "seconds": trial.seconds,
                }
                for trial in own
            ]
            for label, own in trials.items()
        },
    }
    return write_file(folder / _FILE, (json.dumps(content, indent=1) + "\n").encode())


def is_sweep(folder: Path) -> bool:
    """Return whether a folder is that of a sweep."""
    return (folder / _FILE).is_file()


def read_record(folder: Path) -> tuple[Searched, dict[str, list[Trial]]]:
    """Read ``sweep.json``; an ``OffbeatError`` is one line."""
    path = folder / _FILE
    try:
        content = json.loads(path.read_bytes())
        searched = Searched(
            str(content["name"]),
            str(content["measure"]),
            {"higher": "higher", "lower": "lower"}[content["better"]],
            tuple(map(int, content["seeds"])),
            int(content["trials"]),
            {label: {k: _values(v) for k, v in space.items()} for label, space in content["spaces"].items()},
            _number(content["target"]),
        )
        trials = {
            label: [_trial(searched, label, number, trial) for number, trial in enumerate(content["values"][label])]
            for label in searched.spaces
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise OffbeatError(f"{path} is broken: carry out the sweep again, which keeps its trials") from None
    return searched, trials


def _table(values: Values) -> dict[str, Any]:
    return {"values": list(values.values)} if isinstance(values, Choices) else asdict(values)


def _values(table: Mapping[str, Any]) -> Values:
    if "values" in table:
        return Choices(tuple(table["values"]))
    numbers = Numbers(table["low"], table["high"], bool(table["log"]), bool(table["whole"]))
    if not (math.isfinite(numbers.low) and math.isfinite(numbers.high) and numbers.low < numbers.high):
        raise ValueError("an empty range")
    return numbers


def _trial(searched: Searched, label: str, number: int, table: Mapping[str, Any]) -> Trial:
    if table["point"].keys() != searched.spaces[label].keys():
        raise ValueError("a point of another space")
    value, seconds = _number(table["value"]), _number(table["seconds"])
    value = math.nan if value is None else value
    score = rank_score(value, seconds, searched.target, higher_is_better=searched.better == "higher")
    return Trial(label, number, table["point"], value, score, seconds)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
