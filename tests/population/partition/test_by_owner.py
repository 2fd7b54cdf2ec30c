import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.population.partition import by_user, from_file


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


HEADER = "client,example\n"
GOOD = HEADER + "1,0\n0,3\n1,4\n2,2\n"


@pytest.fixture
def divide(tmp_path):
    """Return a function that divides examples by the content of a file."""

    def call(content, examples=5, clients=3):
        path = tmp_path / "clients.csv"
        path.write_text(content)
        parts = from_file(path, examples, clients)
        assert all(part.dtype == np.int64 for part in parts)
        return parts

    return call


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(owner=st.lists(st.integers(-1, 4), min_size=5, max_size=60), seed=st.integers(0, 99))
def test_a_written_file_is_read_back(divide, owner, seed):
    owner[:5] = range(5)
    expected = [[example for example, of in enumerate(owner) if of == client] for client in range(5)]
    given_out = [example for example, of in enumerate(owner) if of >= 0]
    order = np.random.default_rng(seed).permutation(given_out)
    parts = divide(HEADER + "".join(f"{owner[example]},{example}\n" for example in order), len(owner), 5)
    assert [sorted(part.tolist()) for part in parts] == expected


def test_the_order_is_random_but_does_not_depend_on_the_lines(divide):
    rows = [f"{example % 2},{example}\n" for example in range(2000)]
    parts, backwards = (divide(HEADER + "".join(lines), 2000, 2) for lines in (rows, rows[::-1]))
    for part, same in zip(parts, backwards, strict=True):
        np.testing.assert_array_equal(part, same)
        assert abs(np.corrcoef(np.arange(1000), part)[0, 1]) < 0.15


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (HEADER, r"clients\.csv: client 0 has no examples"),
        ("client\n1\n", "has no column 'example'"),
        (HEADER + "1,0\n3,3\n-1,2\n", "row 3: client is 3, but the clients are 0 … 2"),
        (GOOD + "1,5\n", "row 6: example is 5, but the examples are 0 … 4"),
        (GOOD + "2,4\n", "row 6: example 4 was already given to client 1 in row 4"),
        (HEADER + "1,0\n1,0\n0,3\n2,2\n", "row 3: example 0 was already given to client 1 in row 2"),
        (HEADER + "0,0\n2,1\n", r"clients\.csv: client 1 has no examples"),
    ],
)
def test_other_files_are_refused(divide, content, reason):
    with pytest.raises(OffbeatError, match=reason):
        divide(content)


@pytest.mark.parametrize("clients", [0, 6])
def test_too_few_or_too_many_clients_are_refused(divide, clients):
    with pytest.raises(OffbeatError, match=f"^{clients} clients cannot share 5 examples"):
        divide(GOOD, 5, clients)
