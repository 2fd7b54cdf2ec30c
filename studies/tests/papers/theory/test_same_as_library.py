"""``offbeat theory measure`` measures what the library's algorithms do.

Each algorithm is played twice on quadratics with the same schedule and the same noise: by the check, and by its class,
driven by hand.
"""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from offbeat.algorithms import Algorithm, AsyncCommSGD, FedBuff, FedFa, FedLaAvg, FedLuck, LocalPlan, Update
from offbeat.algorithms.components.schedules import patterns as p
from offbeat.algorithms.components.weights import constant, inverse_square_root
from offbeat.compression import top_k
from offbeat.coordinator.selection import LongestAbsentPool
from offbeat_studies.papers.theory.async_comm_sgd import run_async_comm_sgd
from offbeat_studies.papers.theory.fedbuff import fedbuff_models
from offbeat_studies.papers.theory.fedfa import fedfa_models
from offbeat_studies.papers.theory.fedlaavg import run_fedlaavg
from offbeat_studies.papers.theory.fedluck import run_fedluck
from offbeat_studies.papers.theory.problems import Quadratics

CENTRES = np.array([[1.0, 0.0, 2.0, -1.0], [0.0, 2.0, -1.0, 1.0], [-4.0, 1.0, 0.5, 3.0]])
START = np.array([3.0, -1.0, 0.5, 2.0])
CLOSE = {"rel": 1e-5, "abs": 1e-5}


