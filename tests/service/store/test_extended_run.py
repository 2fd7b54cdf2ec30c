"""A run may be extended, and nothing else."""

import math

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.service.store.extended_run import is_extended, stop_versions
from offbeat.service.store.store import Store


def config(versions=None, **stop):
    stop |= {} if versions is None else {"versions": versions}
    return {"model": {"name": "mlp"}} | ({"stop": stop} if stop else {})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (config(10), config(11), True),
        (config(10), config(), True),
        (config(10, target=0.9), config(20, target=0.9), True),
        (config(10), config(10), False),
        (config(10), config(9), False),
        (config(), config(10), False),
        (config(10, target=0.9), config(20, target=0.8), False),
        (config(10), config(20) | {"model": {"name": "cnn"}}, False),
    ],
)
def test_only_a_later_end_is_an_extension(before, after, expected):
    assert is_extended(before, after) == expected
    assert stop_versions(config()) == math.inf


def test_a_folder_takes_a_later_end_and_keeps_it(tmp_path):
    store = Store(tmp_path / "server")
    run_id = store.run_id(config(10))
    assert store.run_id(config(20)) == run_id
    with pytest.raises(OffbeatError, match=r"holds a run of 20 versions: stop.versions may only grow"):
        store.run_id(config(10))
    with pytest.raises(OffbeatError, match=r"other settings \(model, stop\)"):
        store.run_id(config(30) | {"model": {"name": "cnn"}})
    assert store.run_id(config(20)) == run_id
    assert store.run_id(config()) == run_id
    with pytest.raises(OffbeatError, match=r"holds a run without stop.versions: leave it out$"):
        store.run_id(config(30))
    store.close()
