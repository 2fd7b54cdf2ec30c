"""A version that a checkpoint deletes while it is downloaded."""

import os
from pathlib import Path

import pytest
from starlette.responses import FileResponse

from tests.service.http_client import kind_of, until

RANGES = ["bytes=10-19", "bytes=10-19,30-39", "bytes=-5", "bytes=0-"]


@pytest.mark.parametrize("ranges", RANGES)
def test_a_range_of_a_version_that_is_deleted_once_it_is_open_is_whole(ranges, server, monkeypatch):
    peer = server.enrol()
    path = server.service.engine.models.path(peer.check_in()["version"])
    headers = {"Range": ranges}
    expected = peer.http.get("/v1/models/0", headers=headers)
    assert expected.status_code == 206
    call = FileResponse.__call__

    async def deletes(self, scope, receive, send):
        path.unlink()
        await call(self, scope, receive, send)

    monkeypatch.setattr(FileResponse, "__call__", deletes)
    answer = peer.http.get("/v1/models/0", headers=headers)
    assert answer.status_code == 206
    if "," not in ranges:  # between several parts there is a random separator
        assert answer.content == expected.content
    assert len(answer.content) == len(expected.content)


def test_a_range_of_a_version_that_is_deleted_before_it_is_open_is_not_found(server, monkeypatch):
    peer = server.enrol()
    path = server.service.engine.models.path(peer.check_in()["version"])
    stat = Path.stat

    def deletes(self, **arguments):
        found = stat(self, **arguments)
        if self == path:
            path.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "stat", deletes)
    answer = peer.http.get("/v1/models/0", headers={"Range": "bytes=10-19"})
    assert kind_of(answer, 404) == "no-such-version"


def test_ranges_that_make_no_sense_leave_no_file_open(server):
    peer = server.enrol()
    peer.check_in()

    def models_open():
        places = map(os.path.realpath, Path("/proc/self/fd").iterdir())
        return [place for place in places if place.startswith(str(server.folder)) and ".safetensors" in place]

    for ranges in ("bytes=zzz", "bytes=100000-", "bytes=5-2", "lines=1-2"):
        assert peer.http.get("/v1/models/0", headers={"Range": ranges}).status_code in (400, 416)
    until(lambda: models_open() == [])