@dataclass(frozen=True)
class Remembering(Quadratics):
    """Quadratics that remember the noise of each call of ``gradients``, ``(seeds, clients, d)`` each."""

    noise: list[np.ndarray] = field(default_factory=list)

    def gradients(self, clients, points, rng):
        drawn = super().gradients(clients, points, rng)
        self.noise.append(drawn - self.exact_gradients(clients, points))
        return drawn


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def noisy(clients):
    """Quadratics of N clients, the three centres again and again but farther apart each time."""
    centres = np.concatenate([(1 + again) * CENTRES for again in range(-(-clients // 3))])[:clients]
    return Remembering("noisy", np.array([0.2, 0.5, 0.8, 1.0]), centres, START, variance=0.5)


def begin(algorithm, problem):
    algorithm.start(torch.tensor(problem.start, dtype=torch.float32), problem.clients)
    return algorithm


def delta(problem: Quadratics, client: int, model: torch.Tensor, plan: LocalPlan, noise: list[np.ndarray]):
    """Return a client's change, start − end, given the noise of each step."""
    assert plan.steps == len(noise)
    rates = plan.lr if isinstance(plan.lr, tuple) else (plan.lr,) * plan.steps
    begun = local = model.double().numpy()
    for lr, drawn in zip(rates, noise, strict=True):
        local = local - lr * (problem.exact_gradients(np.array(client), local) + drawn)
    return torch.tensor(begun - local, dtype=torch.float32)


def update(client: int, version: int, vector: torch.Tensor, steps: int, since: int | None = None) -> Update:
    return Update(client, version, vector, examples=1, steps=steps, normaliser=steps, since=since)


def assert_same(models: list[torch.Tensor], checked: np.ndarray) -> None:
    """The library's models are the check's, ``(T, 1, d)``, and these move."""
    assert np.abs(np.diff(checked[:, 0], axis=0)).max() > 0.1
    assert torch.stack(models).numpy() == pytest.approx(checked[:, 0], **CLOSE)


@pytest.mark.parametrize("server_lr", [1.0, 4.0])
def test_fedbuff_is_what_the_check_measures(rng, server_lr):
    rounds, steps, size, stale, clients = 15, 3, 2, 2, 9
    # In turn, so that nobody is asked again before its update has come.
    chosen = np.arange(rounds * size).reshape(rounds, 1, size) * 2 % clients
    problem = noisy(clients)
    checked = fedbuff_models(problem, rng, chosen, steps=steps, lr=0.1, max_staleness=stale, server_lr=server_lr)

    fedbuff = FedBuff(buffer_size=size, staleness=constant(), concurrency=clients, server_lr=server_lr)
    algorithm: Algorithm = begin(fedbuff, problem)
    plan, models, started = LocalPlan(steps=steps, batch_size=1, lr=0.1), [], {}
    for t in range(rounds):
        assert algorithm.version == t
        models.append(algorithm.model)
        for later in [s for s in range(rounds) if max(0, s - stale) == t]:
            for client in chosen[later, 0].tolist():
                started[later, client] = t, algorithm.model, algorithm.assign(client, plan)
        for place, client in enumerate(chosen[t, 0].tolist()):
            version, model, given = started.pop((t, client))
            noise = [drawn[0, place] for drawn in problem.noise[t * steps : (t + 1) * steps]]
            algorithm.receive(update(client, version, delta(problem, client, model, given, noise), steps))
    assert_same(models, checked)


@pytest.mark.parametrize("variant", ["param", "delta"])
def test_fedfa_is_what_the_check_measures(rng, variant):
    arrivals, steps, window, stale, clients = 20, 3, 3, 2, 4
    chosen = np.arange(arrivals).reshape(arrivals, 1) % clients  # in turn: nobody is asked while at work
    problem = noisy(clients)
    checked = fedfa_models(problem, rng, chosen, variant, steps=steps, lr=0.1, window=window, max_staleness=stale)

    transmit = {"param": "params", "delta": "delta"}[variant]
    algorithm: Algorithm = begin(FedFa(window=window, transmit=transmit, concurrency=clients), problem)
    plan, models, started = LocalPlan(steps=steps, batch_size=1, lr=0.1), [], {}
    for t in range(arrivals):
        models.append(algorithm.model)
        for later in [s for s in range(arrivals) if max(0, s - stale) == t]:
            client = int(chosen[later, 0])
            started[later] = algorithm.version, algorithm.model, algorithm.assign(client, plan)
        version, model, given = started.pop(t)
        change = delta(
            problem, int(chosen[t, 0]), model, given, [drawn[0] for drawn in problem.noise[t * steps :][:steps]]
        )
        vector = change if variant == "delta" else model - change
        algorithm.receive(update(int(chosen[t, 0]), version, vector, steps))
    assert_same(models, checked)


def test_fedlaavg_is_what_the_check_measures(rng):
    rounds, clients = 20, 3
    available = rng.random((rounds, 1, clients)) < 0.5
    available[np.arange(rounds), 0, np.arange(rounds) % clients] = True  # a round with nobody is none of the library's
    assert {1, 2, 3} == set(available.sum(-1).ravel().tolist())
    problem = noisy(clients)
    checked = run_fedlaavg(problem, rng, available, cohort=2, lr=0.3).models

    algorithm: Algorithm = begin(FedLaAvg(cohort=2), problem)
    pool, plan, models = LongestAbsentPool(clients, 0), LocalPlan(steps=1, batch_size=1, lr=0.3), []
    latest, heard = {}, {}
    for r in range(rounds):
        assert algorithm.version == r
        models.append(model := algorithm.model)
        for client in range(clients):
            (pool.add if available[r, 0, client] else pool.discard)(client)
        chosen = [pool.pick() for _ in range(min(algorithm.slots(), len(pool)))]
        given = [algorithm.assign(client, plan) for client in chosen]
        for client, its in zip(chosen, given, strict=True):
            whole = delta(problem, client, model, its, [problem.noise[r][0, client]])
            change = whole - latest.get(client, torch.zeros_like(whole))
            algorithm.receive(update(client, r, change, 1, since=heard.get(client)))
            latest[client], heard[client] = whole, r
            pool.counted(Update(client, r, torch.zeros(1), examples=1, steps=1, normaliser=1.0))
        if algorithm.version == r:
            assert len(chosen) < 2
            algorithm.tick()
    assert_same(models, checked)


def test_async_comm_sgd_is_what_the_check_measures(rng):
    rounds, clients = 20, 3
    talks = rng.random((rounds, clients)) < 0.4
    problem, rates = noisy(clients), inverse_square_root(initial=0.3)
    checked = run_async_comm_sgd(problem, rng, 1, talks, rates).models

    pattern = p.own(
        lambda client, last, _: next((r for r in range(last + 1, rounds + 1) if talks[r - 1, client]), rounds + 1),
        longest_gap=rounds + 1,
    )
    algorithm: Algorithm = begin(AsyncCommSGD(pattern=pattern, step_sizes=rates), problem)
    plan, models, at_work = LocalPlan(steps=1, batch_size=1, lr=1.0), [], {}
    for t in range(rounds):
        models.append(algorithm.model)
        for client in range(clients):
            if client not in at_work:
                at_work[client] = t, algorithm.model, algorithm.assign(client, plan)
        for client in np.flatnonzero(talks[t]).tolist():
            since, model, given = at_work.pop(client)
            noise = [drawn[0, client] for drawn in problem.noise[since : t + 1]]
            algorithm.receive(update(client, since, delta(problem, client, model, given, noise), given.steps))
        algorithm.tick()
    assert_same(models, checked)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_fedluck_is_what_the_check_measures(rng, share):
    rounds, steps, periods = 15, 2, (1, 2, 3)
    problem = noisy(3)
    checked = run_fedluck(
        problem, rng, 1, periods, lr=0.4, steps=steps, compression=share, rounds=rounds, server_lr=0.7
    ).models

    algorithm: Algorithm = begin(FedLuck(server_lr=0.7, steps=(steps, steps), compression=(share, share)), problem)
    plan, models, at_work = LocalPlan(steps=steps, batch_size=1, lr=0.4), [], {}
    for t in range(rounds):
        models.append(algorithm.model)
        for client in range(3):
            if client not in at_work:
                at_work[client] = algorithm.version, algorithm.model, algorithm.assign(client, plan)
        arrived = [client for client in range(3) if (t + 1) % periods[client] == 0]
        drawn = [problem.noise.pop(0) for _ in range(steps)]
        for place, client in enumerate(arrived):
            version, model, given = at_work.pop(client)
            vector = delta(problem, client, model, given, [noise[0, place] for noise in drawn])
            if given.compression is not None:
                compressor = top_k(**dict(given.compression.parameters))
                vector = torch.from_numpy(compressor.unpack(compressor.pack(vector.numpy(), 0), len(vector)))
            algorithm.receive(update(client, version, vector, steps))
        algorithm.tick()
    assert problem.noise == []
    assert_same(models, checked)
