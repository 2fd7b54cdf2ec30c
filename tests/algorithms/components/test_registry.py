"""The registry of algorithms: the modules of the package, and other packages' entry points."""

import importlib
import pkgutil
import sys
import textwrap

import pytest

import offbeat.algorithms
from offbeat.algorithms import ALGORITHMS, Algorithm, FedBuff
from offbeat.algorithms.components.registry import ENTRY_POINTS, Registry

OWN = """
from torch import Tensor

from offbeat.algorithms.components import Algorithm, ClosedBuffer, Continuous, Count, Sum


class FedMine(Algorithm):
    name = "fedmine"
    places: Count = 3

    def compose(self) -> None:
        self.schedule = Continuous(self.places)
        self.buffer = Sum()

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        return model - closed.total()
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that puts a distribution with these entry points onto the path."""
    imported = set(sys.modules)

    def write(package, text, **entries):
        (tmp_path / f"{package}.py").write_text(textwrap.dedent(text))
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"[{ENTRY_POINTS}]", *(f"{name} = {value}" for name, value in entries.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        importlib.invalidate_caches()
        return tmp_path

    monkeypatch.syspath_prepend(str(tmp_path))
    yield write
    for name in set(sys.modules) - imported:
        if name.startswith("mine"):
            del sys.modules[name]


def test_every_module_of_the_package_is_an_algorithm_and_nothing_else_is():
    modules = {module.name for module in pkgutil.iter_modules(offbeat.algorithms.__path__) if not module.ispkg}
    helpers = {"fedluck_choice"}
    built_in = {name for name, kind in ALGORITHMS.items() if kind.__module__.startswith("offbeat.")}
    assert built_in == modules - helpers
    for name in built_in:
        assert ALGORITHMS[name].name == name
        assert ALGORITHMS[name].__module__ == f"offbeat.algorithms.{name}"
        assert issubclass(ALGORITHMS[name], Algorithm)


def test_the_algorithm_of_another_package_is_found_and_runs(install):
    install("mine", OWN, fedmine="mine:FedMine")
    found = Registry(offbeat.algorithms)
    assert set(found) == set(ALGORITHMS) | {"fedmine"}
    assert found["fedmine"].__module__ == "mine"
    assert found["fedmine"](places=2).places == 2
    with pytest.raises(ValueError, match="places must be a whole number of at least 1, got 0"):
        found["fedmine"](places=0)


def test_other_packages_are_loaded_when_the_registry_is_first_read(install):
    """So another package may import this one while it is loaded itself."""
    install("mine", OWN, fedmine="mine:FedMine")
    found = Registry(offbeat.algorithms)
    assert "mine" not in sys.modules
    assert "fedmine" in found
    assert "mine" in sys.modules


def test_a_built_in_algorithm_keeps_its_name(install):
    install("mine", OWN, fedbuff="mine:FedMine")
    assert Registry(offbeat.algorithms)["fedbuff"] is FedBuff
    assert "mine" not in sys.modules


@pytest.mark.parametrize(
    ("text", "value", "why"),
    [
        ("raise RuntimeError('out of order')", "mine:FedMine", "out of order"),
        ("x = 1", "mine:FedMine", "FedMine"),
        ("x = 1", "mine_too:FedMine", "mine_too"),
    ],
)
def test_an_algorithm_that_cannot_be_loaded_is_a_warning(text, value, why, install):
    install("mine", text, broken=value)
    with pytest.warns(UserWarning, match=f"the algorithm 'broken' of {value} cannot be loaded: .*{why}"):
        found = set(Registry(offbeat.algorithms))
    assert found == set(ALGORITHMS)
