"""Clients that are asked for what they have so far, by Port."""

import math
from itertools import pairwise

import pytest
import torch

from offbeat.algorithms import LocalPlan, Port
from offbeat.algorithms.components import Compression
from offbeat.simulation.records import Stop

# Four steps a visit; the quick client 0 is back each second, and makes a version each time: 1 at 1 s, 2 at 2 s, …
# Nobody may be staler than 1, so client 1, which began from version 0, is asked at 2 s for what it has.
QUICK = 0.25


@pytest.fixture
def world(simulate):
    def build(step_seconds, *, plan=None, calls=None, urgent_requests=True, stop=None, **more):
        arguments = {
            "step_seconds": (QUICK, step_seconds),
            "plan": plan or LocalPlan(steps=4, batch_size=1, lr=0.5),
            "stop": stop or Stop(virtual_seconds=60.0),
            "record": None if calls is None else calls.append,
        }
        algorithm = Port(min_clients=1, staleness_bound=1, concurrency=2, urgent_requests=urgent_requests)
        return simulate(algorithm, **arguments | more)

    return build


def first_of(simulation, client=1):
    """The client's first visit, once it has ended; None if the run ends before."""
    while not simulation.finished:
        simulation.step()
        for visit in simulation.ended:
            if visit.client == client:
                return visit
    return None


def update_of(calls, client=1):
    return next(call.arguments for call in calls if call.name == "receive" and call.arguments["client"] == client)


@pytest.mark.parametrize(
    ("step_seconds", "steps", "ended"),
    [
        (0.8, 3, 2.4),  # it is at its third step as it is asked at 2 s
        (1.0, 2, 2.0),  # it has just taken its second
        (1.25, 2, 2.5),
        (2.0, 1, 2.0),
        (5.0, 1, 5.0),  # at least the first
    ],
)
def test_it_hands_in_what_it_has_after_the_step_that_it_is_at(world, step_seconds, steps, ended):
    calls = []
    simulation = world(step_seconds, calls=calls)
    visit = first_of(simulation)
    assert (visit.assigned_seconds, visit.ended_seconds, visit.outcome) == (0.0, pytest.approx(ended), "counted")
    update = update_of(calls)
    assert (update["steps"], update["normaliser"], update["examples"]) == (steps, steps, 2)
    # From 0 towards the target 1, 11, half of the way in each step.
    whole = torch.tensor([1.0, 11.0])
    assert torch.equal(update["vector"].resolve(), -whole * (1 - 0.5**steps))
    assert torch.equal(update["base"], torch.zeros(2))


def test_whoever_is_at_its_last_step_is_left_to_it(world):
    calls = []
    visit = first_of(world(0.6, calls=calls))
    assert visit.ended_seconds == pytest.approx(2.4)
    assert update_of(calls)["steps"] == 4


def test_who_is_not_asked_does_all_of_its_steps_and_is_waited_for(world):
    calls = []
    simulation = world(1.25, calls=calls, urgent_requests=False)
    assert first_of(simulation).ended_seconds == 5.0
    assert update_of(calls)["steps"] == 4
    # After version 2, at 2 s, nothing more was made without client 1, though client 0 went on.
    assert [v.ended_seconds for v in simulation.ended if v.client == 0] == [1.0, 2.0, 3.0, 4.0]
    assert simulation.coordinator.algorithm.version == 3


def test_its_next_visit_is_a_whole_one_until_it_is_too_stale_again(world):
    calls = []
    simulation = world(1.25, calls=calls, stop=Stop(virtual_seconds=5.2))
    list(simulation.run())
    of_client = [call.arguments for call in calls if call.name == "receive" and call.arguments["client"] == 1]
    # Back at 2.5 s, for version 3; that of 3 s is the fourth, that of 4 s the fifth: asked at 4 s, at its second step.
    assert [(update["now"], update["steps"]) for update in of_client] == [(2.5, 2), (5.0, 2)]
    assert [(v.visit, v.version, v.staleness) for v in simulation.ended if v.client == 1] == [(0, 0, 2), (1, 3, 2)]


@pytest.mark.parametrize(("batch_limit", "times"), [(1, 1), (10, 2)])
def test_a_visit_whose_training_was_done_ahead_is_trained_anew_up_to_there(world, simulate, batch_limit, times):
    calls = []
    trainer = simulate.trainer(torch.tensor([[0.0, 10.0], [1.0, 11.0]]), batch_limit)
    # Version 1 is needed at 1 s, and client 1's whole visit is trained along with it if it may.
    simulation = world(1.25, calls=calls, trainer=trainer, stop=Stop(virtual_seconds=2.6))
    list(simulation.run())
    trained = [job for batch in trainer.batches for job in batch]
    assert trained.count((1, 0)) == times
    assert update_of(calls)["vector"].resolve().tolist() == [-0.75, -8.25]
    # What nobody needs any more is not trained later either.
    assert 4 not in [work.job.plan.steps for work in simulation._life.work._waiting if work.job.version == 0]


@pytest.mark.parametrize("batch_limit", [1, 10])
def test_a_partial_visit_does_not_depend_on_when_training_is_done(world, simulate, batch_limit):
    def end(batch_limit, every):
        trainer = simulate.trainer(torch.tensor([[0.0, 10.0], [1.0, 11.0]]), batch_limit)
        simulation = world(1.1, trainer=trainer, every=every, stop=Stop(virtual_seconds=40.0))
        list(simulation.run())
        return simulation.ended, simulation.model.tolist()

    assert end(batch_limit, 0.7) == end(1, 1e9)


