"""Training on demand, and the clients' memories from visit to visit."""

import pytest
import torch

from offbeat.algorithms.components import Compression
from offbeat.simulation.training_queue import DivergedError, TrainingQueue
from offbeat.training.trainers.backend import Job, Result
from tests.simulation.conftest import RecordingTrainer as Recorder
from tests.simulation.conftest import local_plan

PLAN = local_plan(lr=0.1)
NAN = Result(torch.full((2,), float("nan")), 0.0)


def promises(trainer, clients):
    queue = TrainingQueue(trainer, 2, seed=1)
    return queue, [queue.promise(Job(c, 0, 0, torch.zeros(2), PLAN, "delta")) for c in range(clients)]


def test_jobs_are_trained_once_when_they_are_needed():
    trainer = Recorder(batch_limit=1)
    _, work = promises(trainer, 3)
    assert trainer.batches == []
    assert work[1].resolve().tolist() == [1.0, 1.0]
    assert work[1].resolve().tolist() == [1.0, 1.0]
    assert trainer.batches == [[1]]


def test_a_batch_is_the_needed_job_and_the_oldest_others_up_to_the_limit():
    trainer = Recorder(batch_limit=3)
    _, work = promises(trainer, 6)
    work[4].resolve()
    assert trainer.batches == [[4, 0, 1]]
    assert [w.resolve().tolist() for w in work] == [[float(c)] * 2 for c in range(6)]
    assert trainer.batches == [[4, 0, 1], [2, 3, 5]]


def test_cancelled_jobs_are_not_trained():
    trainer = Recorder(batch_limit=10)
    queue, work = promises(trainer, 3)
    queue.cancel(work[1])
    work[0].resolve()
    assert trainer.batches == [[0, 2]]
    assert work[0].job is None  # the starting model is freed


def test_a_trainer_that_returns_too_few_results_is_an_error():
    trainer = Recorder()
    trainer.collect = lambda jobs: []
    _, (work,) = promises(trainer, 1)
    with pytest.raises(ValueError, match="shorter"):
        work.resolve()


def test_updates_from_before_a_restart_are_not_trained_again():
    trainer = Recorder(batch_limit=10)
    queue, work = promises(trainer, 2)
    kept = queue.kept(torch.tensor([5.0, 6.0]), None)
    assert kept.resolve().tolist() == [5.0, 6.0]
    assert kept.memory is None
    queue.cancel(kept)
    work[0].resolve()
    assert trainer.batches == [[0, 1]]


def test_work_that_diverged_keeps_its_job_and_fails_again_untrained():
    trainer = Recorder(1, lambda job: NAN)
    _, (work,) = promises(trainer, 1)
    for _ in range(2):
        with pytest.raises(DivergedError):
            work.resolve()
    assert (work.job.client, work.vector) == (0, None)
    assert trainer.batches == [[0]]


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (Result(torch.tensor([float("nan"), 1.0]), 0.0), "NaN"),
        (Result(torch.tensor([float("inf"), 1.0]), 0.0), "infinity"),
        (Result(torch.zeros(2), float("nan")), "loss is nan"),
    ],
)
def test_work_that_diverged_names_the_client_and_the_version(result, problem):
    queue = TrainingQueue(Recorder(1, lambda job: result), 2, seed=1)
    work = queue.promise(Job(17, 2, 230, torch.zeros(2), PLAN, "delta"))
    with pytest.raises(DivergedError, match=rf"client 17, from version 230: .*{problem}.*local\.lr"):
        work.resolve()


REMEMBERING = local_plan(lr=0.1, compression=Compression("top_k", (("share", 0.5),)), error_feedback=True)


def visits_of(queue, client, visits, plan=PLAN, payload="difference"):
    """Promises of a client's visits, all of which count."""
    work = []
    for visit in range(visits):
        work.append(queue.promise(Job(client, visit, visit, torch.zeros(2), plan, payload)))
        queue.note_counted(client, work[-1])
    return work


def squares(job):
    """The n-th visit's update is n², n² + 10 c; its differences are the odd numbers."""
    return Result(torch.tensor([float(job.visit**2), job.visit**2 + 10.0 * job.client]), 0.0)


