import dataclasses
import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import Compression, FedAsync, FedBuff, FedFa, Update
from offbeat.algorithms.components.server_optimizer import adam, momentum
from offbeat.algorithms.components.staleness import constant
from tests.algorithms.case import Case

CASES = [
    Case("fedfa", lambda: FedFa(window=4, server_lr=0.9, concurrency=4), places=4),
    Case("fedfa one by one", lambda: FedFa(window=1, concurrency=2, server_optimizer=momentum()), places=2),
    Case(
        "fedfa every second",
        lambda: FedFa(window=3, release_every=2, concurrency=6, server_optimizer=adam()),
        places=6,
    ),
    Case("fedfa normalising", lambda: FedFa(window=2, normalise=True, concurrency=5), places=5),
    Case("fedfa params", lambda: FedFa(window=3, transmit="params", concurrency=4), places=4),
]

LENGTH = 3


@pytest.fixture
def begin():
    """Return a function that starts FedFa."""

    def make(model=(0.0,), clients=9, **parameters):
        algorithm = FedFa(**parameters)
        algorithm.start(torch.tensor(model), clients)
        return algorithm

    return make


@pytest.fixture
def visit(plan):
    """Return a function that gives work to a client and hands its update in at once; it says if that made a version."""

    def make(algorithm, *entries, client=0, a=1.0):
        vector = torch.tensor(entries, dtype=torch.float32) if isinstance(entries[0], int | float) else entries[0]
        algorithm.assign(client, plan)
        return algorithm.receive(Update(client, algorithm.version, vector, 1, math.ceil(a), a))

    return make


def play(rng, numbers, plan, algorithms, arrivals, a_of=(1.0,)):
    """Do the same to all: assign, drop, hand in; yield each update that came and what ``receive`` answered."""
    clients, at_work = range(8), {}
    while arrivals > 0:
        idle = [client for client in clients if client not in at_work]
        if idle and algorithms[0].slots() > 0 and rng.random() < 0.6:
            client = rng.choice(idle)
            at_work[client] = algorithms[0].version
            for algorithm in algorithms:
                algorithm.assign(client, plan)
        elif at_work:
            client = rng.choice(list(at_work))
            if rng.random() < 0.2:
                for algorithm in algorithms:
                    algorithm.drop(client, at_work[client])
                continue
            vector = torch.tensor(numbers.standard_normal(LENGTH), dtype=torch.float32)
            update = Update(client, at_work.pop(client), vector, rng.randint(1, 99), 1, rng.choice(a_of))
            arrivals -= 1
            yield update, [algorithm.receive(update) for algorithm in algorithms]


def test_deltas_by_hand(begin, visit):
    algorithm = begin(model=(100.0, 0.0), window=2)
    assert visit(algorithm, 2, 0) is False
    assert (algorithm.version, algorithm.model.tolist()) == (0, [100, 0])
    assert visit(algorithm, 4, 2) is True
    assert algorithm.model.tolist() == [97, -1]  # − (2 + 4, 0 + 2)/2
    assert visit(algorithm, 0, 8) is True
    assert algorithm.model.tolist() == [95, -6]  # − (4 + 0, 2 + 8)/2
    assert visit(algorithm, -2, 0) is True
    assert algorithm.model.tolist() == [96, -10]  # − (0 − 2, 8 + 0)/2
    assert algorithm.version == 3


def test_params_by_hand(begin, visit):
    algorithm = begin(model=(100.0, 0.0), window=2, transmit="params")
    assert visit(algorithm, 2, 0) is False
    assert (algorithm.version, algorithm.model.tolist()) == (0, [100, 0])
    assert visit(algorithm, 4, 2) is True
    assert algorithm.model.tolist() == [3, 1]
    assert visit(algorithm, 0, 8) is True
    assert algorithm.model.tolist() == [2, 5]
    assert visit(algorithm, 16, 0) is True
    assert algorithm.model.tolist() == [8, 4]
    assert algorithm.version == 3


def test_every_delta_counts_in_as_many_versions_as_the_window_is_long(begin, visit):
    algorithm, models = begin(window=4, server_lr=0.5), []
    for entry in (0, 0, 0, 8, 0, 0, 0, 0, 0):
        visit(algorithm, entry)
        models.append(algorithm.model.item())
    assert models == [0, 0, 0, -1, -2, -3, -4, -4, -4]  # − server_lr · Δ in all


