import numpy as np
import pytest

from offbeat_client.client_folder.model_file import read_model
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


def test_another_process_resumes(server, connection, tmp_path, model, fault):
    server.serve(12, model)
    server.faults[PATH] = [fault(body_bytes=50), fault(401), fault()]
    with pytest.raises(ServiceError):
        download(connection, 12, tmp_path)
    with Connection(server.url) as other:
        path = download(other, 12, tmp_path)
    assert ranges(server) == [None, "bytes=50-", "bytes=50-"]
    assert path.read_bytes() == server.models[12]


def test_pieces_of_different_files_are_not_put_together(server, connection, tmp_path, model, fault):
    server.serve(12, model)
    server.faults[PATH] = [fault(body_bytes=50), fault(401)]
    with pytest.raises(ServiceError):
        download(connection, 12, tmp_path)
    server.serve(12, {name: tensor + 1 for name, tensor in model.items()})
    server.etags[12] = '"other"'
    assert np.array_equal(read_model(download(connection, 12, tmp_path), 6)["bias"], np.array([6.0, 7.0], np.float32))


def test_the_rest_of_another_version_is_not_used(server, connection, tmp_path, model, fault):
    server.serve(12, model)
    server.faults[PATH] = [fault(body_bytes=len(server.models[12]) - 2), fault(401)]
    with pytest.raises(ServiceError):
        download(connection, 12, tmp_path)
    server.serve(13, {name: tensor + 1 for name, tensor in model.items()})
    server.etags[13] = server.etags[12]
    assert download(connection, 13, tmp_path).read_bytes() == server.models[13]


def test_a_deleted_version_is_refused(server, connection, tmp_path):
    with pytest.raises(ServiceError) as caught:
        download(connection, 12, tmp_path)
    assert caught.value.kind == "no-such-version"
