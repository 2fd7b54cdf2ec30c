import gc
import heapq
import weakref

import numpy as np
import pytest
import torch

from offbeat.algorithms import FedAsync, FedAvg, FedBuff, LocalPlan
from offbeat.algorithms.components.staleness import constant
from offbeat.coordinator import Coordinator
from offbeat.errors import OffbeatError
from offbeat.simulation.records import Stop
from offbeat.simulation.simulator import Simulation
from offbeat.simulation.work import DivergedError
from offbeat.training.trainers.trainer import Result

ALGORITHMS = {
    "fedavg": lambda: FedAvg(cohort=2, over_selection=1.5),
    "fedasync": lambda: FedAsync(concurrency=3),
    "fedbuff": lambda: FedBuff(buffer_size=2, concurrency=3),
}
LOSSY = (0.0, 0.5, 0.0, 0.5)


def run(simulation: Simulation):
    return list(simulation.run())


def test_a_visit_takes_the_download_the_steps_and_the_upload(simulate):
    # 2 parameters are 8 bytes: 8 s down at 1 byte/s, 3 steps of 1 s, 2 s up at 4 bytes/s.
    simulation = simulate(
        FedBuff(buffer_size=1, concurrency=1),
        step_seconds=(1.0,),
        down=1.0,
        up=4.0,
        plan=LocalPlan(steps=3, batch_size=1, lr=0.5),
        stop=Stop(updates=2),
    )
    run(simulation)
    first, second = simulation.ended
    assert first == (0, 0, 0, 0, 0.0, 13.0, 8, 8, "counted")
    assert second == (0, 1, 1, 0, 13.0, 26.0, 8, 8, "counted")


def test_updates_that_arrive_together_are_all_in_before_work_is_given_out(simulate):
    simulation = simulate(FedBuff(buffer_size=4, concurrency=4), step_seconds=(1.0,) * 4, stop=Stop(versions=2))
    run(simulation)
    assert [visit.version for visit in simulation.ended] == [0] * 4 + [1] * 4
    assert {visit.staleness for visit in simulation.ended} == {0}


def test_a_lease_that_ends_as_the_update_arrives_is_kept(simulate):
    simulation = simulate(
        FedAvg(cohort=1), step_seconds=(5.0,), up=1e300, down=1e300, lease_seconds=5.0, stop=Stop(versions=1)
    )
    run(simulation)
    assert simulation.ended[0].outcome == "counted"


def test_plain_asynchronous_sgd_equals_a_few_lines_of_it(simulate):
    """FedBuff with K = 1 and constant weights: every client at work, each delta subtracted as it arrives."""
    simulation = simulate(
        FedBuff(buffer_size=1, staleness=constant(), concurrency=4),
        step_seconds=(1.0, 1.7312, 2.3178, 0.6453),
        stop=Stop(updates=30),
    )
    run(simulation)

    step_seconds, model = (1.0, 1.7312, 2.3178, 0.6453), torch.zeros(2)
    targets = torch.arange(4.0)[:, None] + torch.tensor([0.0, 10.0])
    arrivals = [(seconds, client, model) for client, seconds in enumerate(step_seconds)]
    heapq.heapify(arrivals)
    for _ in range(30):
        now, client, start = heapq.heappop(arrivals)
        model = model - (start - (start - 0.5 * (start - targets[client])))
        heapq.heappush(arrivals, (now + step_seconds[client], client, model))
    assert torch.equal(simulation.model, model)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_recorded_calls_make_the_same_model_again(name, simulate):
    calls = []
    simulation = simulate(
        ALGORITHMS[name](),
        loss_probability=LOSSY,
        lease_seconds=6.0,
        stop=Stop(virtual_seconds=60),
        record=calls.append,
    )
    run(simulation)
    replayed = Coordinator(
        ALGORITHMS[name](),
        torch.zeros(2),
        clients=4,
        local=LocalPlan(steps=1, batch_size=1, lr=0.5),
        seed=1,
        lease_seconds=6.0,
    )
    for call in calls:
        replayed.replay(call)
    assert replayed.algorithm.version == simulation.coordinator.algorithm.version > 5
    assert torch.equal(replayed.algorithm.model, simulation.model)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_events_and_model_do_not_depend_on_when_work_is_done(name, simulate):
    """Other batches and other evaluations: the same events and the same model."""

    def world(batch_limit, every):
        trainer = simulate.trainer(torch.arange(4.0)[:, None] + torch.tensor([0.0, 10.0]), batch_limit)
        simulation = simulate(
            ALGORITHMS[name](),
            loss_probability=LOSSY,
            lease_seconds=6.0,
            stop=Stop(virtual_seconds=60),
            trainer=trainer,
            every=every,
        )
        run(simulation)
        return simulation

    reference, other = world(1, 10.0), world(16, 0.7)
    assert reference.ended == other.ended
    assert torch.equal(reference.model, other.model)