@pytest.mark.parametrize("transmit", ["delta", "params"])
@pytest.mark.parametrize(
    ("window", "release_every", "expected"),
    [
        (1, 1, range(1, 13)),
        (4, 1, range(4, 13)),
        (4, 2, (4, 6, 8, 10, 12)),
        (4, 3, (4, 7, 10)),
        (4, 4, (4, 8, 12)),
    ],
)
def test_which_arrivals_make_a_version(window, release_every, expected, transmit, begin, visit):
    algorithm = begin(window=window, release_every=release_every, transmit=transmit)
    released = [number for number in range(1, 13) if visit(algorithm, number)]
    assert released == list(expected)
    assert algorithm.version == len(released)


def test_between_versions_the_window_moves_and_the_model_does_not(begin, visit):
    algorithm = begin(window=3, release_every=2)
    for entry in (100, 1, 1):
        visit(algorithm, entry)
    first = algorithm.model
    visit(algorithm, 4)
    assert algorithm.model is first
    visit(algorithm, 1)
    assert algorithm.model.item() == first.item() - 2  # the two oldest went: (1 + 4 + 1)/3


@pytest.mark.parametrize("server_lr", [1.0, 0.5, 0.125])
def test_a_window_of_one_is_plain_asynchronous_sgd_bit_for_bit(server_lr, plan, begin):
    algorithm = begin(model=(1.0, 2.0, 3.0), window=1, server_lr=server_lr, concurrency=4)
    buffered = FedBuff(buffer_size=1, staleness=constant(), server_lr=server_lr, concurrency=4)
    buffered.start(torch.tensor([1.0, 2.0, 3.0]), 9)
    model = torch.tensor([1.0, 2.0, 3.0])
    for update, made in play(random.Random(1), np.random.default_rng(1), plan, [algorithm, buffered], 60):
        model = model - server_lr * update.vector
        assert made == [True, True]
        assert torch.equal(algorithm.model, model)
        assert torch.equal(buffered.model, model)


def test_a_window_of_one_end_point_is_the_last_that_came(plan, begin):
    algorithm = begin(model=(1.0, 2.0, 3.0), window=1, transmit="params", concurrency=4)
    mixing = FedAsync(mixing_alpha=1.0, staleness=constant(), concurrency=4)
    mixing.start(torch.tensor([1.0, 2.0, 3.0]), 9)
    for update, made in play(random.Random(1), np.random.default_rng(1), plan, [algorithm, mixing], 30):
        assert made == [True, True]
        assert torch.equal(algorithm.model, update.vector)
        assert torch.equal(mixing.model, update.vector)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(1, 6),
    concurrency=st.integers(1, 6),
    optimizer=st.sampled_from([None, adam(), momentum()]),
)
def test_stepping_only_when_the_window_is_all_new_is_fedbuff_bit_for_bit(plan, seed, size, concurrency, optimizer):
    shared = {"server_lr": 0.7, "concurrency": concurrency, "server_optimizer": optimizer}
    sliding = FedFa(window=size, release_every=size, **shared)
    buffered = FedBuff(buffer_size=size, staleness=constant(), **shared)
    for algorithm in (sliding, buffered):
        algorithm.start(torch.ones(LENGTH), 8)
    script = play(random.Random(seed), np.random.default_rng(seed), plan, [sliding, buffered], 30)
    for uploads, (_, made) in enumerate(script, start=1):
        assert made == [uploads % size == 0] * 2
        assert (sliding.version, sliding.slots()) == (buffered.version, buffered.slots())
        assert torch.equal(sliding.model, buffered.model)


