"""The benchmark's raw data: a Parquet file and a JSON file for each world."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from offbeat_core.errors import OffbeatError
from offbeat_core.files import write_durably

from offbeat.runs.directory import Run, disk_errors
from offbeat_studies.benchmark.client_time import client_seconds
from offbeat_studies.benchmark.measures import Curve
from offbeat_studies.benchmark.protocol import Tuned
from offbeat_studies.benchmark.world import PUBLISHED, World

SCHEMA = pa.schema(
    [
        ("world", pa.string()),
        ("algorithm", pa.string()),  # the label
        ("seed", pa.int64()),
        ("seconds", pa.float64()),  # virtual time of the evaluation
        ("client_seconds", pa.float64()),  # that all clients together have worked so far
        ("bytes", pa.int64()),  # so far, to and by all clients
        ("counted", pa.int64()),  # visits so far, by outcome
        ("unused", pa.int64()),
        ("lost", pa.int64()),
        ("version", pa.int64()),
        ("accuracy", pa.float64()),  # on the test set; NaN if the run has diverged
        ("loss", pa.float64()),
    ]
)
COSTS = ("seconds", "client_seconds", "bytes")


@dataclass(frozen=True)
class WorldData:
    """A world's raw data: a row an evaluation, and the facts about each algorithm."""

    table: pa.Table
    facts: Mapping[str, Mapping[str, Any]]

    @property
    def curves(self) -> dict[str, list[Curve]]:
        """The runs of each label, by seed."""
        columns = {name: self.table[name].to_numpy() for name in self.table.column_names}
        found: dict[str, list[Curve]] = {}
        for label in dict.fromkeys(columns["algorithm"]):
            own = columns["algorithm"] == label
            for seed in sorted(set(columns["seed"][own])):
                rows = own & (columns["seed"] == seed)
                costs = {name: columns[name][rows].astype(np.float64) for name in COSTS}
                found.setdefault(str(label), []).append(Curve(int(seed), costs, columns["accuracy"][rows]))
        return found

    def with_others(self, other: "WorldData") -> "WorldData":
        """Return these data, and those of other labels from ``other``.

        Data of another world, whose file has since been changed, are left out.
        """
        worlds = {None, *(fact.get("world") for fact in self.facts.values())}  # None: before it was recorded
        facts = {
            label: fact
            for label, fact in other.facts.items()
            if label not in self.facts and fact.get("world") in worlds
        }
        mask = pa.array([label in facts for label in other.table["algorithm"].to_pylist()])
        return WorldData(pa.concat_tables([self.table, other.table.filter(mask)]), {**self.facts, **facts})


def data_of(world: World, tuned: Sequence[Tuned]) -> WorldData:
    """Return the data of a world's runs."""
    tables = [_rows(world.name, one.entry.label, run) for one in tuned for run in one.runs]
    return WorldData(pa.concat_tables(tables), {one.entry.label: _facts(world, one) for one in tuned})


def _rows(world: str, label: str, run: Run) -> pa.Table:
    history = run.history
    number = len(history["seconds"])
    columns = {
        "world": [world] * number,
        "algorithm": [label] * number,
        "seed": [run.seed] * number,
        "client_seconds": client_seconds(run),
        "bytes": history["bytes_down"] + history["bytes_up"],
    }
    return pa.table({name: columns.get(name, history.get(name)) for name in SCHEMA.names}, schema=SCHEMA)


def _facts(world: World, one: Tuned) -> dict[str, Any]:
    """Return the world, the search, the best point, and a run's processor seconds."""
    tried = [(_accuracy(trial.value), dict(trial.point)) for trial in one.trials]
    seconds = [run.processor_seconds or run.real_seconds for run in one.runs]
    return {
        "world": world.fingerprint,
        "space": dict(one.entry.texts),
        "settings": dict(one.point),
        "trials": tried,
        "processor_seconds": round(float(np.mean(seconds)), 2),
    }


def _accuracy(value: float) -> float | None:
    return round(value, 4) if np.isfinite(value) else None


def write(folder: Path, world: str, data: WorldData) -> Path:
    """Write a world's data into a folder, over earlier ones of the same labels."""
    path = folder / f"{world}.parquet"
    if path.exists():
        data = data.with_others(read(folder, world))
    sink = pa.BufferOutputStream()
    pq.write_table(data.table, sink, compression="zstd")
    with disk_errors(f"into {folder}", "choose another folder with --output"):
        write_durably(path, sink.getvalue().to_pybytes())
        lines = [f"{json.dumps(label)}: {json.dumps(fact, ensure_ascii=False)}" for label, fact in data.facts.items()]
        write_durably(folder / f"{world}.json", ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    return path


def read(folder: Path, world: str) -> WorldData:
    """Read a world's data from a folder."""
    path = folder / f"{world}.parquet"
    try:
        table = pq.read_table(path).select(SCHEMA.names).cast(SCHEMA)
        facts = dict(json.loads((folder / f"{world}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException):
        raise OffbeatError(f"{path} and {world}.json are not data of the benchmark: remove both") from None
    return WorldData(table, facts)


def published(world: str) -> WorldData | None:
    """Return a world's published data; None if it has not been run yet."""
    return read(PUBLISHED, world) if (PUBLISHED / f"{world}.parquet").exists() else None
