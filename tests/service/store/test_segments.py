"""Segments, without a server around them."""

import errno
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from offbeat.algorithms import FedBuff
from offbeat.service.store.segments import Segments
from tests.service.conftest import LENGTH, running


@pytest.fixture
def segments(tmp_path):
    made = Segments(tmp_path)
    yield made
    made.close()


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def failing(code):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    return fail


def test_small_bodies_share_a_file_and_are_aligned(segments):
    segment, begin = segments.append(b"first")
    assert (segment.path.name, begin) == ("segment-1", 0)
    same, second = segments.append(b"second")
    assert (same, second) == (segment, 8)
    assert segment.path.read_bytes() == b"first\0\0\0second"


def test_a_segment_is_synced_by_its_own_descriptor_and_closed_once_nobody_needs_it(segments, monkeypatch):
    before = descriptors()
    segment, _ = segments.append(b"body")
    segments.close()
    with monkeypatch.context() as patch:
        patch.setattr("os.open", failing(errno.EMFILE))
        segment.sync()
    assert descriptors() == before + 1
    del segment
    assert descriptors() == before


def test_the_space_of_a_deleted_segment_is_freed_at_once(segments, tmp_path):
    before = descriptors()
    path = segments.append(b"body")[0].path
    segments.release([tmp_path / "another"])
    assert segments.append(b"body")[0].path == path
    path.unlink()
    segments.release([path])
    assert descriptors() == before
    segment, begin = segments.append(b"body")
    assert (segment.path.exists(), begin) == (True, 0)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOSPC])
def test_a_segment_that_cannot_be_made_is_tried_again_with_the_next_body(code, segments, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("os.open", failing(code))
        with pytest.raises(OSError, match=re.escape(os.strerror(code))):
            segments.append(b"body")
    assert segments.append(b"body")[1] == 0


def test_segments_may_end_while_updates_wait_for_their_turn(tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.service.store.segments._FULL", 0)  # each body in one of its own
    make, ones = lambda: FedBuff(buffer_size=50, concurrency=10), torch.ones(LENGTH)
    with running(tmp_path / "server", make, clients=10) as server:
        peers = [server.enrol() for _ in range(10)]
        visits = [peer.check_in() for peer in peers]
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda peer, visit: peer.send(visit, ones), peers, visits))
        assert all(answer["counted"] for answer in answers)
        server.checkpoint()
        assert peers[0].send(peers[0].check_in(), ones)["counted"]
    with running(tmp_path / "server", make, clients=10) as server:
        assert server.service.engine.coordinator.statistics.counted == 11
