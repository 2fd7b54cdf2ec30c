import dataclasses
import heapq
import math

import numpy as np
import pytest
import torch

from offbeat.algorithms import FedCompass, LocalPlan
from offbeat.algorithms.components.weights import constant
from offbeat.coordinator import Coordinator
from tests.algorithms.case import Case

CASES = [
    Case(
        "fedcompass",
        lambda: FedCompass(steps=(1, 4), latest_factor=1.2),
        places=6,
        own_plan=True,
        arrival_groups=True,
    ),
]


class Run:
    """An algorithm and its clock."""

    def __init__(self, clients, plan, upload, **parameters):
        self.algorithm = FedCompass(weighting="uniform", **parameters)
        self.algorithm.start(torch.zeros(1), clients)
        self.plan, self.upload, self.versions = plan, upload, {}

    def begin(self, now, client):
        self.algorithm.now = now
        self.versions[client] = self.algorithm.version
        return self.algorithm.assign(client, self.plan).steps

    def arrive(self, now, client, value=0.0, steps=10):
        self.algorithm.now = now
        update = self.upload(client, self.versions[client], value)
        return self.algorithm.receive(update._replace(steps=steps))


@pytest.fixture
def measured(plan, upload):
    """Return a run at 100 s of three clients, of 1, 2 and 6 s a step; each of them made a version."""
    run = Run(3, plan, upload, steps=(5, 10), latest_factor=1.5, server_lr=3.0, staleness=constant())
    for client in range(3):
        assert run.begin(100 - (10, 20, 60)[client], client) == 10
    assert [run.arrive(100, client, 1.0) for client in range(3)] == [True, True, True]
    assert run.algorithm.model.item() == -3  # each of them 3 · ⅓
    return run


def test_a_late_update_before_the_tick_does_not_end_its_group(measured):
    run, algorithm = measured, measured.algorithm
    assert [run.begin(100, client) for client in range(2)] == [10, 5]
    assert run.arrive(109, 0, 2.0) is False
    assert run.arrive(116, 1, 4.0, 5) is False
    assert algorithm.tick() is True
    assert algorithm.model.item() == -9


def test_a_lost_member_is_not_waited_for(measured):
    run, algorithm = measured, measured.algorithm
    assert [run.begin(100, client) for client in range(2)] == [10, 5]
    assert run.arrive(109, 0, 2.0) is False
    algorithm.now = 110
    assert algorithm.drop(1, run.versions[1]) is True
    assert algorithm.model.item() == -5
    assert run.arrive(111, 1, 8.0, 5) is False  # it counts, late


# --- The authors' scheduler in plain Python. ---

TARGETS = np.array([-2.0, 1.0, 3.0, 5.0, -1.0])


def seconds_a_step(client, visit):
    noise = np.random.default_rng([client, visit]).uniform(0.5, 2.2)
    return (0.01, 0.013, 0.03, 0.05, 0.11)[client] * noise


def delta_of(client, steps, start):
    return (start - TARGETS[client]) * (1 - 0.99**steps)