def test_step_sizes_are_those_of_the_first_steps(world):
    calls = []
    rates = (0.5, 0.25, 0.125, 1.0)
    first_of(world(1.25, calls=calls, plan=LocalPlan(steps=4, batch_size=1, lr=rates)))
    # Of the way to 1, 11 is left ½ · ¾.
    assert update_of(calls)["vector"].resolve().tolist() == [-0.625, -6.875]
    assert update_of(calls)["normaliser"] == 2


def test_momentum_counts_as_far_as_it_went(world):
    calls = []
    first_of(world(1.25, calls=calls, plan=LocalPlan(steps=4, batch_size=1, lr=0.5, momentum=0.5)))
    assert update_of(calls)["normaliser"] == 1 + 1.5


def test_the_upload_of_a_partial_visit_takes_its_time_and_its_bytes(world):
    visit = first_of(world(1.25, up=(1e300, 4.0)))
    assert (visit.ended_seconds, visit.bytes_up) == (2.5 + 2.0, 8)


def test_who_is_still_downloading_takes_one_step(world):
    calls = []
    # 8 bytes from 0 to 4 s, and a step of 1.5 s.
    visit = first_of(world(1.5, down=(1e300, 2.0), calls=calls))
    assert visit.ended_seconds == 5.5
    assert update_of(calls)["steps"] == 1


def test_who_is_uploading_is_not_disturbed(world):
    calls = []
    # Trained by 1.6 s, it uploads until 9.6 s.
    visit = first_of(world(0.4, up=(1e300, 1.0), calls=calls))
    assert (visit.ended_seconds, visit.bytes_up) == (pytest.approx(9.6), 8)
    assert update_of(calls)["steps"] == 4


def test_who_is_away_goes_on_when_it_is_back_and_finishes_its_step(world, intervals):
    calls = []
    # At its second step when it goes at 1.5 s; back at 7 s it is at it for another half second.
    visit = first_of(world(1.0, availability=intervals([(0, 99)], [(0, 1.5), (7, 99)]), calls=calls))
    assert visit.ended_seconds == 7.5
    assert update_of(calls)["steps"] == 2


def test_who_has_left_for_good_after_a_step_is_not_waited_for_in_vain(world, intervals):
    calls = []
    # It is gone from 3.2 s on; asked at 2 s, it hands in two steps at 3 s.
    times = intervals([(0, 99)], [(0, 3.2)])
    visit = first_of(world(1.5, availability=times, calls=calls))
    assert (visit.ended_seconds, visit.outcome) == (3.0, "counted")
    assert update_of(calls)["steps"] == 2


@pytest.mark.parametrize("when_away", ["pause", "lose"])
def test_a_visit_that_would_break_off_is_saved_by_being_asked_in_time(world, intervals, when_away):
    calls = []
    # The four steps would take until 4.4 s, but it is gone at 3.5 s. Two are done at 2.2 s.
    times = intervals([(0, 99)], [(0, 3.5), (50, 99)])
    simulation = world(1.1, availability=times, when_away=when_away, calls=calls)
    visit = first_of(simulation)
    assert (visit.ended_seconds, visit.outcome) == (2.2, "counted")
    assert update_of(calls)["steps"] == 2


def test_a_step_that_breaks_off_cannot_be_handed_in(world, intervals):
    times = intervals([(0, 99)], [(0, 2.5), (50, 99)])
    visit = first_of(world(1.5, availability=times, when_away="lose"))
    assert (visit.ended_seconds, visit.outcome, visit.bytes_up) == (2.5, "lost", 0)


def test_a_lost_visit_is_not_found_again_by_asking(world):
    visit = first_of(world(1.25, loss_probability=(0.0, 1.0), lease_seconds=100.0))
    assert (visit.ended_seconds, visit.outcome) == (5.0, "lost")


def test_the_ending_that_was_cut_off_happens_to_nobody(world):
    # Client 1 is asked at 2 s, back at 2.5 s and again at work; its first visit would have ended at 5 s, as the second
    # one does in part. It must do so once.
    simulation = world(1.25, stop=Stop(virtual_seconds=30.0))
    list(simulation.run())
    visits = [visit for visit in simulation.ended if visit.client == 1]
    assert [visit.visit for visit in visits] == list(range(len(visits)))
    assert [visit.ended_seconds for visit in visits[:3]] == [2.5, 5.0, 7.5]
    assert all(before.ended_seconds <= after.assigned_seconds for before, after in pairwise(visits))


def test_nobody_is_ever_staler_than_the_bound_by_more_than_a_step_takes(simulate):
    simulation = simulate(
        Port(min_clients=1, staleness_bound=2, concurrency=4),
        step_seconds=(0.1, 0.23, 0.77, 5.0),
        plan=LocalPlan(steps=20, batch_size=1, lr=0.1),
        stop=Stop(virtual_seconds=300.0),
    )
    list(simulation.run())
    # While somebody at work is staler than 2, there is no version; so 3 is the most.
    assert max(visit.staleness for visit in simulation.ended) == 3
    assert {visit.client for visit in simulation.ended} == {0, 1, 2, 3}
    slowest = [visit.ended_seconds - visit.assigned_seconds for visit in simulation.ended if visit.client == 3]
    assert max(slowest) < math.inf
    assert min(slowest) >= 5.0


def test_error_feedback_remembers_what_the_partial_update_left_out(world):
    calls = []
    plan = LocalPlan(
        steps=4, batch_size=1, lr=0.5, compression=Compression("top_k", (("share", 0.5),)), error_feedback=True
    )
    simulation = world(1.25, calls=calls, plan=plan)
    first_of(simulation)
    # Of −0.75, −8.25 the larger is sent.
    assert update_of(calls)["vector"].resolve().tolist() == [0, -8.25]
    assert simulation._life.work._memories[1].resolve().tolist() == [-0.75, 0]
