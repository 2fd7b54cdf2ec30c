import dataclasses
import math

import pytest
import torch

from offbeat.algorithms import Compression, FedLuck, Update
from offbeat.algorithms.components.server_optimizer import adam
from offbeat.algorithms.fedluck_choice import best_steps_and_compression
from offbeat.compression import COMPRESSORS, decode
from tests.algorithms.case import Case, started

BAD_TIMES = ({"step_seconds": -1.0}, {"upload_seconds": float("nan")}, {"step_seconds": float("inf")})
CASES = [
    Case("fedluck", lambda: FedLuck(server_lr=0.9), places=6, own_plan=True, also_broken=BAD_TIMES),
    Case("fedluck by examples", lambda: FedLuck(weighting="examples"), places=6, own_plan=True, also_broken=BAD_TIMES),
    Case(
        "fedluck normalising",
        lambda: FedLuck(period=3.0, steps=(2, 9), normalise=True, server_optimizer=adam()),
        places=6,
        own_plan=True,
        also_broken=(*BAD_TIMES, {"normaliser": 1e-39}),
    ),
]


@pytest.fixture
def begin():
    return lambda model=(0.0,), clients=3, **parameters: started(FedLuck(**parameters), model, clients)


def update(client, version, *entries, a=1.0, seconds=(None, None), n=1):
    vector = torch.tensor(entries, dtype=torch.float32)
    return Update(client, version, vector, n, math.ceil(a), a, step_seconds=seconds[0], upload_seconds=seconds[1])


def assign_all(algorithm, plan, clients):
    return [algorithm.assign(client, plan) for client in clients]


def top_k(share):
    return Compression("top_k", (("share", share),))


def test_periods_by_hand(begin, plan):
    algorithm = begin(model=(10.0, 0.0), server_lr=0.5)
    assign_all(algorithm, plan, range(3))
    assert algorithm.receive(update(0, 0, 4, 2, n=1)) is False
    assert algorithm.receive(update(2, 0, 0, 6, n=99)) is False  # every client counts the same
    assert (algorithm.version, algorithm.model.tolist()) == (0, [10, 0])
    assert algorithm.tick() is True
    assert algorithm.model.tolist() == [9, -2]  # − ½ · (2, 4)
    assign_all(algorithm, plan, (0, 2))
    assert algorithm.receive(update(1, 0, 2, -2)) is False
    assert algorithm.tick() is True
    assert algorithm.model.tolist() == [8, -1]  # a late one counts in full, and alone
    assert (algorithm.version, algorithm.round) == (2, 2)


def test_a_mean_weighted_by_examples_by_hand(begin, plan):
    algorithm = begin(model=(10.0, 0.0), server_lr=0.5, weighting="examples")
    assign_all(algorithm, plan, range(3))
    algorithm.receive(update(0, 0, 4, 2, n=1))
    algorithm.receive(update(2, 0, 0, 6, n=3))
    assert algorithm.tick() is True
    assert algorithm.model.tolist() == [9.5, -2.5]  # − ½ · (1 · (4, 2) + 3 · (0, 6)) / 4


@pytest.mark.parametrize(("weighting", "expected"), [("uniform", False), ("examples", True)])
def test_updates_weigh_by_examples_only_if_asked(weighting, expected):
    assert FedLuck(weighting=weighting).weighs_by_examples is expected


def test_normalised_updates_by_hand(begin, plan):
    algorithm = begin(normalise=True)
    assign_all(algorithm, plan, range(3))
    algorithm.receive(update(0, 0, 4, a=4.0))
    algorithm.receive(update(1, 0, 6, a=2.0))
    assert algorithm.tick() is True
    assert algorithm.model.tolist() == pytest.approx([-6])  # directions 1 and 3, their mean 2, times the mean a, 3


def test_a_client_without_a_step_has_no_direction(begin, plan, deferred, vector):
    algorithm, never = begin(normalise=True), deferred(vector(1000))
    assign_all(algorithm, plan, range(3))
    algorithm.receive(Update(0, 0, never, 1, 0, 0.0))
    assert algorithm.slots() == 0  # it waits for the period's end as others do
    assert algorithm.tick() is False
    assert (algorithm.version, algorithm.slots()) == (0, 1)
    algorithm.assign(0, plan)
    algorithm.receive(Update(0, 0, never, 1, 0, 0.0))
    algorithm.receive(update(1, 0, 8, a=2.0))
    assert algorithm.tick() is True
    assert algorithm.model.tolist() == [-8]
    assert never.resolved == 0


