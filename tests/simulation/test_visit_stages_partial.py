"""Clients that Port asks for partial updates."""

from itertools import pairwise

import pytest
import torch

from offbeat.algorithms import Port
from offbeat.algorithms.components import Compression
from offbeat.simulation.totals import Stop
from tests.simulation.conftest import QuadraticTrainer, local_plan, run

# Four steps a visit; the quick client 0 is back each second, and makes a version each time: 1 at 1 s, 2 at 2 s, …
# No client may be staler than 1, so client 1, which began from version 0, is asked at 2 s for a partial update.
QUICK = 0.25
TARGETS = torch.tensor([[0.0, 10.0], [1.0, 11.0]])


@pytest.fixture
def calls():
    return []


@pytest.fixture
def world(simulate, calls):
    def build(step_seconds, *, urgent_requests=True, seconds=60.0, **more):
        algorithm = Port(min_clients=1, staleness_bound=1, concurrency=2, urgent_requests=urgent_requests)
        arguments = {"plan": local_plan(4), "stop": Stop(virtual_seconds=seconds), "record": calls.append}
        return simulate(algorithm, step_seconds=(QUICK, step_seconds), **arguments | more)

    return build


def first_of(simulation):
    """Client 1's first visit, once it has ended."""
    while not (visits := [visit for visit in simulation.ended if visit.client == 1]):
        assert not simulation.finished
        simulation.step()
    return visits[0]


def update_of(calls):
    """The first update of client 1."""
    return next(call.arguments for call in calls if call.name == "receive" and call.arguments["client"] == 1)


@pytest.mark.parametrize(
    ("step_seconds", "steps", "end"),
    [
        (0.8, 3, 2.4),  # it takes its third step as it is asked at 2 s
        (1.0, 2, 2.0),  # it has just taken its second
        (1.25, 2, 2.5),
        (2.0, 1, 2.0),
        (5.0, 1, 5.0),  # at least the first
    ],
)
def test_a_partial_update_ends_with_the_current_step(world, calls, step_seconds, steps, end):
    visit = first_of(world(step_seconds))
    assert (visit.assigned_seconds, visit.ended_seconds, visit.outcome) == (0.0, pytest.approx(end), "counted")
    update = update_of(calls)
    assert (update["steps"], update["normaliser"], update["examples"]) == (steps, steps, 2)
    # From 0 towards the target 1, 11, half of the way in each step.
    assert torch.equal(update["vector"].resolve(), -TARGETS[1] * (1 - 0.5**steps))
    assert torch.equal(update["base"], torch.zeros(2))


def test_a_client_in_its_last_step_finishes_it(world, calls):
    assert first_of(world(0.6)).ended_seconds == pytest.approx(2.4)
    assert update_of(calls)["steps"] == 4


def test_without_requests_the_server_waits_for_all_steps(world, calls):
    simulation = world(1.25, urgent_requests=False)
    assert first_of(simulation).ended_seconds == 5.0
    assert update_of(calls)["steps"] == 4
    # After version 2, at 2 s, nothing more was made without client 1, though client 0 went on.
    assert [v.ended_seconds for v in simulation.ended if v.client == 0] == [1.0, 2.0, 3.0, 4.0]
    assert simulation.coordinator.algorithm.version == 3


def test_the_next_visit_is_a_full_one_until_it_is_too_stale_again(world, calls):
    simulation = world(1.25, seconds=5.2)
    run(simulation)
    of_client = [call.arguments for call in calls if call.name == "receive" and call.arguments["client"] == 1]
    # Back at 2.5 s, for version 3; that of 3 s is the fourth, that of 4 s the fifth: asked at 4 s, at its second step.
    assert [(update["now"], update["steps"]) for update in of_client] == [(2.5, 2), (5.0, 2)]
    assert [(v.visit, v.version, v.staleness) for v in simulation.ended if v.client == 1] == [(0, 0, 2), (1, 3, 2)]


@pytest.mark.parametrize(("batch_limit", "times"), [(1, 1), (10, 2)])
def test_a_visit_that_was_trained_in_full_is_trained_again_up_to_its_end(world, calls, batch_limit, times):
    trainer = QuadraticTrainer(TARGETS, batch_limit)
    # Version 1 is needed at 1 s, and client 1's complete visit is trained along with it if the batch has room.
    simulation = world(1.25, trainer=trainer, seconds=2.6)
    run(simulation)
    assert trainer.trained.count((1, 0)) == times
    assert update_of(calls)["vector"].resolve().tolist() == [-0.75, -8.25]
    # The cancelled rest is not trained later either.
    assert 4 not in [work.job.plan.steps for work in simulation._stages.training._waiting if work.job.version == 0]


@pytest.mark.parametrize("batch_limit", [1, 10])
def test_a_partial_visit_does_not_depend_on_when_training_is_done(world, batch_limit):
    def end(batch_limit, every):
        simulation = world(1.1, trainer=QuadraticTrainer(TARGETS, batch_limit), every=every, seconds=40.0)
        run(simulation)
        return simulation.ended, simulation.model.tolist()

    assert end(batch_limit, 0.7) == end(1, 1e9)


