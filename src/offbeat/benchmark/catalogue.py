"""The benchmark's worlds, algorithms and search spaces, from the package's files."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offbeat.config.algorithm_table import as_inline_toml, build_algorithm, default_hyper_parameters
from offbeat.config.experiment_file import Experiment, experiment_of
from offbeat.config.import_path import canonical, is_import_path
from offbeat.errors import OffbeatError, did_you_mean
from offbeat.sweeps.over import Choices, Over, parse_over
from offbeat.sweeps.search_space import Space, search_spaces
from offbeat.sweeps.trials import Point
from offbeat_client.tables.toml_table import read_table

FOLDER = Path(__file__).parent
BASELINE = "fedavg"
TUNING_SEED = 0  # the seeds of the comparison begin after it

Table = dict[str, Any]


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
        settings: Settings by label that another world's tuning has chosen; these labels are not tuned again.
    """

    path: Path
    question: str
    seconds: float
    target: float
    table: Table
    without: Sequence[str]
    space: Mapping[str, str]
    settings: Mapping[str, Point] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the world's file."""
        return self.path.stem

    def experiment(
        self, algorithms: Table, seeds: Sequence[int], share: float, server: Mapping[str, Any]
    ) -> Experiment:
        """Return an experiment of a share of the length; ``server`` adds to its section."""
        stop = {"virtual_seconds": self.seconds * share}
        servers = {"server": {**self.table.get("server", {}), **server}} if server else {}
        changes = {"name": self.name, "seeds": list(seeds), "stop": stop, "algorithms": algorithms, **servers}
        return experiment_of({**self.table, **changes}, self.path)


@dataclass(frozen=True)
class Entry:
    """An algorithm of the benchmark in a world, before it is tuned.

    Attributes:
        label: Its name in tables.
        table: Its settings, as in ``[algorithms.LABEL]``.
        server: Keys of ``[server]`` that it needs.
        space: What tuning changes.
        texts: The search space in words, by key.
    """

    label: str
    table: Table
    server: Table
    space: Space
    texts: Mapping[str, str]


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
    benchmark: Table = table.pop("benchmark", {})
    try:
        seconds, target = float(table["stop"]["virtual_seconds"]), float(table["evaluate"]["target"])
        if not (math.isfinite(seconds) and math.isfinite(target)):
            raise ValueError
    except (LookupError, TypeError, ValueError):
        raise OffbeatError(f"{path}: needs the numbers stop.virtual_seconds and evaluate.target") from None
    without = benchmark.get("without", ())
    if only := benchmark.get("only"):
        without = [label for label in labels() if label not in only]
    return World(
        path, benchmark.get("question", ""), seconds, target, table, without, benchmark.get("space", {}),
        _settings_of(path, benchmark.get("settings_of")),
    )  # fmt: skip


def _settings_of(path: Path, world: str | None) -> dict[str, Point]:
    """Return the published settings of a world, by label."""
    if world is None:
        return {}
    results = {file.stem: file for file in (FOLDER / "results").glob("*.json")}
    if world not in results:
        raise OffbeatError(f"{path}: benchmark.settings_of: {did_you_mean(world, results)}")
    facts = json.loads(results[world].read_text(encoding="utf-8"))
    return {label: fact["settings"] for label, fact in facts.items()}


def labels() -> list[str]:
    """Return the labels of the benchmark's own algorithms."""
    return list(read_table(FOLDER / "algorithms.toml")["algorithms"])


def read_entries(world: World, names: Sequence[str], overs: Sequence[str]) -> list[Entry]:
    """Return the algorithms of these names in a world; all of its own without names.

    A name is a label of the benchmark or the import path of a class. ``overs`` are search spaces as ``KEY=VALUES``,
    for the latter.
    """
    file = read_table(FOLDER / "algorithms.toml")
    known: dict[str, Table] = file["algorithms"]
    if overs and not any(map(is_import_path, names)):
        raise OffbeatError(f"--over {overs[0]}: is for an algorithm of your own: name it as FILE:CLASS")
    entries: list[Entry] = []
    for name in dict.fromkeys(names or known):
        if is_import_path(name):
            path = canonical(name, Path.cwd())
            label, table, own = name.rpartition(":")[2], {"algorithm": path}, list(overs)
            if label in known or label in [entry.label for entry in entries]:
                raise OffbeatError(f"{name}: {label} is already an algorithm of the benchmark: rename the class")
        elif name in known:
            label, table, own = name, dict(known[name]), []
        else:
            raise OffbeatError(f"{name}: {did_you_mean(name, known)}; an algorithm of your own is my_file.py:Class")
        if label not in world.without:
            entries.append(_entry(world, label, table, file["space"], own))
    return entries


def _entry(world: World, label: str, table: Table, common: Mapping[str, str], overs: Sequence[str]) -> Entry:
    own, server = table.pop("space", {}), table.pop("server", {})
    table = {key: world.table["population"]["clients"] if value == "all" else value for key, value in table.items()}
    if label in world.settings:
        point = world.settings[label]
        fixed: Space = {key: Choices((value,)) for key, value in point.items()}
        return Entry(label, table, server, fixed, {key: as_inline_toml(value) for key, value in point.items()})
    algorithm = build_algorithm(table.get("algorithm", label), {})
    parameters = ["local", *default_hyper_parameters(type(algorithm))]
    texts: dict[str, Any] = {key: text for key, text in common.items() if key.partition(".")[0] in parameters}
    texts |= own
    texts |= {key: text for key, text in world.space.items() if texts.get(key)}
    given = [parse_over(text) for text in overs]
    texts |= {over.key: over.text.partition("=")[2] for over in given}
    texts = {key: text for key, text in texts.items() if text}
    found = [_over(label, key, text) for key, text in texts.items()]
    spaces = search_spaces({**world.table, "algorithms": {label: table}}, found, [label], world.path)
    return Entry(label, table, server, spaces[label], texts)


def _over(label: str, key: str, text: str) -> Over:
    return parse_over(f"algorithms.{label}.{key}={text}")
