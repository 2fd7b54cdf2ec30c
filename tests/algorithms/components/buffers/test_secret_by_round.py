import pytest
import torch

from offbeat.algorithms.components import ByRound, RunFacts, Update, Weight
from offbeat.algorithms.components.buffers.secret import SecretByRound


def masked(client):
    return Update(client, 0, torch.tensor([10**client], dtype=torch.int32), 1, 1, 1.0, share=bytes([client]))


def started():
    made = SecretByRound(ByRound(), step=1.0, bound=10**8, least=2, averages_all_clients=True)
    made.start(RunFacts(1, 4))
    return made


@pytest.fixture
def buffer():
    return started()


def add(buffer, **rounds):
    for name, number in rounds.items():
        buffer.add(masked(int(name[1:])), Weight(0.25, round=number))


def test_updates_are_due_from_their_rounds_on(buffer):
    add(buffer, c0=1, c1=3, c2=1, c3=2)
    assert buffer.count == 0
    buffer.advance(1)
    assert buffer.count == 2
    closed = buffer.release(0)
    assert buffer.masked_sum(closed).tolist() == [101]
    assert (buffer.count, list(buffer.held_back())) == (0, [1, 3])
    buffer.advance(2)
    assert buffer.count == 1  # too few: the run waits
    buffer.advance(3)
    closed = buffer.release(1)
    assert buffer.reveal(closed, buffer.masked_sum(closed)).total().tolist() == [1010 / 4]
    assert (buffer.count, list(buffer.held_back())) == (0, [])


def test_what_is_left_of_a_refused_sum_is_due(buffer):
    add(buffer, c0=1, c1=1, c2=9)
    buffer.advance(1)
    assert buffer.without(buffer.release(0), 0) is None
    assert (buffer.count, list(buffer.held_back())) == (1, [1, 2])
    buffer.advance(9)
    assert buffer.masked_sum(buffer.release(1)).tolist() == [110]


def test_rounds_survive_a_restart(buffer, same_state):
    add(buffer, c0=1, c1=2, c2=5)
    buffer.advance(2)
    other = started()
    other.load_state_dict(buffer.state_dict())
    assert same_state(other.state_dict(), buffer.state_dict())
    assert (other.count, list(other.held_back())) == (2, [0, 1, 2])
    other.release(0)
    other.advance(5)
    assert other.count == 1
