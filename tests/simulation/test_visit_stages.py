"""Visits of clients that stay online."""

import gc
import weakref

import pytest
import torch

from offbeat.algorithms import FedAvg, FedBuff
from offbeat.algorithms.components import Compression
from offbeat.simulation.totals import Stop
from tests.simulation.conftest import QuadraticTrainer, ended, local_plan, one_by_one, run, visits_of


def test_a_visit_takes_the_download_the_steps_and_the_upload(simulate):
    # 2 parameters are 8 bytes: 8 s down at 1 byte/s, 3 steps of 1 s, 2 s up at 4 bytes/s.
    simulation = simulate(step_seconds=(1.0,), down=1.0, up=4.0, plan=local_plan(3), stop=Stop(updates=2))
    run(simulation)
    first, second = simulation.ended
    assert first == (0, 0, 0, 0, 0.0, 13.0, 8, 8, "counted")
    assert second == (0, 1, 1, 0, 13.0, 26.0, 8, 8, "counted")


def test_only_work_that_counts_is_trained(simulate):
    trainer = QuadraticTrainer(torch.zeros(4, 2))
    simulation = simulate(
        FedAvg(cohort=1, over_selection=4.0),
        trainer=trainer,
        loss_probability=(0.0, 1.0, 0.0, 0.0),
        lease_seconds=100.0,
        stop=Stop(versions=5),
    )
    visits = ended(simulation, "client", "visit", "outcome")
    assert sorted(trainer.trained) == sorted(visit[:2] for visit in visits if visit[2] == "counted")


def test_a_round_that_is_over_saves_the_uploads_of_the_others(simulate):
    simulation = simulate(FedAvg(cohort=1, over_selection=4.0), stop=Stop(virtual_seconds=4.5))
    assert set(ended(simulation, "outcome", "bytes_up")) == {("counted", 8), ("unused", 0)}


def test_an_upload_that_arrives_after_the_end_of_its_round_counts_its_bytes(simulate):
    # Both upload from 1 s on; the round ends at 2 s with the first one's; the other's takes until 9 s.
    simulation = simulate(
        FedAvg(cohort=1, over_selection=2.0), step_seconds=(1.0, 1.0), stop=Stop(virtual_seconds=9.5), up=(8.0, 1.0)
    )
    visits = ended(simulation, "client", "outcome", "bytes_up", "ended_seconds")
    assert [visit for visit in visits if visit[0] == 1] == [(1, "unused", 8, 9.0)]


def test_a_lost_visit_costs_its_download_and_holds_its_slot_until_the_lease_ends(simulate):
    simulation = simulate(
        step_seconds=(1.0,), loss_probability=(1.0,), lease_seconds=5.0, stop=Stop(virtual_seconds=12.0)
    )
    last = run(simulation)[-1]
    assert visits_of(simulation, "assigned_seconds", "ended_seconds") == [(0.0, 1.0), (5.0, 6.0), (10.0, 11.0)]
    assert visits_of(simulation, "outcome", "staleness", "bytes_up") == [("lost", None, 0)] * 3
    assert (last.lost, last.counted, last.bytes_down, last.bytes_up) == (3, 0, 24, 0)


def test_an_algorithm_that_needs_it_gets_the_vector_that_each_client_started_from(simulate):
    seen = []

    class NeedsBase(FedBuff):
        needs_base = True

        def receive(self, update):
            seen.append((update.version, update.base))
            return super().receive(update)

    algorithm = NeedsBase(buffer_size=1, concurrency=2)
    simulation = simulate(algorithm, step_seconds=(1.0, 2.5), stop=Stop(updates=4))
    run(simulation)
    bases = {}
    for version, base in seen:
        assert torch.equal(bases.setdefault(version, base), base)
    assert torch.equal(bases[0], torch.zeros(2))
    assert len({tuple(base.tolist()) for base in bases.values()}) == len(bases) > 1


def test_vectors_and_starting_models_are_freed_once_they_are_used(simulate):
    made = []

    class Watched(QuadraticTrainer):
        def collect(self, jobs):
            results = super().collect(jobs)
            made.extend(weakref.ref(result.vector) for result in results)
            made.extend(weakref.ref(job.start) for job in jobs)
            return results

    simulation = simulate(one_by_one(2), trainer=Watched(torch.zeros(4, 2)), lease_seconds=1e9, stop=Stop(updates=50))
    run(simulation)
    gc.collect()
    alive = {id(reference()) for reference in made if reference() is not None}
    assert len(made) == 100
    assert len(alive) <= 4  # the models of the two at work, and what the last step was made of


@pytest.mark.parametrize("compression", [None, Compression("top_k", (("share", 0.5),))])
def test_the_coordinator_hears_how_long_an_uncompressed_visit_takes(simulate, compression):
    calls = []
    plan = local_plan(3, momentum=0.5, compression=compression)
    run(simulate(plan=plan, up=4.0, stop=Stop(updates=3), record=calls.append))
    for call in calls:
        if call.name == "receive":
            client, report = call.arguments["client"], call.arguments
            assert report["step_seconds"] == client + 1.0
            assert report["upload_seconds"] == pytest.approx(2.0, abs=1e-9)  # 8 bytes at 4 bytes/s
            assert (report["steps"], report["examples"]) == (3, client + 1)
            assert report["normaliser"] == pytest.approx(1 + 1.5 + 1.75)
