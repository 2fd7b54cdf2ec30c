"""The benchmark's algorithms and search spaces, from the package's files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError, did_you_mean
from offbeat_core.files import read_table

from offbeat.config.algorithm_table import as_inline_toml, build_algorithm, default_hyper_parameters
from offbeat.config.import_path import canonical, is_import_path
from offbeat.sweeps.search_space import Choices, Over, Space, parse_over, search_spaces
from offbeat_studies.benchmark.world import FOLDER, Table, World

BASELINE = "fedavg"
TUNING_SEED = 0  # the seeds of the comparison begin after it


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
    if label in world.settings:
        point = world.settings[label]
        fixed: Space = {key: Choices((value,)) for key, value in point.items()}
        return Entry(label, table, server, fixed, {key: as_inline_toml(value) for key, value in point.items()})
    algorithm = build_algorithm(table.get("algorithm", label), {})
    parameters = ["local", *default_hyper_parameters(type(algorithm))]
    texts: dict[str, Any] = {key: text for key, text in common.items() if key.partition(".")[0] in parameters}
    texts |= own
    texts |= {key: text for key, text in world.space.items() if texts.get(key)}
    texts = {key: _with_number_of_clients(world, text) for key, text in texts.items() if text}
    texts |= {over.key: over.text.partition("=")[2] for over in map(parse_over, overs)}
    found = [_over(label, key, text) for key, text in texts.items()]
    spaces = search_spaces({**world.table, "algorithms": {label: table}}, found, [label], world.path)
    return Entry(label, table, server, spaces[label], texts)


def _with_number_of_clients(world: World, text: str) -> str:
    """Put the number of clients in the place of ``all``."""
    values = text.split(",")
    if "all" not in values:  # among them texts whose values have commas of their own
        return text
    clients = str(world.table["population"]["clients"])
    return ",".join(dict.fromkeys(clients if value == "all" else value for value in values))


def _over(label: str, key: str, text: str) -> Over:
    return parse_over(f"algorithms.{label}.{key}={text}")
