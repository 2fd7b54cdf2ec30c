import torch

from offbeat.algorithms import FedAsync
from offbeat.coordinator import Coordinator
from offbeat.service.engine.live_run import LiveRun
from tests.service.conftest import LENGTH, PLAN


def coordinator(algorithm, clients=3):
    return Coordinator(algorithm, torch.zeros(LENGTH), clients=clients, local=PLAN, seed=7)


def visit(run, client):
    run.coordinator.present(run.now, client)
    (assignment,) = run.coordinator.assign(run.now)
    return assignment


def hand_in(run, client):
    run.coordinator.receive(run.now, client, 0, torch.ones(LENGTH), examples=1, steps=2, normaliser=2.0)


def test_the_time_without_a_server_does_not_count():
    seconds = 1000.0
    run = LiveRun(coordinator(FedAsync()), now=30.0, clock=lambda: seconds)
    assert run.now == 30.0
    seconds += 2.5
    assert run.now == 32.5


def test_a_run_ends_at_its_version():
    run = LiveRun(coordinator(FedAsync(concurrency=1)), stop_versions=1)
    assert not run.is_finished
    visit(run, 0)
    hand_in(run, 0)
    assert run.is_finished
    assert not LiveRun(run.coordinator).is_finished


def test_versions_of_open_visits_and_the_newest_are_needed():
    run = LiveRun(coordinator(FedAsync(concurrency=2)))
    assert run.needed_versions() == {0}
    visit(run, 0), visit(run, 1)
    hand_in(run, 0)
    assert run.needed_versions() == {0, 1}
    run.coordinator.drop(run.now, 1, 0)  # its update may come, but needs no base
    assert run.needed_versions() == {1}
