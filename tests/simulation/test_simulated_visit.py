"""Open visits, and their state in a checkpoint."""

import math

import pytest
import torch

from offbeat.coordinator import Coordinator
from offbeat.simulation.events import Kind
from offbeat.simulation.simulated_visit import SimulatedVisit, visits_from_state, visits_state
from offbeat.simulation.training_queue import TrainingQueue
from offbeat.tensor_file import read_checkpoint, write_checkpoint
from offbeat.training.trainers.backend import Job, Result
from tests.simulation.conftest import RecordingTrainer, local_plan, one_by_one

PLAN = local_plan(2, lr=0.1)


@pytest.fixture
def coordinator():
    """Five clients are at work: 0 to 2 from version 0, and 3 and 4 from version 1."""
    coordinator = Coordinator(one_by_one(6), torch.ones(2), clients=6, local=PLAN, lease_seconds=9.0)
    for client in (0, 1, 2, 5):
        coordinator.present(0.0, client)
    coordinator.assign(0.0)
    coordinator.receive(1.0, 5, 0, torch.ones(2), examples=1, steps=2, normaliser=2.0)
    for client in (3, 4):
        coordinator.present(2.0, client)
    coordinator.assign(2.0)
    return coordinator


@pytest.fixture
def queue():
    return TrainingQueue(RecordingTrainer(), 2, seed=1)


@pytest.fixture
def make(coordinator, queue):
    starts = [torch.zeros(2), torch.ones(2)]

    def build(client, *, has_work=True, has_base=False, **more):
        assignment = coordinator.visits.assignment(client)
        start = starts[assignment.version]
        job = Job(client, assignment.visit, assignment.version, start, PLAN, "delta")
        work = queue.promise(job) if has_work else None
        return SimulatedVisit(assignment, 2.0 * assignment.version, PLAN, work, start if has_base else None, **more)

    return build


@pytest.fixture
def restore(coordinator):
    """Return the visits after a restart, and the trainer of those that were not trained."""

    def restart(visits):
        trainer = RecordingTrainer(batch_limit=5)
        return visits_from_state(visits_state(visits), coordinator, TrainingQueue(trainer, 2, seed=1), "delta"), trainer

    return restart


def test_a_visit_that_has_not_been_trained_is_trained_after_the_restart(make, restore):
    visits = {3: make(3), 1: make(1, upload_began=4.5)}
    restored, trainer = restore(visits)
    assert list(restored) == [3, 1]
    for client, visit in restored.items():
        before = visits[client]
        assert visit.assignment == before.assignment
        assert (visit.assigned_seconds, visit.upload_began) == (before.assigned_seconds, before.upload_began)
        assert (visit.start, visit.sent) == (None, 0)
        assert visit.upload.job == before.upload.job
    assert restored[1].upload.resolve().tolist() == [1.0, 1.0]
    assert trainer.batches == [[1, 3]]  # both were waiting


def test_a_visit_that_has_been_trained_keeps_its_upload(make, restore):
    visits = {4: make(4), 2: make(2)}
    visits[4].upload.resolve()
    restored, trainer = restore(visits)
    assert restored[4].upload.resolve().tolist() == [4.0, 4.0]
    assert trainer.jobs == []
    assert restored[2].upload.resolve().tolist() == [2.0, 2.0]
    assert trainer.batches == [[2]]


def test_a_visit_that_will_be_lost_has_no_work_after_the_restart_either(make, restore):
    restored, _ = restore({0: make(0, has_work=False, sent=5, upload_began=1.0), 1: make(1)})
    assert (restored[0].upload, restored[0].sent, restored[0].upload_began) == (None, 5, 1.0)
    assert restored[1].upload is not None


@pytest.mark.parametrize("stage", ["lost", "waiting", "trained"])
def test_the_base_is_kept_at_any_stage(make, restore, stage):
    visits = {3: make(3, has_work=stage != "lost", has_base=True), 0: make(0)}
    if stage == "trained":
        visits[3].upload.resolve()
    restored, _ = restore(visits)
    assert restored[3].start.tolist() == [1.0, 1.0]
    assert restored[0].start is None


def test_a_starting_model_of_many_visits_is_saved_once(make):
    visits = {client: make(client) for client in range(5)}
    assert sorted(visits_state(visits)) == ["rows", "start.0", "start.1"]
    visits[3].upload.resolve()
    assert sorted(visits_state(visits)) == ["rows", "start.0", "start.1", "upload.3"]
    visits[4].upload.resolve()
    assert sorted(visits_state(visits)) == ["rows", "start.0", "upload.3", "upload.4"]


