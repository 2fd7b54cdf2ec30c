"""The registry of algorithms by name, of this package and of others."""

import pkgutil
import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from offbeat.algorithms.components.algorithm import Algorithm

ENTRY_POINTS = "offbeat.algorithms"


class Registry(Mapping[str, type[Algorithm[Any]]]):
    """Algorithms by name: built-in ones and those of other packages.

    The built-in algorithms are the package's modules. Other packages name theirs in the entry point group
    ``offbeat.algorithms``; they are loaded when the registry is first read. A name that is already taken is ignored,
    and one that cannot be loaded gives a warning.
    """

    def __init__(self, package: ModuleType) -> None:
        self._package = package

    def __getitem__(self, name: str) -> type[Algorithm[Any]]:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @cached_property
    def _found(self) -> dict[str, type[Algorithm[Any]]]:
        found: dict[str, type[Algorithm[Any]]] = {}
        for module in pkgutil.iter_modules(self._package.__path__, f"{self._package.__name__}."):
            if not module.ispkg:
                found |= {kind.name: kind for kind in _defined_in(import_module(module.name))}
        for entry in entry_points(group=ENTRY_POINTS):
            if entry.name not in found and (kind := _loaded(entry)):
                found[entry.name] = kind
        return found


def _defined_in(module: ModuleType) -> list[type[Algorithm[Any]]]:
    kinds = (value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Algorithm))
    return [kind for kind in kinds if kind.__module__ == module.__name__]


def _loaded(entry: EntryPoint) -> type[Algorithm[Any]] | None:
    try:
        kind = entry.load()
        if issubclass(kind, Algorithm) and kind.name == entry.name:
            return kind
        problem: object = f"it is not an Algorithm whose name is {entry.name!r}"
    except Exception as error:  # another package may raise anything
        problem = error
    warnings.warn(f"the algorithm {entry.name!r} of {entry.value} cannot be loaded: {problem}", stacklevel=2)
    return None