@pytest.mark.parametrize("batch_limit", [1, 2, 10])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_differences_are_to_the_visit_before_in_any_order_of_training(batch_limit, order):
    trainer = Recorder(batch_limit, squares)
    queue = TrainingQueue(trainer, 2, seed=1)
    work = {client: visits_of(queue, client, 4) for client in (0, 1)}
    for visit in order:
        work[1][visit].resolve()
    assert [each.resolve().tolist() for each in work[1]] == [[0, 10], [1, 1], [3, 3], [5, 5]]
    assert [each.memory.resolve().tolist() for each in work[1]] == [[0, 10], [1, 11], [4, 14], [9, 19]]
    assert [each.resolve().tolist() for each in work[0]] == [[0, 0], [1, 1], [3, 3], [5, 5]]
    assert sorted(client for batch in trainer.batches for client in batch) == [0] * 4 + [1] * 4


def test_the_part_that_compression_drops_is_in_the_next_update():
    # Each update is 2, 3, of which the larger entry is sent: 2, 3 then 4, 3 then 2, 6.
    trainer = Recorder(10, lambda job: Result(torch.tensor([2.0, 3.0]), 0.0))
    work = visits_of(TrainingQueue(trainer, 2, seed=1), 0, 3, REMEMBERING, "delta")
    assert [each.resolve().tolist() for each in work] == [[0, 3], [4, 0], [0, 6]]
    assert [each.memory.vector.tolist() for each in work] == [[2, 0], [0, 3], [2, 0]]


def test_feedback_survives_a_change_of_the_compression():
    trainer = Recorder(10, lambda job: Result(torch.tensor([2.0, 3.0, 1.0, 1.0]), 0.0))
    queue = TrainingQueue(trainer, 4, seed=1)
    for visit, (share, sent) in enumerate([(0.5, [2, 3, 0, 0]), (0.25, [0, 3, 0, 0]), (1.0, [4, 3, 3, 3])]):
        plan = local_plan(compression=Compression("top_k", (("share", share),)), error_feedback=True)
        work = queue.promise(Job(0, visit, visit, torch.zeros(4), plan, "delta"))
        queue.note_counted(0, work)
        assert work.resolve().tolist() == sent


def test_a_visit_that_does_not_count_leaves_no_memory():
    queue = TrainingQueue(Recorder(10, squares), 2, seed=1)
    (first,) = visits_of(queue, 0, 1)
    unused = queue.promise(Job(0, 1, 1, torch.zeros(2), PLAN, "difference"))
    third = queue.promise(Job(0, 2, 2, torch.zeros(2), PLAN, "difference"))
    assert unused.resolve().tolist() == [1, 1]
    queue.cancel(unused)
    assert unused.memory is None
    assert third.resolve().tolist() == [4, 4]
    assert first.memory.vector.tolist() == [0, 0]


@pytest.mark.parametrize("batch_limit", [1, 10])
def test_long_chains_are_trained_in_order_and_in_batches_of_the_limit(batch_limit):
    trainer = Recorder(batch_limit, squares)
    queue = TrainingQueue(trainer, 2, seed=1)
    other, work = visits_of(queue, 1, 9), visits_of(queue, 0, 1503)
    assert work[-1].memory.resolve().tolist() == [1502.0**2] * 2
    assert max(map(len, trainer.batches)) == batch_limit
    # The last batch has room for some that have waited.
    trained_along = -1503 % batch_limit
    assert [each.vector is not None for each in other] == [number < trained_along for number in range(9)]
    assert all(each.job is each.before is None for each in work)
    assert all(each.memory.upload is None for each in work)


def test_only_the_clients_earlier_visits_are_trained_before_a_needed_one():
    trainer = Recorder(1, squares)
    queue = TrainingQueue(trainer, 2, seed=1)
    work = {client: visits_of(queue, client, 3) for client in (0, 1)}
    work[1][1].resolve()
    assert trainer.batches == [[1], [1]]
    assert [each.vector is None for each in (*work[0], *work[1])] == [True] * 3 + [False, False, True]


@pytest.mark.parametrize("batch_limit", [1, 10])
@pytest.mark.parametrize("needed", [0, 1, 2, 3])
def test_all_visits_after_one_that_diverged_fail_as_it_did(batch_limit, needed):
    def diverging(job):
        return NAN if (job.client, job.visit) == (1, 1) else squares(job)

    queue = TrainingQueue(Recorder(batch_limit, diverging), 2, seed=1)
    work = {client: visits_of(queue, client, 4) for client in (0, 1)}
    for visit in (needed, 0, 1, 2, 3):
        if visit == 0:
            assert work[1][0].resolve().tolist() == [0, 10]
            continue
        for promise in (work[1][visit], work[1][visit].memory):
            with pytest.raises(DivergedError, match="client 1, from version 1"):
                promise.resolve()
    assert [each.resolve().tolist() for each in work[0]] == [[0, 0], [1, 1], [3, 3], [5, 5]]
    # So that a run that goes on from a checkpoint comes to the same end.
    assert [each.job.visit for each in work[1][1:]] == [1, 2, 3]