@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(1, 6),
    release_every=st.integers(1, 6),
    concurrency=st.integers(1, 6),
    transmit=st.sampled_from(["delta", "params"]),
    normalise=st.booleans(),
)
def test_random_arrivals_agree_with_a_window_in_numpy(
    plan, seed, size, release_every, concurrency, transmit, normalise
):
    release_every, normalise = min(release_every, size), normalise and transmit == "delta"
    server_lr = 0.7 if transmit == "delta" else 1.0
    algorithm = FedFa(
        window=size,
        transmit=transmit,
        server_lr=server_lr,
        release_every=release_every,
        concurrency=concurrency,
        normalise=normalise,
    )
    algorithm.start(torch.ones(LENGTH), 8)
    model, version, window, came = np.ones(LENGTH), 0, [], 0
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    for update, (made,) in play(rng, numbers, plan, [algorithm], 40, a_of=(0.0, 0.5, 1.0, 3.0, 7.0)):
        due = False
        if not normalise or update.normaliser > 0:
            window = [*window, (update.vector.numpy().astype(np.float64), update.normaliser)][-size:]
            came += 1
            due = came >= size and (came - size) % release_every == 0
        if due:
            vectors, a = (np.array(column) for column in zip(*window, strict=True))
            if transmit == "params":
                model = vectors.mean(axis=0)
            elif normalise:
                model = model - server_lr / size * a.mean() * (vectors / a[:, None]).sum(axis=0)
            else:
                model = model - server_lr / size * vectors.sum(axis=0)
            version += 1
        assert made is due
        assert algorithm.version == version
        np.testing.assert_allclose(algorithm.model.numpy(), model, rtol=1e-5, atol=1e-4 if normalise else 1e-5)


def test_normalised_deltas_by_hand(begin, visit):
    algorithm = begin(window=2, normalise=True)
    assert visit(algorithm, 4, a=4.0) is False
    assert visit(algorithm, 6, a=2.0) is True
    assert algorithm.model.tolist() == pytest.approx([-6])  # directions 1 and 3, their mean 2, times 3
    assert visit(algorithm, -4, a=8.0) is True
    assert algorithm.model.tolist() == pytest.approx([-12.25])  # 3 and −½, their mean 1¼, times 5


@pytest.mark.parametrize(("a", "exactly"), [(1.0, True), (8.0, True), (3.0, False)])
def test_normalising_equal_a_changes_nothing(a, exactly, plan):
    plain, normalising = (FedFa(window=3, normalise=normalise) for normalise in (False, True))
    for algorithm in (plain, normalising):
        algorithm.start(torch.ones(LENGTH), 8)
    for _, made in play(random.Random(4), np.random.default_rng(4), plan, [plain, normalising], 30, a_of=(a,)):
        assert made[0] is made[1]
    if exactly:
        assert torch.equal(plain.model, normalising.model)
    np.testing.assert_allclose(plain.model.numpy(), normalising.model.numpy(), rtol=1e-6, atol=1e-5)


def test_a_does_not_matter_unless_asked_for(plan):
    models = []
    for a_of in [(1.0,), (0.0, 2.0, 9.0)]:
        algorithm, rng = FedFa(window=3), random.Random(4)
        algorithm.start(torch.ones(LENGTH), 8)
        algorithm.assign(0, plan)
        for entry in range(9):
            algorithm.assign(0, plan)
            vector = torch.full((LENGTH,), float(entry))
            algorithm.receive(Update(0, algorithm.version, vector, 1, 1, rng.choice(a_of)))
        models.append(algorithm.model)
    assert torch.equal(*models)


def test_a_client_without_a_step_does_not_enter_a_normalised_window(begin, visit, deferred, vector):
    algorithm, never = begin(window=2, normalise=True, concurrency=1), deferred(vector(1000))
    assert visit(algorithm, 4, a=2.0) is False
    assert visit(algorithm, never, a=0.0) is False
    assert algorithm.slots() == 1
    assert not algorithm.wants(0, 0)
    assert visit(algorithm, 8, a=2.0) is True
    assert algorithm.model.tolist() == [-6]
    assert visit(algorithm, never, a=0.0) is False
    assert (algorithm.version, algorithm.model.tolist()) == (1, [-6])
    assert never.resolved == 0


def test_without_normalising_a_delta_of_no_step_is_one_like_any_other(begin, visit):
    algorithm = begin(window=2)
    visit(algorithm, 4, a=0.0)
    assert visit(algorithm, 0, a=0.0) is True
    assert algorithm.model.tolist() == [-2]