def authors(least, most, factor, until):
    """Return the time and the model of each aggregation, and the number of late updates.

    In the authors' code a client's first update is alone; here it takes late ones with it.
    """
    clients = range(len(TARGETS))
    model, version, made, events, groups, late, number, lates = 0.0, 0, [], [], {}, [], 0, 0
    began, steps, point, start, speed, group_of, visits = {}, {}, {}, {}, {}, dict.fromkeys(clients), [0] * len(TARGETS)

    def begin(client, now):
        began[client], point[client], start[client] = now, model, version
        heapq.heappush(events, (now + steps[client] * seconds_a_step(client, visits[client]), "arrival", client))
        visits[client] += 1

    def aggregate(now, updates):
        nonlocal model, version, late
        alphas = [0.9 * (1 + version - tau) ** -0.5 / len(TARGETS) for tau, _ in updates + late]
        model = model - sum(alpha * delta for alpha, (_, delta) in zip(alphas, updates + late, strict=True))
        version, late = version + 1, []
        made.append((now, model))

    def place(client, now):
        nonlocal number
        best = -1, None
        for name, group in groups.items():
            fit = math.floor((group["expected"] - now) / speed[client] + 1e-9)
            if least <= fit <= most and fit >= best[0]:
                best = fit, name
        if best[1] is not None:
            steps[client], group_of[client] = best
            groups[best[1]]["members"].append(client)
        else:
            found = -1
            for group in groups.values():
                if now < group["latest"]:
                    fastest = min(speed[one] for one in group["members"] + group["arrived"])
                    fit = math.floor((group["latest"] + fastest * most - now) / speed[client] + 1e-9)
                    found = max(found, fit) if fit <= most else found
            steps[client] = most if found < 0 else max(found, least)
            span = steps[client] * speed[client]
            group_of[client] = number
            groups[number] = {"members": [client], "arrived": [], "updates": []}
            groups[number] |= {"expected": now + span, "latest": now + span * factor}
            heapq.heappush(events, (groups[number]["latest"], "deadline", number))
            number += 1
        begin(client, now)

    def close(name, now):
        group = groups[name]
        if group["updates"]:
            aggregate(now, group["updates"])
            group["expected"] = group["latest"] = 0
            for client in sorted(group["arrived"], key=speed.get):
                place(client, now)
            if not group["members"]:
                del groups[name]

    for client in clients:
        steps[client] = most
        begin(client, 0.0)
    while events[0][0] < until:
        now, kind, name = heapq.heappop(events)
        if kind == "deadline":
            if name in groups and groups[name]["latest"]:
                close(name, now)
            continue
        client, update = name, (start[name], delta_of(name, steps[name], point[name]))
        speed[client] = (now - began[client]) / steps[client]
        if group_of[client] is None:
            aggregate(now, [update])
            place(client, now)
            continue
        group = groups[group_of[client]]
        group["members"].remove(client)
        if now > group["latest"]:
            if not group["members"] and not group["arrived"]:
                del groups[group_of[client]]
            late.append(update)
            lates += 1
            place(client, now)
            continue
        group["arrived"].append(client)
        group["updates"].append(update)
        if not group["members"]:
            close(group_of[client], now)
    return made, lates


def driven(algorithm, until):
    """Return the time and the model of each version that a coordinator makes of the same visits."""
    local = LocalPlan(steps=1, batch_size=1, lr=0.1)
    coordinator = Coordinator(algorithm, torch.zeros(1), clients=len(TARGETS), local=local, seed=5)
    made, events, visits = [], [], [0] * len(TARGETS)

    def assign(now):
        for one in coordinator.assign(now):
            seconds = seconds_a_step(one.client, visits[one.client])
            visits[one.client] += 1
            delta = delta_of(one.client, one.plan.steps, algorithm.model.item())
            heapq.heappush(events, (now + one.plan.steps * seconds, one.client, one, seconds, delta))

    for client in range(len(TARGETS)):
        coordinator.present(0.0, client)
    assign(0.0)
    while (now := min(events[0][0], coordinator.next_lapse())) < until:
        version = algorithm.version
        if events[0][0] > now:
            coordinator.lapse(now)
        else:
            _, client, one, seconds, delta = heapq.heappop(events)
            report = {"examples": 1, "steps": one.plan.steps, "normaliser": 1.0, "step_seconds": seconds}
            coordinator.receive(now, client, one.visit, torch.tensor([delta], dtype=torch.float32), **report)
            coordinator.present(now, client)
        if algorithm.version > version:
            made.append((now, algorithm.model.item()))
        assign(now)
    assert coordinator.statistics.unused == 0
    return made


def test_it_agrees_with_the_authors_rules(plan):
    expected, lates = authors(20, 100, 1.5, until=150.0)
    algorithm = FedCompass(steps=(20, 100), latest_factor=1.5, speed_momentum=1.0, weighting="uniform")
    made = driven(algorithm, until=150.0)
    assert len(made) > 60
    assert lates > 20
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("steps", [(0, 5), (6, 5)])
def test_steps_out_of_range_are_refused(steps):
    with pytest.raises(ValueError, match="steps"):
        FedCompass(steps=steps)


def test_a_step_size_for_each_step_is_refused(plan):
    algorithm = FedCompass()
    algorithm.start(torch.zeros(1), 2)
    with pytest.raises(ValueError, match=r"give local\.lr as one number"):
        algorithm.assign(0, dataclasses.replace(plan, steps=2, lr=(0.1, 0.2)))
