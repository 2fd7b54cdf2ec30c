"""Settings of several runs: the world that they share, and their differences."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any, cast

from offbeat import units
from offbeat.runs.directory import Run

_MOST_KEYS = 5  # that a headline names
_WHEN_EVALUATED = ("every_seconds", "every_versions")
_WRITE_ENDS: Mapping[str, Callable[[Any], str]] = {
    "virtual_seconds": lambda seconds: f"{units.duration(seconds)} of virtual time",
    "versions": "{:,g} versions".format,
    "updates": "{:,g} updates".format,
    "target": "a target of {:g}".format,
    "patience": "{:,g} evaluations without a better one".format,
}
_WORLD = ("data", "model", "population", "server", "stop")  # sections that runs share to be comparable


def by_label(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Return the runs of each label, labels and runs in the order in which they come."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(run)
    return groups


def world_of(runs: Sequence[Run]) -> str:
    """Return one line on the runs' data, model, clients, end and seeds.

    If their settings differ, it names the keys (see ``settings_differences``) and describes each world.
    """
    worlds: dict[str, list[Run]] = {}
    for run in runs:
        worlds.setdefault(json.dumps(_world(run), sort_keys=True, default=str), []).append(run)
    keys = settings_differences(runs)
    if not keys:
        return _describe(runs)
    named = ", ".join(keys[:_MOST_KEYS]) + (f" and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else "")
    described = list(dict.fromkeys(_describe(group) for group in worlds.values()))
    if len(described) > 1:
        described = [f"{', '.join(by_label(group))}: {_describe(group)}" for group in worlds.values()]
    else:
        described = [_describe(runs)]
    return f"The settings differ in {named}. {'; '.join(described)}"


def setting_of(run: Run) -> str:
    """Return one line on a run's data, model, clients and end."""
    config = run.config
    ends = [_WRITE_ENDS[key](value) for key, value in config["stop"].items() if key in _WRITE_ENDS]
    # An import path such as /some/folder/my.py:load is shown without its folders.
    data, model = (config[section]["name"].rpartition("/")[2] for section in ("data", "model"))
    return f"{data}, {model}, {config['population']['clients']:,} clients, up to {' or '.join(ends)}"


def settings_differences(runs: Sequence[Run]) -> list[str]:
    """Return the shared settings, as ``section.key``, in which runs differ.

    Shared are the settings of the world, the times of evaluations, and ``local``. An algorithm may have ``local``
    settings of its own, so these are compared between experiments only: for the algorithms in both or, without common
    algorithms, where all values of one experiment differ from all of the other.
    """
    shared = [
        _world(run) | {"evaluate": {key: _section(run, "evaluate").get(key) for key in _WHEN_EVALUATED}} for run in runs
    ]
    return differences(shared) + _local_differences(runs)


def algorithm_of(run: Run) -> str:
    """Return the name, or the import path, of a run's algorithm."""
    # The configuration keeps the original label where a report has added the experiment's name.
    (label, table), *_ = run.config["algorithms"].items()
    return str(table.get("algorithm", label))


def experiment_of(run: Run) -> Path:
    """Return the folder of the experiment that a run belongs to."""
    return run.path.resolve().parent


def same_world(run: Run, other: Run) -> bool:
    """Return whether two runs have the same data, model, clients, server and end."""
    return not differences([_world(run), _world(other)])


def differences(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys, as ``section.key``, at which tables differ."""
    found = [flat(table) for table in tables]
    keys = dict.fromkeys(key for one in found for key in one)
    return [key for key in keys if any(key not in one or one[key] != found[0].get(key) for one in found)]


def flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a table and of those in it, by ``section.key``."""
    return dict(_flat(table))


def _flat(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{below}", leaf) for below, leaf in _flat(value))
        else:
            yield key, value


def _world(run: Run) -> dict[str, Any]:
    return {section: run.config[section] for section in _WORLD if section in run.config}


def _section(run: Run, name: str) -> Mapping[str, Any]:
    section: object = run.config.get(name)
    return cast("Mapping[str, Any]", section) if isinstance(section, Mapping) else {}


def _local_differences(runs: Sequence[Run]) -> list[str]:
    """Return the keys of ``local`` that differ; see ``settings_differences``."""
    experiments: dict[Path, dict[str, Mapping[str, Any]]] = {}
    for run in runs:
        (name, *_) = run.config["algorithms"]
        experiments.setdefault(experiment_of(run), {})[name] = {"local": _section(run, "local")}
    found: set[str] = set()
    for one, other in combinations(experiments.values(), 2):
        both = one.keys() & other.keys()
        if both:
            found.update(*(differences([one[name], other[name]]) for name in both))
        else:
            found |= set[str].intersection(*(set(differences(pair)) for pair in product(one.values(), other.values())))
    every = [local for experiment in experiments.values() for local in experiment.values()]
    return [key for key in differences(every) if key in found]


def _describe(runs: Sequence[Run]) -> str:
    seeds = sorted({run.seed for run in runs})
    return f"{setting_of(runs[0])}, {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