def test_a_normaliser_too_small_to_divide_by_is_refused(begin, plan, same_state):
    algorithm = begin(window=1, normalise=True)
    algorithm.assign(0, plan)
    before = algorithm.state_dict()
    for a in (1e-39, np.float64(1e-310)):
        with pytest.raises(ValueError, match="1 / normaliser must be finite in 32 bits"):
            algorithm.receive(Update(0, 0, torch.ones(1), 1, 1, a))
    assert same_state(algorithm.state_dict(), before)
    assert algorithm.receive(Update(0, 0, torch.ones(1), 1, 1, 0.25)) is True
    assert algorithm.model.tolist() == [-1]


def test_promises_wait_for_the_version_that_needs_them(begin, visit, deferred, vector):
    algorithm = begin(window=3, release_every=2)
    promises = [deferred(vector(3 * entry)) for entry in range(1, 6)]

    def resolved():
        return [promise.resolved for promise in promises]

    made = []
    for promise in promises[:2]:
        made.append(visit(algorithm, promise))
        assert algorithm.model.item() == 0  # still w_0, so nobody needs them
    for promise in promises[2:]:
        made.append(visit(algorithm, promise))
    assert (made, resolved()) == ([False, False, True, False, True], [0] * 5)
    assert algorithm.model.item() == -6 - 12
    assert resolved() == [1] * 5
    assert algorithm.model.item() == -18
    algorithm.state_dict()
    assert resolved() == [1] * 5


def test_models_are_made_of_the_window_of_their_time_however_late_they_are_read(begin, visit):
    read, unread = begin(window=2), begin(window=2)
    for entry in (1, 2, 4, 8, 16, 32):
        for algorithm in (read, unread):
            visit(algorithm, entry)
        read.state_dict()
    assert unread.model.item() == read.model.item() == -(3 + 6 + 12 + 24 + 48) / 2


def test_a_promise_that_fails_is_asked_again_and_the_window_moves_once(begin, visit, vector):
    class Failing:
        broken = True

        def resolve(self):
            if self.broken:
                raise RuntimeError("no power")
            return torch.tensor([4.0])

    algorithm, failing = begin(window=2), Failing()
    visit(algorithm, 8)
    visit(algorithm, 2)
    visit(algorithm, failing)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no power"):
            _ = algorithm.model
        with pytest.raises(RuntimeError, match="no power"):
            algorithm.state_dict()
    failing.broken = False
    assert algorithm.model.item() == -5 - 3
    visit(algorithm, 6)
    assert algorithm.model.item() == -8 - 5


@pytest.mark.parametrize(
    "parameters",
    [
        {"window": 3},
        {"window": 4, "release_every": 3, "server_optimizer": adam()},
        {"window": 3, "normalise": True},
        {"window": 3, "transmit": "params"},
    ],
)
def test_a_state_may_be_saved_at_any_point(parameters, plan, same_state):
    whole, resumed = FedFa(**parameters), FedFa(**parameters)
    for algorithm in (whole, resumed):
        algorithm.start(torch.ones(LENGTH), 8)
    twins = [whole, resumed]
    for _, made in play(random.Random(6), np.random.default_rng(6), plan, twins, 25, a_of=(0.0, 1.0, 3.0)):
        assert made[0] is made[1]
        twins[1], state = FedFa(**parameters), twins[1].state_dict()
        twins[1].load_state_dict(state)
        assert same_state(twins[1].state_dict(), state)
    assert same_state(whole.state_dict(), twins[1].state_dict())


def test_one_broken_client_does_not_spoil_what_comes_after(begin, visit):
    algorithm = begin(window=3, transmit="params")
    for entry in (1, 1e30, 3e38, 2, 3, 4):
        visit(algorithm, entry)
        _ = algorithm.model
    assert algorithm.model.item() == 3


def test_compressed_parameters_are_refused(plan, begin, same_state):
    compressed = dataclasses.replace(plan, compression=Compression("top_k", (("share", 0.1),)))
    algorithm = begin(transmit="params")
    before = algorithm.state_dict()
    with pytest.raises(ValueError, match=r"^fedfa uploads whole models, which cannot be compressed"):
        algorithm.assign(0, compressed)
    assert same_state(algorithm.state_dict(), before)
    assert algorithm.assign(0, plan) == plan
    assert begin(transmit="delta").assign(0, compressed) == compressed
