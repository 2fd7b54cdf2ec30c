"""The saved state of an algorithm: what ``compose`` and ``begin`` assign, and nothing else."""

import pytest
import torch

from offbeat.algorithms import ALGORITHMS
from offbeat.algorithms.components import RunFacts
from offbeat.algorithms.components.hyper_parameters import hyper_parameters


def test_the_state_is_what_was_assigned_at_the_start(mean, begin, upload):
    algorithm = begin(mean(size=3), (1.0, 2.0))
    algorithm.receive(upload(2, 0, 1, 1, examples=17))
    state = algorithm.state_dict()
    assert state["model"].tolist() == state["largest"].tolist() == [1, 2]
    assert (state["version"], state["clients"], state["heard"], state["sealed"]) == (0, 9, 1, 0)
    assert (state["examples.keys"].tolist(), state["examples.values"].tolist()) == ([2], [17])
    assert state["buffer.sum"].tolist() == [1, 1]
    assert state["schedule.clients"].tolist() == [0, 1, 3]


def test_saving_takes_the_steps_that_move_the_rest_first(mean, begin, upload):
    algorithm = begin(mean(size=1))
    algorithm.receive(upload(0, 0, -4))
    assert algorithm.state_dict()["largest"].tolist() == [4]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_hyper_parameters_are_not_in_the_state(name):
    algorithm = ALGORITHMS[name]()
    algorithm.start(torch.zeros(2), 1 if algorithm.pooled else 100)
    heads = {key.partition(".")[0] for key in algorithm.state_dict()}
    assert not heads & set(hyper_parameters(type(algorithm)))
    assert {"model", "version", "clients", "schedule", "buffer"} <= heads


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], "^seen = list cannot be saved: an algorithm's state is made of"),
        ({"a": 1}, "^seen cannot be saved: a dict in an algorithm's state has numbers for keys"),
    ],
)
def test_an_attribute_that_cannot_be_saved_is_an_error_at_the_start(value, message, mean):
    class Careless(mean):
        def begin(self, model):
            super().begin(model)
            self.seen = value

    with pytest.raises(TypeError, match=message):
        Careless().start(torch.zeros(1), 9)


def test_an_attribute_that_is_first_assigned_during_the_run_is_named(mean, begin, upload):
    class Late(mean):
        def note(self, update):
            super().note(update)
            self.last = update.client

    algorithm = begin(Late())
    assert algorithm.state_dict()["heard"] == 0
    algorithm.receive(upload(0, 0, 1))
    with pytest.raises(TypeError, match=r"^mean\.last was first assigned during the run: assign it in begin$"):
        algorithm.state_dict()


def test_an_authors_component_is_started_and_saved(mean, begin, upload):
    class Counter:
        """Counts updates by client."""

        def check_run(self, run: RunFacts) -> None:
            if run.clients > 50:
                raise ValueError("at most 50 clients are counted")

        def start(self, run: RunFacts) -> None:
            self.counts = torch.zeros(run.clients, dtype=torch.int64)

        def state_dict(self):
            return {"counts": self.counts.clone()}

        def load_state_dict(self, state):
            self.counts = state["counts"].clone()

    class Counts(mean):
        def compose(self):
            super().compose()
            self.counter = Counter()

        def note(self, update):
            self.counter.counts[update.client] += 1

    algorithm, restored = begin(Counts(), clients=5), Counts()
    algorithm.receive(upload(3, 0, 1))
    state = algorithm.state_dict()
    assert state["counter.counts"].tolist() == [0, 0, 0, 1, 0]
    restored.load_state_dict(state)
    assert restored.counter.counts.tolist() == [0, 0, 0, 1, 0]
    with pytest.raises(ValueError, match="at most 50 clients are counted"):
        algorithm.start(torch.zeros(1), 51)
    assert algorithm.counter.counts.tolist() == [0, 0, 0, 1, 0]
    algorithm.start(torch.zeros(1), 2)
    assert algorithm.counter.counts.tolist() == [0, 0]
