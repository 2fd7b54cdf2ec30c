import pytest

from offbeat_client.http.connection import Connection
from offbeat_client.http.download import download
from offbeat_client.http.refusal import ServiceError, UnreachableError

PATH = ("GET", "/v1/models/12")


def ranges(server):
    return [headers.get("Range") for _, path, headers in server.heard if path == PATH[1]]


def test_a_version_is_downloaded_once_and_others_go(server, connection, tmp_path, model):
    for version in (12, 13):
        server.serve(version, model)
        path = download(connection, version, tmp_path)
        assert path.read_bytes() == server.models[version]
    assert download(connection, 13, tmp_path) == path
    assert server.paths("GET") == ["/v1/models/12", "/v1/models/13"]
    assert [file.name for file in tmp_path.glob("model*")] == ["model-13.safetensors"]


def test_a_broken_download_resumes(server, connection, tmp_path, model, fault):
    server.serve(12, model)
    server.faults[PATH] = [fault(body_bytes=50), fault(503), fault(body_bytes=30)]
    path = download(connection, 12, tmp_path)
    assert ranges(server) == [None, "bytes=50-", "bytes=50-", "bytes=80-"]
    assert path.read_bytes() == server.models[12]


def test_progress_resets_the_attempts(server, connection, tmp_path, model, fault):
    server.serve(12, model)
    server.faults[PATH] = [fault(body_bytes=10)] * 8
    assert download(connection, 12, tmp_path).read_bytes() == server.models[12]


def test_without_progress_attempts_end(server, connection, tmp_path, model, fault):
    server.serve(12, model)
    server.faults[PATH] = [fault(body_bytes=0)] * 8
    with pytest.raises(UnreachableError):
        download(connection, 12, tmp_path)
    assert len(server.heard) == 4


@pytest.fixture
def interrupted(server, connection, tmp_path, model, fault):
    """Break the download of version 12 off two bytes before its end; return how many came."""
    server.serve(12, model)
    size = len(server.models[12]) - 2
    server.faults[PATH] = [fault(body_bytes=size), fault(401)]
    with pytest.raises(ServiceError):
        download(connection, 12, tmp_path)
    return size


def test_another_process_resumes(server, interrupted, tmp_path):
    with Connection(server.url) as other:
        path = download(other, 12, tmp_path)
    assert ranges(server) == [None, f"bytes={interrupted}-", f"bytes={interrupted}-"]
    assert path.read_bytes() == server.models[12]


@pytest.mark.parametrize(("version", "etag"), [(12, '"other"'), (13, '"12"')], ids=["other bytes", "other version"])
def test_pieces_of_different_files_are_not_joined(server, interrupted, connection, tmp_path, model, version, etag):
    server.serve(version, {name: tensor + 1 for name, tensor in model.items()})
    server.etags[version] = etag
    assert download(connection, version, tmp_path).read_bytes() == server.models[version]


def test_a_deleted_version_is_refused(server, connection, tmp_path):
    with pytest.raises(ServiceError, match="no-such-version"):
        download(connection, 12, tmp_path)
