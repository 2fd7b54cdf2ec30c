import pytest
import torch

from offbeat.algorithms import FedLaAvg
from offbeat.algorithms.components import LatestOfEach, RunFacts, Update
from offbeat.algorithms.components.buffers.secret import SecretLatestOfEach, secret

STEP = 0.1  # not a power of two: sums of floats would not be exact
CLIENTS = 7


def whole(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


def masked(client, number, *, since=None, version=0):
    return Update(client, version, whole(number, -number), 1, 1, 1.0, since=since, share=b"share")


def started():
    made = SecretLatestOfEach(LatestOfEach(), step=STEP, bound=100, least=2, averages_all_clients=True)
    made.start(RunFacts(2, CLIENTS))
    return made


@pytest.fixture
def buffer():
    return started()


def open_sum(buffer, version):
    closed = buffer.release(version)
    return buffer.reveal(closed, buffer.masked_sum(closed)).total()


def average(*numbers):
    total = sum(numbers)
    return (torch.tensor([total, -total]).double() * (STEP / CLIENTS)).float()


def test_differences_add_up_to_the_average_of_the_latest_exactly(buffer):
    buffer.add(masked(0, 30), 1 / CLIENTS)
    buffer.add(masked(1, 5), 1 / CLIENTS)
    assert torch.equal(open_sum(buffer, 0), average(30, 5))
    before = 30
    for version in range(1, 200):
        after = (before * 31 + version) % 50
        buffer.add(masked(0, after - before, since=version - 1, version=version), 1 / CLIENTS)
        assert torch.equal(open_sum(buffer, version), average(after, 5))
        before = after


def test_a_difference_to_another_update_is_refused_and_changes_nothing(buffer, same_state):
    buffer.add(masked(0, 30), 1 / CLIENTS)
    before = buffer.state_dict()
    for client, since in ((0, 0), (1, 3)):
        with pytest.raises(ValueError, match=f"client {client} sent a difference to its update from version {since}"):
            buffer.add(masked(client, 1, since=since), 1 / CLIENTS)
    assert same_state(buffer.state_dict(), before)
    open_sum(buffer, 0)
    with pytest.raises(ValueError, match=r"client 0 sent a difference to nothing, .* from version 0: it has lost its"):
        buffer.add(masked(0, 1, version=1), 1 / CLIENTS)


def test_an_update_in_a_sum_that_cannot_be_opened_does_not_count(buffer):
    buffer.add(masked(0, 30), 1 / CLIENTS)
    buffer.release(0)
    wrong = buffer.release(0)
    with pytest.raises(ValueError, match="out of range"):
        buffer.reveal(wrong, whole(101, 0))
    buffer.add(masked(0, 4, version=1), 1 / CLIENTS)  # to nothing again
    assert torch.equal(open_sum(buffer, 1), average(4))


def test_a_refused_update_is_not_in_the_average(buffer):
    for client in range(3):
        buffer.add(masked(client, 10**client), 1 / CLIENTS)
    left = buffer.without(buffer.release(0), 2)
    assert torch.equal(buffer.reveal(left, buffer.masked_sum(left)).total(), average(1, 10))
    buffer.add(masked(2, 7, version=1), 1 / CLIENTS)
    assert torch.equal(open_sum(buffer, 1), average(1, 10, 7))


def test_everything_survives_a_restart(buffer, same_state):
    buffer.add(masked(0, 30), 1 / CLIENTS)
    open_sum(buffer, 0)
    buffer.add(masked(0, 3, since=0, version=1), 1 / CLIENTS)
    sealed = buffer.release(1)
    buffer.add(masked(1, 4, version=1), 1 / CLIENTS)
    other = started()
    other.load_state_dict(buffer.state_dict())
    loaded = other.sealed_from(buffer.sealed_state(sealed))
    assert same_state(other.state_dict(), buffer.state_dict())
    assert [entry.update.since for entry in loaded.entries] == [0]
    assert torch.equal(other.reveal(loaded, other.masked_sum(loaded)).total(), average(33))
    assert torch.equal(open_sum(other, 2), average(33, 4))


def test_the_scale_of_a_share_of_all_clients_is_one(plan):
    for clients in (7, 49, 1000):  # 49 · (1 / 49) is not 1 in floating-point numbers
        algorithm = FedLaAvg(cohort=2, weighting="uniform")
        algorithm.wrap(secret(step=STEP, bound=100, least=2))
        algorithm.start(torch.zeros(2), clients)
        assert algorithm.scale(masked(0, 1)._replace(plan=plan)) == 1.0
