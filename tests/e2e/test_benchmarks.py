"""The simulator's benchmark runs; how fast it is, nobody asks here."""

import importlib.util
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "simulation.py"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    specification = importlib.util.spec_from_file_location("benchmark_of_simulation", FILE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, specification.name, module)
    monkeypatch.syspath_prepend(FILE.parent)  # as for a script that is run
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["W1", "W2"])
def test_each_algorithm_and_each_trainer_can_be_measured(name: str, benchmark: Any) -> None:
    workload = replace(benchmark.WORKLOADS[name], cohort=2, looped=1, simulated=1)
    with ProcessPoolExecutor(1) as pool:
        rows = benchmark.rows_of(workload, pool, quick=True)
    simulations = {row: work for row, work in rows.items() if row[0] != "-"}
    assert {algorithm for algorithm, *_ in simulations} == {"fedavg", "fedbuff", "fedasync"}
    by_trainer = {trainer: work for (*_, trainer), work in simulations.items()}
    by_algorithm = {algorithm: work for (algorithm, _, trainer), work in simulations.items() if "loop" in trainer}
    if name == "W2":  # starting processes is the same for both
        del by_trainer["offbeat-processes"]
    assert all(work() > 0 for work in {*by_trainer.values(), *by_algorithm.values()})
