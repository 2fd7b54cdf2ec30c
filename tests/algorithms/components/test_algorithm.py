"""The driver that every algorithm inherits: the outside contract, and the clocks."""

import dataclasses
import math
import re

import numpy as np
import pytest
import torch

from offbeat.algorithms import FedAvg, FedLaAvg, LocalPlan
from offbeat.algorithms.components import Compression, LatestOfEach, Weight, WrongStepError


def test_an_algorithm_by_hand(mean, begin, upload):
    algorithm = begin(mean(size=2, lr=0.5), (10.0,), clients=4)
    assert (algorithm.version, algorithm.clients, algorithm.slots()) == (0, 4, 0)
    assert algorithm.receive(upload(0, 0, 2)) is False
    assert algorithm.receive(upload(1, 0, 6)) is True
    assert (algorithm.version, algorithm.model.tolist(), algorithm.slots()) == (1, [8], 2)
    assert algorithm.wants(2, 0)
    assert not algorithm.wants(1, 0)


@pytest.mark.parametrize(
    ("make", "start", "message"),
    [
        (lambda: FedAvg(cohort=4), (torch.ones(2), 3), "cohort must be at most the number of clients, 3, got 4"),
        (lambda: FedAvg(cohort=4), (torch.ones(2), 0), "clients must be a whole number of at least 1"),
        (lambda: FedAvg(cohort=4), (torch.ones(2), 4.0), "clients must be a whole number of at least 1"),
        (lambda: FedAvg(cohort=4), (torch.tensor([math.nan]), 4), "NaN"),
        (lambda: FedAvg(cohort=4), (torch.zeros(0), 4), "at least one parameter"),
        (lambda: FedLaAvg(cohort=2), (torch.ones(2), 5, torch.ones(4)), "data_weights must be 5 finite numbers"),
        (lambda: FedLaAvg(cohort=2), (torch.ones(2), 5, -torch.ones(5)), "data_weights must be 5 finite numbers"),
    ],
)
def test_a_start_that_is_refused_changes_nothing_of_the_run_before(make, start, message, begin, same_state):
    algorithm = begin(make(), clients=9)
    before, slots = algorithm.state_dict(), algorithm.slots()
    with pytest.raises(ValueError, match=message):
        algorithm.start(*start)
    assert same_state(algorithm.state_dict(), before)
    assert (algorithm.slots(), algorithm.clients) == (slots, 9)
    assert algorithm.wants(0, 0)


def test_an_update_may_be_heard_and_not_count(mean, begin, upload):
    algorithm = begin(mean(size=2))
    never = upload(0, 0, 1000)._replace(steps=0)
    assert algorithm.receive(never) is False
    assert (algorithm.buffer.count, algorithm.heard, algorithm.slots()) == (0, 1, 1)
    assert not algorithm.wants(0, 0)
    assert algorithm.scale(never._replace(plan=LocalPlan(1, 1, 0.1))) == 0
    algorithm.receive(upload(1, 0, 2))
    assert algorithm.receive(upload(2, 0, 4)) is True
    assert algorithm.model.tolist() == [-3]


@pytest.mark.parametrize("weight", [np.float32(0.5), np.array(0.5), torch.tensor(0.5)])
def test_weights_of_numpy_and_torch_are_numbers(mean, begin, upload, weight):
    class Weighing(mean):
        def weigh(self, update):
            return weight

    algorithm = begin(Weighing(size=1), (10.0,))
    algorithm.receive(upload(0, 0, 8))
    assert algorithm.model.tolist() == [6.0]  # 10 − ½ · 8
    assert type(algorithm.scale(upload(0, 0, 8)._replace(plan=LocalPlan(1, 1, 0.1)))) is float


@pytest.mark.parametrize(
    ("weight", "found"),
    [
        (True, "it returned True"),
        ("0.5", "it returned '0.5'"),
        (np.ones(2000), "it returned "),
        (-1.0, "it returned -1.0"),
        (np.float32(-0.5), "it returned "),
        (Weight(-2.0), "it returned -2.0"),
        (math.nan, "it returned nan"),
        (math.inf, "it returned inf"),
        (None, "it returned None: did it forget return? If the update does not count, return DOES_NOT_COUNT"),
    ],
)
def test_a_wrong_weight_is_one_line_with_its_place_and_changes_nothing(mean, begin, upload, weight, found, same_state):
    class Weighing(mean):
        def weigh(self, update):
            return weight

    algorithm = begin(Weighing(size=1))
    before = algorithm.state_dict()
    place = f"{__file__}:{Weighing.weigh.__code__.co_firstlineno}"
    with pytest.raises(WrongStepError) as caught:
        algorithm.receive(upload(0, 0, 2))
    message = str(caught.value)
    assert message.startswith(f"weigh must return a finite number of at least 0, {found}")
    assert message.endswith(f" ({place})")
    assert "\n" not in message
    assert same_state(algorithm.state_dict(), before)


def test_a_next_model_without_return_is_named_with_its_place(mean, begin, upload):
    class Forgetful(mean):
        def next_model(self, model, closed):
            pass

    algorithm = begin(Forgetful(size=1))
    algorithm.receive(upload(0, 0, 2))
    place = f"{__file__}:{Forgetful.next_model.__code__.co_firstlineno}"
    with pytest.raises(WrongStepError, match=rf"it returned None: did it forget return\? \({re.escape(place)}\)"):
        _ = algorithm.model


