import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.population.partition import by_user


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(0, 2**63 - 1), st.data())
def test_a_client_is_a_user(users, seed, data):
    users = np.array(users)
    present = sorted(set(users.tolist()))
    clients = data.draw(st.integers(1, len(present)))
    parts = by_user(users, clients, seed)
    assert len(parts) == clients
    assert all(part.dtype == np.int64 for part in parts)
    chosen = [int(users[part[0]]) for part in parts]
    assert chosen == sorted(set(chosen))
    assert clients < len(present) or chosen == present
    for user, part in zip(chosen, parts, strict=True):
        np.testing.assert_array_equal(np.sort(part), np.flatnonzero(users == user))


def test_each_user_is_as_likely_as_the_others():
    users = np.repeat(np.arange(8), np.arange(8) * 20 + 1)
    chosen = [users[part[0]] for seed in range(400) for part in by_user(users, 3, seed)]
    # 400 · 3/8 = 150 times each, with a deviation of 10.
    np.testing.assert_allclose(np.bincount(chosen, minlength=8), 150, atol=50)


@pytest.mark.parametrize("clients", [-1, 0, 4])
def test_too_few_or_too_many_clients(clients):
    with pytest.raises(
        OffbeatError, match=f"^{clients} clients cannot be made from 3 users, .* between 1 and 3 clients$"
    ):
        by_user(np.array([5, 2, 2, 5, 0]), clients, 0)