def test_only_work_that_counts_is_trained(simulate):
    trainer = simulate.trainer(torch.zeros(4, 2))
    simulation = simulate(
        FedAvg(cohort=1, over_selection=4.0),
        trainer=trainer,
        loss_probability=(0.0, 1.0, 0.0, 0.0),
        lease_seconds=100.0,
        stop=Stop(versions=5),
    )
    run(simulation)
    counted = [(visit.client, visit.visit) for visit in simulation.ended if visit.outcome == "counted"]
    assert sorted(job for batch in trainer.batches for job in batch) == sorted(counted)


def test_a_round_that_is_over_saves_the_uploads_of_the_others(simulate):
    simulation = simulate(FedAvg(cohort=1, over_selection=4.0), stop=Stop(virtual_seconds=4.5))
    run(simulation)
    outcomes = {visit.outcome: visit.bytes_up for visit in simulation.ended}
    assert outcomes == {"counted": 8, "unused": 0}


def test_an_upload_that_comes_after_the_end_of_its_round_was_paid_for(simulate):
    # Both are asked to upload at 1 s; the round ends at 2 s with the first one's; the other's takes until 9 s.
    simulation = simulate(
        FedAvg(cohort=1, over_selection=2.0),
        step_seconds=(1.0, 1.0),
        stop=Stop(virtual_seconds=9.5),
        up=(8.0, 1.0),
        down=1e300,
    )
    run(simulation)
    late = [visit for visit in simulation.ended if visit.client == 1]
    assert [(visit.outcome, visit.bytes_up, visit.ended_seconds) for visit in late] == [("unused", 8, 9.0)]


def test_a_lost_visit_costs_its_download_and_frees_its_slot_when_the_lease_lapses(simulate):
    simulation = simulate(
        FedBuff(buffer_size=1, concurrency=1),
        step_seconds=(1.0,),
        loss_probability=(1.0,),
        lease_seconds=5.0,
        stop=Stop(virtual_seconds=12.0),
    )
    last = run(simulation)[-1]
    assert [(visit.assigned_seconds, visit.ended_seconds) for visit in simulation.ended] == [
        pytest.approx((0.0, 1.0)),
        pytest.approx((5.0, 6.0)),
        pytest.approx((10.0, 11.0)),
    ]
    assert {(visit.outcome, visit.staleness, visit.bytes_up) for visit in simulation.ended} == {("lost", None, 0)}
    assert (last.lost, last.counted, last.bytes_down, last.bytes_up) == (3, 0, 24, 0)


def test_waiting_for_lost_clients_for_ever_is_an_error_and_not_a_loop(simulate):
    simulation = simulate(FedAvg(cohort=4), loss_probability=(0.0, 1.0, 0.0, 0.0), stop=Stop(versions=3))
    with pytest.raises(OffbeatError, match=r"server\.lease_seconds"):
        run(simulation)


@pytest.mark.parametrize(
    ("stop", "seconds", "version", "counted"),
    [
        (Stop(virtual_seconds=7.5), 7.5, 7, 7),
        (Stop(versions=3), 3.0, 3, 3),
        (Stop(updates=5), 5.0, 5, 5),
        (Stop(virtual_seconds=2.0, updates=5), 2.0, 2, 2),
    ],
)
def test_a_run_ends_at_whatever_comes_first(simulate, stop, seconds, version, counted):
    simulation = simulate(FedBuff(buffer_size=1, concurrency=1), step_seconds=(1.0,), stop=stop, down=1e300, up=1e300)
    last = run(simulation)[-1]
    assert (last.seconds, last.version, last.counted) == (seconds, version, counted)


