"""FedLaAvg's buffer by itself; its rounds are in test_fedlaavg.py."""

import pytest

from offbeat.algorithms.components import LatestOfEach, RunFacts


@pytest.fixture
def add(upload):
    """Return a function that adds a difference to what the client's update from ``since`` was."""

    def run(buffer, client, version, *entries, weight=1.0, since=None):
        buffer.add(upload(client, version, *entries)._replace(since=since), weight)

    return run


def started(**parameters):
    buffer = LatestOfEach(**parameters)
    buffer.start(RunFacts(1, 4))
    return buffer


@pytest.mark.parametrize("kept", [False, True])
def test_a_client_counts_by_its_latest_update_until_it_sends_another(kept, add):
    buffer = started(kept_by_server=kept)
    add(buffer, 0, 0, 4, weight=0.5)
    add(buffer, 1, 0, 8, weight=0.25)
    assert buffer.count == 2
    assert buffer.release(0).total().tolist() == [4]
    add(buffer, 0, 1, -2, weight=0.5, since=0)
    closed = buffer.release(1)
    assert (closed.count, closed.version, buffer.count) == (1, 1, 0)
    assert closed.total().tolist() == [3]
    assert buffer.release(2).total().tolist() == [3]


def test_without_the_servers_memory_only_sums_are_needed():
    assert LatestOfEach().linear is True
    assert LatestOfEach(kept_by_server=True).linear is False


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(("since", "name"), [(1, "its update from version 1"), (-1, "its update from version -1")])
def test_a_difference_to_another_update_is_refused(kept, since, name, add, same_state):
    buffer = started(kept_by_server=kept)
    add(buffer, 0, 0, 4)
    before = buffer.state_dict()
    with pytest.raises(
        ValueError, match=f"client 0 sent a difference to {name}, but its last counted one was its update"
    ):
        add(buffer, 0, 2, 1, since=since)
    assert same_state(buffer.state_dict(), before)
    assert buffer.count == 1


def test_a_whole_update_replaces_what_the_server_kept(add):
    buffer = started(kept_by_server=True)
    add(buffer, 0, 0, 4)
    add(buffer, 0, 1, 2, since=0)
    add(buffer, 0, 2, 10)
    assert buffer.release(2).total().tolist() == [10]


def test_without_the_servers_memory_a_whole_update_is_refused(add):
    buffer = started()
    add(buffer, 0, 0, 4)
    with pytest.raises(ValueError, match="with server_keeps_updates the server could help it out"):
        add(buffer, 0, 1, 10)


def test_a_sum_that_overflowed_does_not_spoil_the_average_of_the_others(add):
    buffer = started()
    add(buffer, 0, 0, 3e38)
    add(buffer, 1, 0, 3e38)
    with pytest.raises(ValueError, match="not finite"):
        buffer.release(0).total()
    add(buffer, 2, 1, 5)
    assert buffer.release(1).total().tolist() == [5]
