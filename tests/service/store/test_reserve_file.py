"""Space that is kept back."""

import os

import pytest

from offbeat.service.store.reserve_file import Reserve


@pytest.fixture
def path(tmp_path):
    return tmp_path / "reserve"


def test_a_reserve_is_held_grown_and_released(path):
    reserve = Reserve(path)
    assert reserve.hold(5000)
    assert path.stat().st_size == 5000
    assert path.stat().st_blocks * 512 >= 5000  # it does take the space
    assert reserve.hold(100)
    assert path.stat().st_size == 5000
    assert reserve.hold(9000)
    assert path.stat().st_size == 9000
    reserve.release()
    assert not path.exists()
    reserve.release()
    assert reserve.hold(10)


def test_without_fallocate_a_reserve_takes_the_space_too(path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    assert Reserve(path).hold(2**20 + 5)
    assert path.stat().st_size == 2**20 + 5
    assert path.stat().st_blocks * 512 >= 2**20 + 5


def test_a_reserve_that_does_not_fit_is_not_held(path, monkeypatch):
    def fails(*_):
        raise OSError(28, "No space left on device")

    reserve = Reserve(path)
    assert reserve.hold(10)
    monkeypatch.setattr(os, "posix_fallocate", fails)
    assert not reserve.hold(20)
    assert not path.exists()
    monkeypatch.undo()
    assert reserve.hold(10)
    assert path.stat().st_size == 10


def test_an_earlier_servers_reserve_is_released(path):
    path.write_bytes(b"left")
    Reserve(path)
    assert not path.exists()