@pytest.mark.parametrize(
    ("options", "normaliser", "share"),
    [({"lr": (0.5, 0.25, 0.125, 1.0)}, 2, 1 - 0.5 * 0.75), ({"momentum": 0.5}, 1 + 1.5, 0.75)],
    ids=["step sizes", "momentum"],
)
def test_the_normaliser_and_the_update_are_those_of_the_first_steps(world, calls, options, normaliser, share):
    first_of(world(1.25, plan=local_plan(4, **options)))
    assert update_of(calls)["normaliser"] == normaliser
    assert torch.equal(update_of(calls)["vector"].resolve(), -TARGETS[1] * share)


def test_the_upload_of_a_partial_visit_takes_its_time_and_its_bytes(world):
    visit = first_of(world(1.25, up=(1e300, 4.0)))
    assert (visit.ended_seconds, visit.bytes_up) == (2.5 + 2.0, 8)


def test_a_client_that_is_still_downloading_takes_one_step(world, calls):
    # 8 bytes from 0 to 4 s, and a step of 1.5 s.
    assert first_of(world(1.5, down=(1e300, 2.0))).ended_seconds == 5.5
    assert update_of(calls)["steps"] == 1


def test_an_upload_is_not_disturbed(world, calls):
    # Trained by 1.6 s, it uploads until 9.6 s.
    visit = first_of(world(0.4, up=(1e300, 1.0)))
    assert (visit.ended_seconds, visit.bytes_up) == (pytest.approx(9.6), 8)
    assert update_of(calls)["steps"] == 4


@pytest.mark.parametrize(
    ("step_seconds", "times", "when_away", "end"),
    [
        (1.0, [(0, 1.5), (7, 99)], "pause", 7.5),  # offline in its second step, of which half a second is left
        (1.5, [(0, 3.2)], "pause", 3.0),  # offline for good from 3.2 s on, after two steps
        (1.1, [(0, 3.5), (50, 99)], "pause", 2.2),  # four steps would take until 4.4 s, but it is gone at 3.5 s
        (1.1, [(0, 3.5), (50, 99)], "lose", 2.2),
    ],
)
def test_a_client_that_goes_offline_uploads_two_steps(world, intervals, calls, step_seconds, times, when_away, end):
    visit = first_of(world(step_seconds, availability=intervals([(0, 99)], times), when_away=when_away))
    assert (visit.ended_seconds, visit.outcome) == (end, "counted")
    assert update_of(calls)["steps"] == 2


def test_a_step_that_breaks_off_is_not_uploaded(world, intervals):
    times = intervals([(0, 99)], [(0, 2.5), (50, 99)])
    visit = first_of(world(1.5, availability=times, when_away="lose"))
    assert (visit.ended_seconds, visit.outcome, visit.bytes_up) == (2.5, "lost", 0)


def test_a_lost_visit_stays_lost_when_it_is_asked_for(world):
    visit = first_of(world(1.25, loss_probability=(0.0, 1.0), lease_seconds=100.0))
    assert (visit.ended_seconds, visit.outcome) == (5.0, "lost")


def test_the_replaced_end_of_a_visit_does_not_happen(world):
    # Client 1 is asked at 2 s, back at 2.5 s and again at work; its first visit would have ended at 5 s, as the second
    # one does in part. It must do so once.
    simulation = world(1.25, seconds=30.0)
    run(simulation)
    visits = [visit for visit in simulation.ended if visit.client == 1]
    assert [visit.visit for visit in visits] == list(range(len(visits)))
    assert [visit.ended_seconds for visit in visits[:3]] == [2.5, 5.0, 7.5]
    assert all(before.ended_seconds <= after.assigned_seconds for before, after in pairwise(visits))


def test_no_update_is_staler_than_the_bound_by_more_than_a_step_takes(simulate):
    simulation = simulate(
        Port(min_clients=1, staleness_bound=2, concurrency=4),
        step_seconds=(0.1, 0.23, 0.77, 5.0),
        plan=local_plan(20, lr=0.1),
        stop=Stop(virtual_seconds=100.0),
    )
    run(simulation)
    # While a client at work is staler than 2, there is no version; so 3 is the most.
    assert max(visit.staleness for visit in simulation.ended) == 3
    assert {visit.client for visit in simulation.ended} == {0, 1, 2, 3}
    assert min(visit.ended_seconds - visit.assigned_seconds for visit in simulation.ended if visit.client == 3) >= 5.0


def test_error_feedback_remembers_the_part_that_a_partial_update_dropped(world, calls):
    plan = local_plan(4, compression=Compression("top_k", (("share", 0.5),)), error_feedback=True)
    simulation = world(1.25, plan=plan)
    first_of(simulation)
    # Of −0.75, −8.25 the larger is sent.
    assert update_of(calls)["vector"].resolve().tolist() == [0, -8.25]
    assert simulation._stages.training._memories[1].resolve().tolist() == [-0.75, 0]