def test_a_clients_noted_speed_lasts_until_its_next_measurement(begin, plan):
    algorithm = begin()
    algorithm.note_speed(0, 9.0, 9.0)
    algorithm.note_speed(0, 0.01, 60.0)  # the last one counts
    first, unmeasured = assign_all(algorithm, plan, range(2))
    assert unmeasured == plan
    steps, share = best_steps_and_compression(0.01, 60.0, 1.0)
    assert first == dataclasses.replace(plan, steps=steps, compression=top_k(share))
    algorithm.receive(update(0, 0, 1, seconds=(0.5, 20.0)))
    algorithm.tick()
    steps, share = best_steps_and_compression(0.5, 20.0, 1.0)
    assert algorithm.assign(0, plan) == dataclasses.replace(plan, steps=steps, compression=top_k(share))


@pytest.mark.parametrize(("planned", "steps"), [(1, 2), (5, 5), (400, 9)])
def test_an_unmeasured_client_takes_the_runs_steps_and_the_largest_share(planned, steps, begin, plan):
    algorithm = begin(steps=(2, 9), compression=(0.1, 0.5))
    local = dataclasses.replace(plan, steps=planned)
    assert algorithm.assign(0, local) == dataclasses.replace(plan, steps=steps, compression=top_k(0.5))


def test_each_client_gets_the_choice_for_its_last_times(begin, plan):
    ranges = {"period": 2.0, "steps": (1, 40), "compression": (0.05, 0.8)}
    algorithm = begin(**ranges)
    measured = {0: (0.01, 0.1), 1: (0.01, 60.0), 2: (0.5, 0.1)}
    for seconds in (measured, {client: (alpha * 3, beta / 2) for client, (alpha, beta) in measured.items()}):
        assign_all(algorithm, plan, range(3))
        for client in range(3):
            algorithm.receive(update(client, algorithm.version, 1, seconds=seconds[client]))
        algorithm.tick()
        choices = []
        for client, planned in enumerate(assign_all(algorithm, plan, range(3))):
            steps, share = best_steps_and_compression(*seconds[client], **ranges)
            assert planned == dataclasses.replace(plan, steps=steps, compression=top_k(share))
            choices.append((steps, share))
        assert len(set(choices)) == 3


@pytest.mark.parametrize(("exponent", "steps", "share"), [({}, 34, 0.09), ({"compression_exponent": 1.0}, 50, None)])
def test_the_exponent_changes_the_choice(exponent, steps, share, begin, plan):
    algorithm = begin(clients=1, period=2.0, **exponent)
    algorithm.assign(0, plan)
    algorithm.receive(update(0, 0, 1, seconds=(0.05, 10.0)))
    algorithm.tick()
    planned = algorithm.assign(0, plan)
    assert planned.steps == steps
    sent = planned.compression and dict(planned.compression.parameters)["share"]
    assert sent == (share and pytest.approx(share, abs=0.005))


def test_times_stay_until_both_are_measured_anew(begin, plan):
    algorithm = begin(clients=1)
    for seconds in ((0.01, 60.0), (None, None), (9.0, None), (None, 9.0)):
        algorithm.assign(0, plan)
        algorithm.receive(update(0, algorithm.version, 1, seconds=seconds))
        algorithm.tick()
    steps, share = best_steps_and_compression(0.01, 60.0, 1.0)
    assert algorithm.assign(0, plan) == dataclasses.replace(plan, steps=steps, compression=top_k(share))


def test_a_whole_update_is_sent_without_indices(begin, plan):
    algorithm = begin()
    assert algorithm.assign(0, plan) == plan
    assert algorithm.assign(0, dataclasses.replace(plan, compression=top_k(0.3))) == plan
    remembering = dataclasses.replace(plan, compression=top_k(0.3), error_feedback=True)
    assert algorithm.assign(0, remembering) == dataclasses.replace(remembering, compression=top_k(1.0))


def test_the_chosen_compressor_exists(begin, plan):
    compression = begin(compression=(0.1, 0.25)).assign(0, plan).compression
    compressor = COMPRESSORS[compression.name](**dict(compression.parameters))
    assert decode(compressor.encode(torch.arange(8.0), 0)).tolist() == [0, 0, 0, 0, 0, 0, 6, 7]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": (0.1,)}, "FedLuck chooses the number of steps: give local.lr as one number"),
        ({"compression": Compression("qsgd", (("bits", 4),))}, "leave local.compression qsgd out"),
    ],
)
def test_plans_without_a_choice_are_refused(change, message, begin, plan, same_state):
    algorithm = begin()
    before = algorithm.state_dict()
    with pytest.raises(ValueError, match=message):
        algorithm.assign(0, dataclasses.replace(plan, **change))
    assert same_state(algorithm.state_dict(), before)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"steps": (4, 3)}, "steps must run from the smallest to the largest"),
        ({"normalise": True, "weighting": "examples"}, "normalise needs uniform weights"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        FedLuck(**parameters)
