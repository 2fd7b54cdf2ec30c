import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from offbeat.algorithms import FedBuff, LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.population.availability import Always, Intervals
from offbeat.population.devices.bandwidth_traces import Trace
from offbeat.population.devices.client_devices import ConstantLink, Devices, TraceLink
from offbeat.simulation.simulator import Simulation
from offbeat.simulation.totals import Stop
from offbeat.tensor_file import read_checkpoint, write_checkpoint
from offbeat.training.trainers.backend import Result, result_vector

# When four clients are online.
TIMES = [[(0, 4.5), (6, 30)], [(0, 2), (2.25, 5), (7, 9), (11, 30)], [(1, 12), (14, 18)], [(0, 30)]]


class FakeTrainer:
    """A trainer without a backend."""

    name = kernel = "fake"
    batch_limit = 1
    keeps_states = False
    notes = ()

    def submit(self, job):
        pass

    def cancel(self, job):
        pass

    def close(self):
        pass


class QuadraticTrainer(FakeTrainer):
    """Client i's loss is (w − target_i)²/2, one exact gradient step a local step.

    Jobs for which ``diverges`` returns True give NaN.
    """

    def __init__(self, targets, batch_limit=1, diverges=lambda job: False):
        self.targets = targets
        self.batch_limit = batch_limit
        self.diverges = diverges
        self.batches = []
        self.workload = SimpleNamespace(examples=lambda client: client + 1)

    @property
    def trained(self):
        return [job for batch in self.batches for job in batch]

    def collect(self, jobs):
        self.batches.append([(job.client, job.visit) for job in jobs])
        results = []
        for job in jobs:
            end = job.start.clone()
            rates = job.plan.lr if isinstance(job.plan.lr, tuple) else (job.plan.lr,) * job.plan.steps
            offset = 0 if job.offset is None else job.offset
            for rate in rates:
                end = end - rate * (end - self.targets[job.client] + offset)
            if self.diverges(job):
                end.fill_(math.nan)
            results.append(Result(result_vector(job.payload, job.start, end), 0.0))
        return results


class RecordingTrainer(FakeTrainer):
    """Records the clients of each batch; an update is the client's number in both entries, unless told otherwise."""

    def __init__(self, batch_limit=1, outcome=None):
        self.batch_limit = batch_limit
        self.outcome = outcome or (lambda job: Result(torch.full((2,), float(job.client)), 0.0))
        self.batches = []
        self.jobs = []

    def collect(self, jobs):
        self.batches.append([job.client for job in jobs])
        self.jobs.extend(jobs)
        return [self.outcome(job) for job in jobs]


def local_plan(steps=1, lr=0.5, **more):
    return LocalPlan(steps=steps, batch_size=1, lr=lr, **more)


def one_by_one(concurrency=1, **more):
    """An algorithm that makes a version of each update."""
    return FedBuff(buffer_size=1, concurrency=concurrency, **more)


def run(simulation):
    """Run a simulation to its end, and return its evaluations."""
    return list(simulation.run())


def ended(simulation, *columns):
    """Run a simulation to its end, and return columns of the visits that have ended."""
    run(simulation)
    return visits_of(simulation, *columns)


def visits_of(simulation, *columns):
    if len(columns) == 1:
        return [getattr(visit, columns[0]) for visit in simulation.ended]
    return [tuple(getattr(visit, column) for column in columns) for visit in simulation.ended]


def resume(fresh, simulation, path):
    """Let a fresh simulation resume from a checkpoint of another; return it."""
    write_checkpoint(path / "checkpoint", simulation.state_dict())
    fresh.load_state_dict(read_checkpoint(path / "checkpoint"))
    return fresh


def times_of(comings):
    """Intervals in which a client is online, from pairs of seconds offline and online."""
    times, now = [], -1
    for away, stay in comings:
        times.append((now + away, now + away + stay))
        now += away + stay
    return times


def as_link(speed, clients):
    """A link as it is, or one of constant bytes per second: one number for all clients, or one a client."""
    return speed if hasattr(speed, "transfer_end") else ConstantLink(np.broadcast_to(np.array(speed, float), clients))


@pytest.fixture(scope="session")
def intervals() -> Callable[..., Intervals]:
    """Builds an availability from a list of (start, end) for each client."""

    def build(*of_clients) -> Intervals:
        rows = [(client, *interval) for client, times in enumerate(of_clients) for interval in times]
        client, start, end = zip(*rows, strict=True)
        return Intervals(len(of_clients), np.array(client), np.array(start, float), np.array(end, float))

    return build


@pytest.fixture(scope="session")
def trace_link() -> Callable[..., TraceLink]:
    """Builds a link on which each client follows its own trace, given as (seconds, bytes per second) of each piece."""

    def build(*of_clients) -> TraceLink:
        traces = []
        for pieces in of_clients:
            lengths, rates = np.array(pieces, float).T
            traces.append(Trace("", np.append(0.0, np.cumsum(lengths)), rates))
        return TraceLink(traces, np.arange(len(traces)), np.zeros(len(traces)))

    return build


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Simulation]:
    """Builds a small world; by default four clients, client i taking i + 1 seconds a step, and free transfers.

    By default each update makes a version, one client is at work at a time, and evaluations are at the start and end.
    """

    def build(
        algorithm=None,
        *,
        step_seconds=(1.0, 2.0, 3.0, 4.0),
        loss_probability=None,
        down=1e300,
        up=1e300,
        availability=None,
        when_away="pause",
        stop=None,
        every=math.inf,
        every_versions=math.inf,
        trainer=None,
        plan=None,
        record=None,
        seed=1,
        length=2,
        model=None,
        clients=None,
        early_stop=None,
        **server,
    ) -> Simulation:
        number = len(step_seconds)
        coordinator = Coordinator(
            algorithm or one_by_one(),
            torch.zeros(length) if model is None else model,
            clients=number,
            local=plan or local_plan(),
            seed=seed,
            record=record,
            **server,
        )
        devices = Devices(
            step_seconds=np.array(step_seconds),
            down=as_link(down, number),
            up=as_link(up, number),
            loss_probability=np.zeros(number) if loss_probability is None else np.array(loss_probability),
            availability=availability or Always(),
            when_away=when_away,
        )
        targets = torch.arange(number, dtype=torch.float32)[:, None] + torch.tensor([0.0, 10.0])[:length]
        return Simulation(
            coordinator,
            devices,
            trainer or QuadraticTrainer(targets),
            evaluate=lambda model: (float(model.square().sum()), {"accuracy": float(model[0])}),
            evaluate_every_seconds=every,
            evaluate_every_versions=every_versions,
            stop=stop or Stop(virtual_seconds=20.0),
            seed=seed,
            clients=clients,
            early_stop=early_stop,
        )

    return build
