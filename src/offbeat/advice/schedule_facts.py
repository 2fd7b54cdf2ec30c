"""Facts about an algorithm's schedule: versions, staleness, waiting, bytes."""

from contextlib import closing
from dataclasses import dataclass

import numpy as np
from offbeat_core.errors import OffbeatError

from offbeat.algorithms.components import WrongStepError
from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import StopSection
from offbeat.data.dataset import Dataset
from offbeat.process_memory import rare_garbage_collection
from offbeat.report.summary import counted_staleness, never_counted
from offbeat.runs.parquet_chunks import Columns
from offbeat.simulation.simulator import Simulation
from offbeat.simulation.totals import VisitEnded
from offbeat.worlds.schedule import ScheduleWorld
from offbeat.worlds.simulation import build_simulation

MOST_VISITS = 3_000  # of an algorithm; a longer run is cut, so that advice takes seconds


@dataclass(frozen=True)
class ScheduleFacts:
    """A summary of a run without its training.

    Attributes:
        label: The algorithm's label.
        problem: Why it cannot run here; empty if it can. Then all numbers are 0.
        seconds: The virtual time that was simulated.
        scale: 1 if that is the whole run; else how many times as long the run will take.
        is_whole: Whether that is the whole run; otherwise it was cut after ``MOST_VISITS`` visits.
        versions: Versions made.
        counted: Updates that counted; ``unused`` and ``lost`` are the others.
        mean_staleness: Of counted updates, in versions; None without any.
        max_staleness: The largest.
        waiting_share: Of the time in which clients are available or work, how much they wait; None without any.
        bytes_moved: To and from clients.
        clients: The number of clients.
        never_counted: Clients without an update that counted.
    """

    label: str
    problem: str = ""
    seconds: float = 0.0
    scale: float = 1.0
    is_whole: bool = True
    versions: int = 0
    counted: int = 0
    unused: int = 0
    lost: int = 0
    mean_staleness: float | None = None
    max_staleness: int | None = None
    waiting_share: float | None = None
    bytes_moved: int = 0
    clients: int = 0
    never_counted: int = 0

    def at_end(self, number: int) -> int:
        """Return how high a number will probably be at the end of the whole run."""
        return round(number * self.scale)


@rare_garbage_collection()
def schedule_facts(
    experiment: Experiment, label: str, dataset: Dataset, most_visits: int = MOST_VISITS
) -> ScheduleFacts:
    """Return the facts of ``[algorithms.LABEL]`` with the first seed."""
    try:
        with closing(build_simulation(experiment, label, experiment.seeds[0], dataset, kind=ScheduleWorld)) as made:
            while not made.finished and len(made.ended) < most_visits:
                made.step()
            return _facts(label, made, experiment.stop)
    except (OffbeatError, WrongStepError) as error:
        return ScheduleFacts(label, problem=str(error).removeprefix(f"algorithms.{label}: "))


def _facts(label: str, simulation: Simulation, stop: StopSection) -> ScheduleFacts:
    visits, clients = simulation.ended, simulation.coordinator.clients
    events = _columns(visits)
    stale = counted_staleness(events)
    outcomes = [visit.outcome for visit in visits]
    down, up = simulation.bytes_moved
    return ScheduleFacts(
        label,
        seconds=simulation.now,
        scale=1.0 if simulation.finished else _scale(simulation, stop),
        is_whole=simulation.finished,
        versions=simulation.coordinator.algorithm.version,
        counted=outcomes.count("counted"),
        unused=outcomes.count("unused"),
        lost=outcomes.count("lost"),
        mean_staleness=float(stale.mean()) if len(stale) else None,
        max_staleness=int(stale.max()) if len(stale) else None,
        waiting_share=simulation.client_time.waiting_share,
        bytes_moved=down + up,
        clients=clients,
        never_counted=never_counted(events, clients),
    )


def _scale(simulation: Simulation, stop: StopSection) -> float:
    """Return how many times as long the run will take until the first of its limits."""
    algorithm, statistics = simulation.coordinator.algorithm, simulation.coordinator.statistics
    done = (simulation.now, algorithm.version, statistics.counted)
    limits = (stop.virtual_seconds, stop.versions, stop.updates)
    progress = max(part / limit for part, limit in zip(done, limits, strict=True) if limit is not None)
    return 1 / progress if progress > 0 else 1.0


def _columns(visits: list[VisitEnded]) -> Columns:
    """Return the columns of a run's events that the facts need."""
    stale = [np.nan if visit.staleness is None else visit.staleness for visit in visits]
    return {
        "client": np.array([visit.client for visit in visits], np.int64),
        "staleness": np.array(stale, np.float64),
        "outcome": np.array([visit.outcome for visit in visits], object),
    }
