"""The benchmark's worlds, from the package's files or the user's."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from offbeat_core.errors import OffbeatError, did_you_mean
from offbeat_core.files import read_table
from offbeat_core.tables.section import Section
from offbeat_core.tables.validation_errors import error_prefix
from pydantic import Field, field_validator

from offbeat.config.experiment_file import Experiment, experiment_of
from offbeat.config.experiment_sections import metric_name
from offbeat.sweeps.trials import Point

FOLDER = Path(__file__).parent
PUBLISHED = FOLDER / "results"

Table = dict[str, Any]
Labels = Annotated[tuple[str, ...], Field(strict=False)]


class BenchmarkSection(Section):
    """``[benchmark]`` in a world's file."""

    question: str = ""
    """The world in a sentence."""
    without: Labels = ()
    """Labels that are not run in this world."""
    only: Labels = ()
    """The labels that are run; all if empty."""
    space: dict[str, str] = Field(default_factory=dict)
    """Search spaces by key that replace the usual ones."""
    seeds: Annotated[int, Field(ge=2)] = 10
    """The number of seeds of the comparison."""
    trials: Annotated[int, Field(ge=2)] = 30
    """Trials of each algorithm."""
    settings_of: str | None = None
    """A world whose chosen settings are taken over. Labels that it has are not tuned again."""

    @field_validator("without", "only")
    @classmethod
    def _check_known(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for label in given:
            if label not in labels():
                raise ValueError(did_you_mean(label, labels()))
        return given

    @field_validator("settings_of")
    @classmethod
    def _check_published(cls, world: str | None) -> str | None:
        if world is not None and world not in _published():
            raise ValueError(did_you_mean(world, _published()))
        return world


class _Tables(Section):
    benchmark: BenchmarkSection = BenchmarkSection()


@dataclass(frozen=True)
class World:
    """A world: an experiment without algorithms.

    Attributes:
        path: The world's file.
        question: The world in a sentence.
        seconds: The virtual time of a run.
        target: The accuracy to which costs are compared.
        table: The experiment.
        without: Labels that are not run in this world.
        space: Search spaces by key that replace the usual ones.
        seeds: The number of seeds of the comparison.
        trials: Trials of each algorithm.
        settings_of: The world whose chosen settings are taken over.
        settings: These settings by label; the labels are not tuned again.
    """

    path: Path
    question: str
    seconds: float
    target: float
    table: Table
    without: Sequence[str]
    space: Mapping[str, str]
    seeds: int = 10
    trials: int = 30
    settings_of: str | None = None
    settings: Mapping[str, Point] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the world's file."""
        return self.path.stem

    @property
    def fingerprint(self) -> str:
        """A hash of the experiment."""
        return hashlib.sha256(json.dumps(self.table, sort_keys=True).encode()).hexdigest()[:16]

    def experiment(
        self, algorithms: Table, seeds: Sequence[int], share: float, server: Mapping[str, Any]
    ) -> Experiment:
        """Return an experiment of a share of the length; ``server`` adds to its section."""
        stop = {"virtual_seconds": self.seconds * share}
        servers = {"server": {**self.table.get("server", {}), **server}} if server else {}
        changes = {"name": self.name, "seeds": list(seeds), "stop": stop, "algorithms": algorithms, **servers}
        return experiment_of({**self.table, **changes}, self.path)


def world_names() -> list[str]:
    """Return the names of the worlds."""
    return sorted(path.stem for path in (FOLDER / "worlds").glob("*.toml"))


def read_world(name: str) -> World:
    """Return the world of a name, or of a TOML file of the user's."""
    if name not in world_names() and not name.endswith(".toml"):
        raise OffbeatError(f"--world {name}: {did_you_mean(name, world_names())}")
    if name.endswith(".toml") and Path(name).stem in world_names():
        raise OffbeatError(f"--world {name}: {Path(name).stem} is a world of the benchmark: rename the file")
    path = Path(name) if name.endswith(".toml") else FOLDER / "worlds" / f"{name}.toml"
    table = read_table(path)
    own = {"benchmark": table.pop("benchmark", {})}
    with error_prefix(path, own):
        benchmark = _Tables.model_validate(own).benchmark
    try:
        seconds, target = float(table["stop"]["virtual_seconds"]), float(table["evaluate"]["target"])
        if not (math.isfinite(seconds) and math.isfinite(target)):
            raise ValueError
    except (LookupError, TypeError, ValueError):
        raise OffbeatError(f"{path}: needs the numbers stop.virtual_seconds and evaluate.target") from None
    # Keys that ``experiment`` replaces.
    replaced = [key for key in ("algorithms", "seeds") if key in table]
    replaced += [f"stop.{key}" for key in table["stop"] if key != "virtual_seconds"]
    if replaced:
        raise OffbeatError(f"{path}: {replaced[0]}: the benchmark sets it: leave it out of a world")
    without = [label for label in labels() if label not in benchmark.only] if benchmark.only else benchmark.without
    settings: dict[str, Point] = {}
    if benchmark.settings_of is not None:
        facts = json.loads(_published()[benchmark.settings_of].read_text(encoding="utf-8"))
        settings = {label: fact["settings"] for label, fact in facts.items()}
    world = World(
        path,
        benchmark.question,
        seconds,
        target,
        table,
        without,
        benchmark.space,
        benchmark.seeds,
        benchmark.trials,
        benchmark.settings_of,
        settings,
    )
    experiment = world.experiment({"fedavg": {"cohort": 1}}, [0], 1.0, {})  # so that a mistake is found before the runs
    if "accuracy" not in map(metric_name, experiment.metrics):
        raise OffbeatError(f"{path}: evaluate.metrics: needs accuracy, by which algorithms are compared")
    return world


def _published() -> dict[str, Path]:
    """Return the files of facts of the published worlds, by name."""
    return {file.stem: file for file in sorted(PUBLISHED.glob("*.json"))}


def labels() -> list[str]:
    """Return the labels of the benchmark's own algorithms."""
    return list(read_table(FOLDER / "algorithms.toml")["algorithms"])
