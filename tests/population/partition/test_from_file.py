import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offbeat.errors import OffbeatError
from offbeat.population.partition import from_file

GOOD = "client,example\n1,0\n0,3\n1,4\n2,2\n"


@pytest.fixture
def write(tmp_path):
    def to_file(content):
        path = tmp_path / "who.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return to_file


def sets(parts):
    assert all(part.dtype == np.int64 for part in parts)
    return [sorted(part.tolist()) for part in parts]


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        GOOD.rstrip("\n"),
        GOOD.replace("\n", "\r\n"),
        "\ufeff" + GOOD,
        "client,example\n2,2\n1,4\n1,0\n0,3\n",
        "example,client\n0,1\n3,0\n4,1\n2,2\n",
        '"client","example"\n"1", 0\n"0",03\n 1,4\n2,2\n',
    ],
)
def test_reads_the_owners(write, content):
    # Nobody owns example 1.
    assert sets(from_file(write(content), 5, 3)) == [[3], [0, 4], [2]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(owner=st.lists(st.integers(-1, 4), min_size=5, max_size=60), seed=st.integers(0, 99))
def test_a_written_file_is_read_back(write, owner, seed):
    owner[:5] = range(5)
    expected = [[example for example, of in enumerate(owner) if of == client] for client in range(5)]
    given_out = [example for example, of in enumerate(owner) if of >= 0]
    order = np.random.default_rng(seed).permutation(given_out)
    path = write("client,example\n" + "".join(f"{owner[example]},{example}\n" for example in order))
    assert sets(from_file(path, len(owner), 5)) == expected


def test_the_order_is_random_but_does_not_depend_on_the_lines(write):
    rows = [f"{example % 2},{example}\n" for example in range(2000)]
    parts = from_file(write("client,example\n" + "".join(rows)), 2000, 2)
    backwards = from_file(write("client,example\n" + "".join(rows[::-1])), 2000, 2)
    for part, same in zip(parts, backwards, strict=True):
        np.testing.assert_array_equal(part, same)
        assert abs(np.corrcoef(np.arange(1000), part)[0, 1]) < 0.15


def refuse(path, reason, examples=5, clients=3):
    with pytest.raises(OffbeatError) as caught:
        from_file(path, examples, clients)
    message = str(caught.value)
    assert reason in message
    assert "\n" not in message
    assert len(message) < len(str(path)) + 400
    assert str(path) in message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "has no column 'client'"),
        ("client,example\n", ": client 0 has no examples"),
        ("0,1\n1,2\n", "has no column 'client'"),
        ("client;example\n1;0\n", "separate the columns by commas"),
        ("client,example,client\n1,0,1\n", "has more than one column 'client'"),
        ("client\n1\n", "has no column 'example'"),
        (GOOD + "1\n", "Expected 2 columns, got 1"),
        (GOOD + "1,\n", "row 6: example is empty"),
        (GOOD + "1.0,1\n", "row 6: client must be a whole number, not '1.0'"),
        ("client,example\n1,0\n3,3\n-1,2\n", "row 3: client is 3, but the clients are 0 … 2"),
        (GOOD + "-1,1\n", "row 6: client is -1, but the clients are 0 … 2"),
        (GOOD + "1,5\n", "row 6: example is 5, but the examples are 0 … 4"),
        (GOOD + "2,4\n", "row 6: example 4 was already given to client 1 in row 4"),
        ("client,example\n1,0\n1,0\n0,3\n2,2\n", "row 3: example 0 was already given to client 1 in row 2"),
        ("client,example\n0,0\n2,1\n", ": client 1 has no examples"),
    ],
)
def test_refuses_other_files(write, content, reason):
    refuse(write(content), reason)


def test_files_that_cannot_be_read(tmp_path):
    refuse(tmp_path / "none.csv", "cannot read")
    refuse(tmp_path, "Is a directory")
    refuse(tmp_path / "a\0b", "cannot read")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(
    content=st.binary(max_size=60)
    | st.text(alphabet='01,"\n\r -x', max_size=60).map(lambda t: GOOD.encode() + t.encode())
)
def test_any_content_is_read_or_refused_in_one_line(write, content):
    path = write(content)
    try:
        parts = from_file(path, 9, 3)
    except OffbeatError:
        refuse(path, str(path), 9, 3)
    else:
        held = np.concatenate(parts)
        assert len(set(held.tolist())) == len(held)


@pytest.mark.parametrize("clients", [-1, 0, 6])
def test_too_few_or_too_many_clients(write, clients):
    with pytest.raises(OffbeatError, match=f"^{clients} clients cannot share 5 examples"):
        from_file(write(GOOD), 5, clients)