def test_a_difference_that_overflows_names_the_client_and_the_version():
    huge = {0: -3e38, 1: 3e38}
    queue = TrainingQueue(Recorder(1, lambda job: Result(torch.full((2,), huge[job.visit]), 0.0)), 2, seed=1)
    work = visits_of(queue, 0, 2)
    with pytest.raises(DivergedError, match="client 0, from version 1: the vector contains infinity"):
        work[1].resolve()


def test_plain_updates_leave_no_memory():
    queue = TrainingQueue(Recorder(10), 2, seed=1)
    (work,) = visits_of(queue, 0, 1, PLAN, "delta")
    work.resolve()
    assert work.memory is None


def test_compression_draws_by_the_seed_the_client_and_the_visit():
    plan = local_plan(compression=Compression("random_k", (("share", 0.1),)))
    trainer = Recorder(10, lambda job: Result(torch.ones(200), 0.0))

    def sent(seed, client, visit):
        queue = TrainingQueue(trainer, 200, seed)
        return tuple(queue.promise(Job(client, visit, 0, torch.zeros(200), plan, "delta")).resolve().tolist())

    assert sent(1, 2, 3) == sent(1, 2, 3)
    assert len({sent(1, 2, 3), sent(0, 2, 3), sent(1, 0, 3), sent(1, 2, 0)}) == 4


def test_a_memory_from_before_a_restart_is_that_of_the_visit():
    queue = TrainingQueue(Recorder(10, squares), 2, seed=1)
    kept = queue.kept(torch.tensor([5.0, 6.0]), torch.tensor([1.0, 0.0]))
    assert kept.resolve().tolist() == [5, 6]
    queue.note_counted(0, kept)
    after = queue.promise(Job(0, 1, 1, torch.zeros(2), PLAN, "difference"))
    assert after.resolve().tolist() == [0, 1]


def test_memories_are_those_of_counted_visits_and_survive_a_restart():
    queue = TrainingQueue(Recorder(10, squares), 2, seed=1)
    visits_of(queue, 1, 3)
    queue.promise(Job(1, 3, 3, torch.zeros(2), PLAN, "difference"))  # does not count
    restored = TrainingQueue(Recorder(10, squares), 2, seed=1)
    restored.load_state_dict(queue.state_dict())
    for each in (queue, restored):
        assert each.memory(0) is None
        assert each.memory(1).tolist() == [4, 14]


class Stateful(Recorder):
    """A trainer whose state is the number of the client's trainings that counted, and that knows its examples."""

    keeps_states = True

    def __init__(self):
        def outcome(job):
            state = b"%d" % (int(job.state or b"0") + 1)
            return Result(torch.full((2,), float(job.visit)), 0.0, state=state, examples=10 + job.client)

        super().__init__(batch_limit=1, outcome=outcome)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_a_job_gets_the_state_of_the_last_counted_visit_in_any_order_of_training(order):
    queue = TrainingQueue(trainer := Stateful(), 2, seed=1)
    work = []
    for visit in range(3):
        work.append(queue.promise(Job(4, visit, 0, torch.zeros(2), PLAN, "delta")))
        if visit != 1:
            queue.note_counted(4, work[-1])
    for number in order:
        work[number].resolve()
    states = {job.visit: job.state for job in trainer.jobs}
    assert states == {0: None, 1: b"1", 2: b"1"}
    assert [promise.examples for promise in work] == [14, 14, 14]


def test_states_survive_a_restart():
    queue = TrainingQueue(Stateful(), 2, seed=1)
    for client in (3, 5):
        work = queue.promise(Job(client, 0, 0, torch.zeros(2), PLAN, "delta"))
        queue.note_counted(client, work)
    state = queue.state_dict()
    assert state["memories"].shape == (0, 2)
    again = TrainingQueue(trainer := Stateful(), 2, seed=1)
    again.load_state_dict(state)
    again.promise(Job(5, 1, 0, torch.zeros(2), PLAN, "delta")).resolve()
    assert trainer.jobs[0].state == b"1"
    kept = again.kept(torch.zeros(2), None, state=b"7", examples=3)
    again.note_counted(3, kept)
    again.promise(Job(3, 1, 0, torch.zeros(2), PLAN, "delta")).resolve()
    assert trainer.jobs[1].state == b"7"
    assert kept.examples == 3
