"""Downloads of a version that a checkpoint deletes, and by nginx."""

import importlib
import os
import shutil
from pathlib import Path

import httpx
import pytest
from starlette.responses import FileResponse

from tests.service.http_client import kind_of, until


@pytest.fixture
def peer(server):
    """A client that works on version 0."""
    enrolled = server.enrol()
    enrolled.check_in()
    return enrolled


def download(peer, ranges):
    return peer.http.get("/v1/models/0", headers={"Range": ranges})


def test_a_range_of_a_version_that_is_deleted_once_it_is_open_is_complete(server, peer, monkeypatch):
    path = server.service.engine.models.path(0)
    content, call = path.read_bytes(), FileResponse.__call__

    async def deletes(self, scope, receive, send):
        path.unlink()
        await call(self, scope, receive, send)

    for ranges in ("bytes=10-19", "bytes=10-19,30-39", "bytes=-5", "bytes=0-"):
        path.write_bytes(content)
        expected = download(peer, ranges)
        with monkeypatch.context() as patch:
            patch.setattr(FileResponse, "__call__", deletes)
            answer = download(peer, ranges)
        assert expected.status_code == answer.status_code == 206
        if "," not in ranges:  # between several parts there is a random separator
            assert answer.content == expected.content
        assert len(answer.content) == len(expected.content)


def test_a_range_of_a_version_that_is_deleted_before_it_is_open_is_not_found(server, peer, monkeypatch):
    path, stat = server.service.engine.models.path(0), Path.stat

    def deletes(self, **arguments):
        found = stat(self, **arguments)
        if self == path:
            path.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "stat", deletes)
    assert kind_of(download(peer, "bytes=10-19"), 404) == "no-such-version"


def test_ranges_that_make_no_sense_leave_no_file_open(server, peer):
    def models_open():
        places = map(os.path.realpath, Path("/proc/self/fd").iterdir())
        return [place for place in places if place.startswith(str(server.folder)) and ".safetensors" in place]

    long = "9" * 5000
    for ranges in ("bytes=zzz", "bytes=100000-", "bytes=5-2", "lines=1-2", "bytes=-", f"bytes={long}-"):
        assert download(peer, ranges).status_code in (400, 416)
    for ranges in ("bytes=", "bytes=-0", "bytes=--1", f"bytes=0-{long}", "bytes=\xb2-"):
        assert download(peer, ranges.encode("latin-1")).status_code in (200, 206, 400, 416)
    until(lambda: models_open() == [])


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")
def test_nginx_as_documented_sends_models_that_the_server_permits(server, peer, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    port, models = int(server.url.rpartition(":")[2]), server.folder / "models"
    nginx = importlib.import_module("nginx").Nginx(tmp_path / "nginx", port, models)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{nginx.port}", headers=peer.http.headers) as http:
            model, content = http.get("/v1/models/0"), peer.http.get("/v1/models/0").content
            assert model.content == content
            assert model.headers["cache-control"] == "private, no-cache"
            assert http.get("/v1/models/0", headers={"Range": "bytes=10-19"}).content == content[10:20]
            sha256 = server.service.engine.models.digest(0)
            assert http.get("/v1/models/0", headers={"If-None-Match": f'"{sha256}"'}).status_code == 304
            assert model.headers["etag"] != f'"{sha256}"'  # it is nginx's own
            assert http.get("/models/0.safetensors").status_code == 404
            assert http.get("/v1/models/0", headers={"Authorization": "Bearer none"}).status_code == 401
            assert http.post("/v1/visits/0/heartbeat").json()["wanted"]
        direct = peer.http.get("/v1/models/0", headers={"Offbeat-Models": "/elsewhere"})
        assert (direct.content, direct.headers["x-accel-redirect"]) == (b"", "/elsewhere/0.safetensors")
    finally:
        nginx.stop()
