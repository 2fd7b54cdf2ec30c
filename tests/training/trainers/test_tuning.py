from offbeat.training.flat_model import FlatModel
from offbeat.training.models import cnn
from offbeat.training.trainers.batched.vmap import VmapTrainer
from offbeat.training.trainers.tuning import measure_trainers
from tests.training.conftest import data_of, made
from tests.training.trainers.conftest import PLAN, Recurrent, linear
from tests.workloads import workload_of


def test_every_trainer_is_measured_and_the_model_stays():
    workload = workload_of(FlatModel(linear()), **data_of((10, 2), 6, classes=3))
    before = workload.model.vector.clone()
    rates = dict(measure_trainers(workload, PLAN, 4))
    assert rates.keys() == {"loop", "vmap"}
    assert all(rate > 0 for rate in rates.values())
    assert workload.model.vector.equal(before)


def test_no_more_clients_are_trained_together_than_are_at_work(monkeypatch):
    batches = []
    collect = VmapTrainer.collect
    monkeypatch.setattr(VmapTrainer, "collect", lambda self, jobs: batches.append(len(jobs)) or collect(self, jobs))
    workload = workload_of(FlatModel(linear()), **data_of((10, 2), 6, classes=3))
    dict(measure_trainers(workload, PLAN, 3))
    assert batches[-4:] == [3] * 4  # the others are tries


def test_convolutions_may_be_unfolded():
    workload = workload_of(FlatModel(made(lambda: cnn((1, 4, 4), 3))), **data_of((10, 2), 1, 4, 4, classes=3))
    assert [name for name, _ in measure_trainers(workload, PLAN, 4)] == ["loop", "vmap", "unfold"]


def test_a_trainer_that_cannot_train_the_model_says_why():
    workload = workload_of(FlatModel(made(Recurrent)), **data_of((10, 2), 1, 6, classes=3))
    measured = dict(measure_trainers(workload, PLAN, 4))
    assert measured["vmap"] == (
        "trainer = 'vmap': this model cannot be trained in batches (LSTM has no batched form): use 'loop'"
    )
