from functools import partial

import pytest
from offbeat_client.user_client import make_user_client, takes_run


def with_run(client, run):
    return lambda *_: (client, run)


class Site:
    def __init__(self, client, run="alone"):
        self.fit = lambda *_: (client, run)


@pytest.mark.parametrize(
    ("make_client", "got"),
    [
        (with_run, (3, "wards")),
        (Site, (3, "wards")),
        (lambda client, name: lambda *_: (client, name), (3, "wards")),
        (partial(lambda folder, client, run: lambda *_: (folder, client, run), "data"), ("data", 3, "wards")),
        (lambda client: lambda *_: client, 3),
        (lambda client, folder="data": lambda *_: (client, folder), (3, "data")),
        (lambda client, *more: lambda *_: (client, *more), (3,)),
    ],
)
def test_a_function_gets_the_run_if_it_takes_one(make_client, got):
    assert make_user_client(make_client, 3, "wards").fit({}, None) == got


def test_without_several_runs_it_gets_the_number_alone():
    assert make_user_client(Site, 3).fit({}, None) == (3, "alone")


def test_a_function_without_a_signature_gets_the_number_alone():
    assert not takes_run(int)