@pytest.mark.parametrize(
    ("method", "expected"),
    [("plan", "plan must return a LocalPlan"), ("is_ready", "is_ready must return True or False")],
)
def test_a_forgotten_return_is_one_line(mean, plan, upload, method, expected):
    forgetful = type("Forgetful", (mean,), {method: lambda self, *arguments: None})
    algorithm = forgetful()
    algorithm.start(torch.zeros(1), 9)

    def visit():
        algorithm.assign(0, plan)
        algorithm.receive(upload(0, 0, 2))

    with pytest.raises(WrongStepError, match=rf"^{expected}, it returned None: did it forget return\? \({__file__}:"):
        visit()


def test_a_refused_plan_gives_no_work(mean, begin, plan, same_state):
    class Planned(mean):
        def plan(self, client: int, local: LocalPlan) -> LocalPlan:
            if client == 5:
                raise ValueError("client 5 has no plan")
            return dataclasses.replace(local, steps=7)

    algorithm = Planned(places=2)
    algorithm.start(torch.zeros(1), 9)
    before = algorithm.state_dict()
    with pytest.raises(ValueError, match="client 5 has no plan"):
        algorithm.assign(5, plan)
    assert same_state(algorithm.state_dict(), before)
    assert algorithm.assign(4, plan) == dataclasses.replace(plan, steps=7)


def test_a_buffer_that_needs_another_payload_is_refused(mean):
    class Differences(mean):
        def compose(self):
            super().compose()
            self.buffer = LatestOfEach()

    with pytest.raises(ValueError, match="mean: LatestOfEach needs payload = 'difference', it is 'delta'"):
        Differences()


def test_whole_models_are_not_compressed(mean, plan):
    class Whole(mean):
        name = "whole"
        payload = "params"

    algorithm, compressed = Whole(), dataclasses.replace(plan, compression=Compression("sign"))
    algorithm.start(torch.zeros(1), 9)
    with pytest.raises(ValueError, match="whole uploads whole models, which cannot be compressed: leave compression"):
        algorithm.assign(0, compressed)
    assert algorithm.slots() == 4
    assert algorithm.assign(0, plan) == plan


def test_the_age_of_an_update_counts_versions(mean, begin, plan, upload):
    ages = []

    class Aged(mean):
        def weigh(self, update):
            ages.append(self.age(update))
            return 1.0

    algorithm = begin(Aged(size=1))
    for client in range(3):
        algorithm.receive(upload(client, 0, 1))
    algorithm.assign(0, plan)
    algorithm.receive(upload(0, 3, 1))
    assert ages == [0, 1, 2, 0]


def test_a_step_sees_the_version_that_it_starts_from(mean, begin, upload, deferred, vector):
    versions = []

    class Clocked(mean):
        def next_model(self, model, closed):
            versions.append((closed.version, self.version))
            return super().next_model(model, closed)

    algorithm, promises = begin(Clocked(size=1)), [deferred(vector(entry)) for entry in (1, 2, 4)]
    for client, promise in enumerate(promises):
        assert algorithm.receive(upload(client, 0)._replace(vector=promise)) is True
    assert (algorithm.version, versions, algorithm.largest.tolist()) == (3, [], [0])
    assert [promise.resolved for promise in promises] == [0, 0, 0]
    assert algorithm.model.tolist() == [-7]
    assert versions == [(0, 3), (1, 3), (2, 3)]
    assert [promise.resolved for promise in promises] == [1, 1, 1]


def test_a_step_is_as_long_as_the_run_allows(mean, begin, upload):
    algorithm = mean(size=1)
    algorithm.max_step_norm = 5.0
    begin(algorithm, (0.0, 0.0))
    algorithm.receive(upload(0, 0, 6, 8))
    assert algorithm.model.tolist() == pytest.approx([-3, -4])
    assert "max_step_norm" not in algorithm.state_dict()


def test_a_sum_that_overflows_leaves_the_model_as_it_was(mean, begin, upload):
    algorithm = begin(mean(size=2), (1.0,))
    model = algorithm.model
    algorithm.receive(upload(0, 0, 3e38))
    assert algorithm.receive(upload(1, 0, 3e38)) is True
    assert algorithm.version == 1
    assert torch.equal(algorithm.model, model)
    assert list(algorithm.refused_steps) == [0]
    assert "the sum of the updates is not finite" in algorithm.refused_steps[0]
    algorithm.receive(upload(2, 0, 2))
    algorithm.receive(upload(3, 0, 4))
    assert (algorithm.version, algorithm.model.tolist()) == (2, [-2])
    assert list(algorithm.refused_steps) == [0]


def test_refused_steps_are_saved_and_a_start_forgets_them(mean, begin, upload, same_state):
    algorithm, loaded = begin(mean(size=1)), mean(size=1)
    algorithm.receive(upload(0, 0, math.nan))
    loaded.load_state_dict(algorithm.state_dict())
    assert dict(loaded.refused_steps) == dict(algorithm.refused_steps)
    assert list(loaded.refused_steps) == [0]
    assert same_state(loaded.state_dict(), algorithm.state_dict())
    loaded.start(torch.zeros(1), 9)
    assert dict(loaded.refused_steps) == {}