def test_a_visit_that_was_cut_short_stays_so(make, restore, queue):
    visits = {0: make(0, has_base=True), 3: make(3, has_base=True)}
    visits[0].plan = PLAN.prefix(1)
    visits[0].upload = queue.promise(Job(0, 0, 0, torch.zeros(2), PLAN.prefix(1), "delta"))
    restored, trainer = restore(visits)
    assert restored[0].plan == local_plan(1, lr=0.1)
    assert restored[0].assignment.plan == restored[3].plan == PLAN
    restored[0].upload.resolve()
    assert [(job.client, job.plan.steps) for job in trainer.jobs] == [(0, 1), (3, 2)]


@pytest.mark.parametrize(
    ("began", "uploads", "steps", "may"),
    [
        (3.0, math.inf, 2, True),
        (math.inf, math.inf, 2, False),  # the download breaks off
        (3.0, 5.0, 2, False),  # it is uploading
        (3.0, math.inf, 1, False),  # it has been cut short
    ],
)
def test_a_visit_may_be_cut_short_once_before_its_upload(make, restore, began, uploads, steps, may):
    visit = make(3, steps_began=began, upload_began=uploads)
    visit.plan = visit.plan if steps == 2 else visit.plan.prefix(steps)
    assert visit.may_be_cut_short is may
    assert restore({3: visit})[0][3].may_be_cut_short is may


@pytest.mark.parametrize("seconds", [4.5, math.inf])  # infinite for a client that never comes back
def test_a_visit_keeps_its_next_event(make, restore, seconds):
    restored = restore({3: make(3, next_seconds=seconds, next_kind=Kind.OFFER)})[0][3]
    assert (restored.next_seconds, restored.next_kind) == (seconds, Kind.OFFER)


def with_memories(trainer, memories):
    """A queue whose clients have these memories."""
    queue = TrainingQueue(trainer, 2, seed=1)
    queue.load_state_dict({"memories_of": torch.tensor([*memories]), "memories": torch.tensor([*memories.values()])})
    return queue


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("memories", [{}, {3: [1.0, 2.0]}], ids=["first", "later"])
def test_a_visit_resumes_with_its_clients_memory(coordinator, trained, memories, tmp_path):
    coordinator.algorithm.payload = "difference"
    assignment = coordinator.visits.assignment(3)
    job = Job(3, assignment.visit, assignment.version, torch.ones(2), PLAN, "difference")
    visit = SimulatedVisit(assignment, 2.0, PLAN, with_memories(RecordingTrainer(), memories).promise(job))
    if trained:
        visit.upload.resolve()
    write_checkpoint(tmp_path / "checkpoint", visits_state({3: visit}))
    trainer = RecordingTrainer()
    state = read_checkpoint(tmp_path / "checkpoint")
    restored = visits_from_state(state, coordinator, with_memories(trainer, memories), "difference")[3]
    # Its update is 3, 3.
    assert restored.upload.resolve().tolist() == ([2, 1] if memories else [3, 3])
    assert restored.upload.memory.resolve().tolist() == [3, 3]
    assert len(trainer.jobs) == (0 if trained else 1)


def test_versions_that_share_memory_can_be_saved_together(make, tmp_path):
    model = torch.tensor([1.0, 2.0])
    visits = {client: make(client, has_work=False) for client in (0, 3)}  # from versions 0 and 1
    for visit in visits.values():
        visit.start = model
    write_checkpoint(tmp_path / "checkpoint", visits_state(visits))
    state = read_checkpoint(tmp_path / "checkpoint")
    assert state["start.0"].tolist() == state["start.1"].tolist() == [1, 2]


def test_no_visits_at_all(restore):
    assert restore({})[0] == {}


def test_a_visit_whose_lease_has_ended_goes_on(coordinator, make, restore):
    visits = {0: make(0)}
    coordinator.lapse(9.0)
    assert restore(visits)[0][0].assignment == visits[0].assignment


def test_the_state_and_the_examples_of_a_trained_visit_survive(coordinator, tmp_path):
    trainer = RecordingTrainer(outcome=lambda job: Result(torch.ones(2), 0.5, state=b"kept", examples=7))
    trainer.keeps_states = True
    queue = TrainingQueue(trainer, 2, seed=1)
    assignment = coordinator.visits.assignment(0)
    work = queue.promise(Job(0, assignment.visit, 0, torch.zeros(2), PLAN, "delta"))
    work.resolve()
    write_checkpoint(tmp_path / "state", visits_state({0: SimulatedVisit(assignment, 0.0, PLAN, work)}))
    saved = read_checkpoint(tmp_path / "state")
    restored = visits_from_state(saved, coordinator, TrainingQueue(trainer, 2, seed=1), "delta")
    again = restored[0].upload
    assert (again.memory.state, again.memory.vector, again.examples) == (b"kept", None, 7)
