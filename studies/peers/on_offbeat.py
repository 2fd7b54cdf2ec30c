"""Updates per second of Offbeat, beside which the others are measured.

It is that of ``benchmarks/simulation.py`` with uniform durations and the trainer that suits the workload.
"""

from collections.abc import Callable
from functools import partial

from simulation import WORKLOADS, algorithms_of, simulation, trainer_named
from workloads import Workload

PACKAGE = "offbeat"


def rows(workload: Workload) -> dict[tuple[str, str, str], Callable[[], float]]:
    """Return what is measured."""
    simulated = WORKLOADS[workload.name]

    def measured(algorithm: str) -> float:
        make = algorithms_of(simulated)[algorithm]
        return simulation(simulated, make(), "uniform", trainer_named(simulated.suits, simulated))

    return {(name, "uniform", f", {simulated.suits}"): partial(measured, name) for name in algorithms_of(simulated)}