def test_evaluations_are_on_a_grid_from_the_start_and_once_at_the_end(simulate):
    simulation = simulate(FedBuff(buffer_size=1, concurrency=1), every=3.0, stop=Stop(virtual_seconds=10.0))
    assert [evaluation.seconds for evaluation in run(simulation)] == [0.0, 3.0, 6.0, 9.0, 10.0]
    simulation = simulate(FedBuff(buffer_size=1, concurrency=1), every=5.0, stop=Stop(virtual_seconds=10.0))
    assert [evaluation.seconds for evaluation in run(simulation)] == [0.0, 5.0, 10.0]


def test_an_evaluation_sees_all_that_happened_at_its_instant(simulate):
    simulation = simulate(
        FedBuff(buffer_size=1, concurrency=1),
        step_seconds=(1.0,),
        every=1.0,
        stop=Stop(virtual_seconds=3.0),
        up=1e300,
        down=1e300,
    )
    assert [evaluation.version for evaluation in run(simulation)] == [0, 1, 2, 3]


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


def test_a_periodic_algorithm_ticks_after_the_arrivals_of_its_instant(simulate):
    ticks = []

    class Periodic(FedBuff):
        period = 2.0

        def tick(self):
            ticks.append(self.buffer.count)
            return False

    algorithm = Periodic(buffer_size=100, concurrency=1)
    run(simulate(algorithm, step_seconds=(1.0,), up=1e300, down=1e300, stop=Stop(virtual_seconds=6.5)))
    assert ticks == [2, 4, 6]


def test_bytes_are_those_of_all_transfers(simulate):
    simulation = simulate(FedBuff(buffer_size=1, concurrency=4), stop=Stop(virtual_seconds=20.0))
    last = run(simulation)[-1]
    assert last.bytes_up == 8 * last.counted
    assert last.bytes_down == 8 * (last.counted + 4)  # four are still at work


def test_work_that_was_lost_is_not_trained_along_with_the_rest(simulate):
    trainer = simulate.trainer(torch.zeros(2, 2), batch_limit=100)
    simulation = simulate(
        FedBuff(buffer_size=1, concurrency=2),
        step_seconds=(1.0, 2.0),
        loss_probability=(1.0, 0.0),
        trainer=trainer,
        lease_seconds=50.0,
        stop=Stop(updates=1),
    )
    run(simulation)
    assert trainer.batches == [[(1, 0)]]


def test_visits_that_take_no_time_do_not_stop_the_world(simulate):
    simulation = simulate(
        FedBuff(buffer_size=1, concurrency=1),
        step_seconds=(1e-300, 1e-300),
        up=1e300,
        down=1e300,
        stop=Stop(updates=5),
    )
    assert run(simulation)[-1].counted == 5


def test_a_client_that_is_late_for_ever_does_not_stop_the_rounds_of_the_others(simulate):
    simulation = simulate(
        FedAvg(cohort=3), step_seconds=(1.0, 1.0, 1e9), lease_seconds=5.0, stop=Stop(virtual_seconds=26.0)
    )
    assert run(simulation)[-1].version == 5
    assert {visit.client for visit in simulation.ended} == {0, 1}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_coordinator_restored_again_and_again_goes_on_to_the_same_model(name, simulate):
    def world():
        return simulate(
            ALGORITHMS[name](),
            loss_probability=LOSSY,
            lease_seconds=6.0,
            stop=Stop(virtual_seconds=60),
            every=1.3,
        )

    undisturbed, disturbed = world(), world()
    run(undisturbed)
    for _ in disturbed.run():
        restored = Coordinator(
            ALGORITHMS[name](),
            torch.zeros(2),
            clients=4,
            local=LocalPlan(steps=1, batch_size=1, lr=0.5),
            seed=1,
            lease_seconds=6.0,
        )
        restored.load_state_dict(disturbed.coordinator.state_dict())
        disturbed.coordinator.load_state_dict(restored.state_dict())
    assert disturbed.ended == undisturbed.ended
    assert torch.equal(disturbed.model, undisturbed.model)


