"""The simulation of a service's queues, beside formulas."""

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def queueing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)  # as for a script that is run
    specification = importlib.util.spec_from_file_location("benchmark_of_queues", FOLDER / "queueing.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, specification.name, module)
    specification.loader.exec_module(module)
    random.seed(1)
    return module


@pytest.fixture
def queues(queueing: Any) -> ModuleType:
    return importlib.import_module("queue_world")


def test_one_queue_waits_as_long_as_the_formula_says(queues: Any) -> None:
    clock = queues.Clock()
    process = queues.Machine(clock, 1).process("one")
    times: list[float] = []

    def arrive() -> None:
        began = clock.now
        process.work(0.8, lambda: times.append(clock.now - began))
        clock.at(random.expovariate(1.0), arrive)

    clock.at(0.0, arrive)
    clock.run(40_000.0)
    # M/D/1 with utilisation 0.8: a job waits 0.8 · 0.8 / (2 · 0.2) on average.
    assert sum(times) / len(times) == pytest.approx(0.8 + 1.6, rel=0.1)
    assert process.busy / clock.now == pytest.approx(0.8, rel=0.05)


def test_processes_share_processors_and_do_one_job_at_a_time(queues: Any) -> None:
    clock = queues.Clock()
    machine = queues.Machine(clock, 2)
    ends: list[tuple[str, float]] = []
    for name in ("a", "b", "c"):
        process = machine.process(name)
        for _ in range(2):
            process.work(1.0, lambda name=name: ends.append((name, clock.now)))
    clock.run(10.0)
    assert [when for _, when in ends] == [
        1,
        1,
        2,
        2,
        3,
        4,
    ]  # the third process comes last
    assert [name for name, _ in ends] == list("ababcc")


def test_rows_that_wait_share_a_commit(queues: Any) -> None:
    clock = queues.Clock()
    costs = queues.Costs(commit=1.0, sync=1.0)
    process = queues.Machine(clock, 1).process("log")
    log = queues.LogWriter(clock, process, costs)
    ends: list[float] = []
    for _ in range(11):
        log.enter(0.1, lambda: ends.append(clock.now))
    clock.run(100.0)
    assert ends == pytest.approx([2.1, *[2.1 + 1 + 10 * 0.1 + 1] * 10])
    assert process.busy == pytest.approx(1.1 + 2.0)


@pytest.mark.parametrize("setup", ["one process", "7 fronts on its machine", "8 machines of 7 fronts"])
@pytest.mark.parametrize("size", [0.0314, 1, 40])
def test_the_first_queue_that_is_full_limits_the_service(setup: str, size: float, queueing: Any) -> None:
    costs = queueing.Costs()
    given = {**queueing.SETUPS[setup], "k": 20}
    service = queueing.Service(clients=1000, size=size, check_in_every=1000.0, **given)
    first, times = queueing.capacity(service, costs)
    waits: list[float] = []
    for load in (0.5, 0.9):
        world = queueing.World(service.times(load * times), costs)
        used = world.used(world.run(6000))
        assert used[first] == pytest.approx(load, rel=0.1)
        expected = queueing.predicted(service.times(load * times), costs)
        assert {name: used[name] for name in expected} == pytest.approx(expected, rel=0.15, abs=0.02)
        waits.append(sum(world.answered) / len(world.answered))
    assert waits[1] > waits[0]
    world = queueing.World(service.times(2 * times), costs)
    seconds = world.run(6000)
    assert world.used(seconds)[first] == pytest.approx(1, abs=0.05)
    assert len(world.answered) / seconds < 1.05 * service.visits * times
