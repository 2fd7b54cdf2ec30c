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


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOSPC])
def test_a_segment_that_cannot_be_made_is_tried_again_with_the_next_body(code, segments, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("os.open", failing(code))
        with pytest.raises(OSError, match=re.escape(os.strerror(code))):
            segments.append(b"body")
    assert segments.append(b"body")[1] == 0


ONES = torch.ones(LENGTH)


def test_segments_may_end_while_updates_wait_for_their_turn(tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.service.store.segments._FULL", 0)  # each body in one of its own
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=50, concurrency=40), clients=40) as server:
        peers = [server.enrol() for _ in range(40)]
        visits = [peer.check_in() for peer in peers]
        with ThreadPoolExecutor(40) as pool:
            answers = list(pool.map(lambda peer, visit: peer.send(visit, ONES), peers, visits))
        assert all(answer["counted"] for answer in answers)
        server.checkpoint()
        assert peers[0].send(peers[0].check_in(), ONES)["counted"]
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=50, concurrency=40), clients=40) as server:
        assert server.service.engine.coordinator.statistics.counted == 41