def test_vectors_and_starting_models_are_let_go_when_they_are_used(simulate):
    made = []

    class Watched(simulate.trainer):
        def train(self, jobs):
            results = super().train(jobs)
            made.extend(weakref.ref(result.vector) for result in results)
            made.extend(weakref.ref(job.start) for job in jobs)
            return results

    simulation = simulate(
        FedBuff(buffer_size=1, concurrency=2),
        trainer=Watched(torch.zeros(4, 2)),
        lease_seconds=1e9,
        stop=Stop(updates=50),
    )
    run(simulation)
    gc.collect()
    alive = {id(reference()) for reference in made if reference() is not None}
    assert len(made) == 100
    assert len(alive) <= 4  # the models of the two at work, and what the last step was made of


def test_a_divergence_that_nobody_needs_does_not_end_the_run(simulate):
    class Diverging(simulate.trainer):
        def train(self, jobs):
            results = super().train(jobs)
            nan = torch.full((2,), float("nan"))
            return [Result(nan, 0.0) if job.client == 1 else r for job, r in zip(jobs, results, strict=True)]

    def world(batch_limit):
        simulation = simulate(
            FedAvg(cohort=1, over_selection=2.0),
            step_seconds=(1.0, 5.0),
            trainer=Diverging(torch.zeros(2, 2), batch_limit),
            stop=Stop(versions=1),
        )
        return run(simulation)[-1].version, simulation.ended

    assert world(1) == world(16)


def test_leases_too_short_for_any_visit_are_an_error_and_not_a_loop(simulate):
    simulation = simulate(FedAvg(cohort=1), step_seconds=(1.0,), lease_seconds=0.5, stop=Stop(versions=1))
    with pytest.raises(OffbeatError, match=r"no update counted in the last \d+ visits.*server\.lease_seconds"):
        run(simulation)


def test_transfers_that_never_end_are_refused(simulate):
    with pytest.raises(OffbeatError, match="never ends"), np.errstate(over="ignore"):
        simulate(FedBuff(), up=1e-320)


def test_a_model_that_overflows_ends_the_run(simulate):
    simulation = simulate(FedBuff(buffer_size=1, server_lr=1e38), stop=Stop(versions=50), every=0.1)
    with pytest.raises(
        DivergedError, match=r"step from version \d+ was refused: the new model is not finite.*server_lr"
    ):
        run(simulation)


def test_the_same_model_is_not_evaluated_twice(simulate):
    simulation = simulate(FedBuff(buffer_size=1, concurrency=1), every=0.01, stop=Stop(versions=3))
    evaluated = []
    simulation._evaluations._evaluate = lambda model: evaluated.append(model) or (0.0, {})
    rows = run(simulation)
    assert len(evaluated) == 4 < len(rows)


def test_the_coordinator_hears_how_long_things_took(simulate):
    calls = []
    plan = LocalPlan(steps=3, batch_size=1, lr=0.5, momentum=0.5)
    run(simulate(FedBuff(concurrency=1), plan=plan, up=4.0, stop=Stop(updates=3), record=calls.append))
    for call in calls:
        if call.name == "receive":
            client, said = call.arguments["client"], call.arguments
            assert said["step_seconds"] == client + 1.0
            assert said["upload_seconds"] == pytest.approx(2.0, abs=1e-9)
            assert (said["steps"], said["examples"]) == (3, client + 1)
            assert said["normaliser"] == pytest.approx(1 + 1.5 + 1.75)


def test_work_is_given_out_right_after_a_tick(simulate):
    class Waiting(FedBuff):
        period = 2.0
        open = False

        def slots(self):
            return super().slots() if self.open else 0

        def tick(self):
            self.open = True
            return False

    simulation = simulate(Waiting(buffer_size=1, concurrency=1), stop=Stop(updates=1))
    run(simulation)
    assert simulation.ended[0].assigned_seconds == 2.0


def test_a_periodic_algorithm_that_waits_for_lost_clients_is_an_error_and_not_a_loop(simulate):
    class Periodic(FedBuff):
        period = 1.0

    simulation = simulate(
        Periodic(concurrency=1), step_seconds=(1.0,), loss_probability=(1.0,), stop=Stop(versions=1), every=1e9
    )
    with pytest.raises(OffbeatError, match="no update counted"):
        run(simulation)
