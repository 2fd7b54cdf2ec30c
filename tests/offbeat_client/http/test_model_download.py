import gzip
from typing import NamedTuple

import pytest
from offbeat_client.http.connection import Connection
from offbeat_client.http.model_download import MOST_HEADER_BYTES, download
from offbeat_core.errors import GiveUpError, OffbeatError
from offbeat_core.files import sha256
from offbeat_core.http.service_errors import ServiceError, UnreachableError

PATH = ("GET", "/v1/models/12")


class Named(NamedTuple):
    version: int
    model_sha256: str
    length: int = 6


def named(server, version=12):
    return Named(version, server.digest(version))


def ranges(server):
    return [headers.get("Range") for _, path, headers in server.heard if path == PATH[1]]


def test_a_version_is_downloaded_once_and_others_go(server, connection, tmp_path, model):
    for version in (12, 13):
        server.serve(version, {name: tensor + version for name, tensor in model.items()})
        path = download(connection, named(server, version), tmp_path)
        assert path.read_bytes() == server.models[version]
    assert download(connection, named(server, 13), tmp_path) == path
    assert server.paths("GET") == ["/v1/models/12", "/v1/models/13"]
    assert [file.name for file in tmp_path.iterdir()] == [f"model-{server.digest(13)}.safetensors"]


def test_a_broken_download_resumes_and_progress_resets_the_attempts(server, connection, tmp_path, model, fault):
    server.serve(12, model)
    server.faults[PATH] = [fault(body_bytes=50), fault(503), *[fault(body_bytes=10)] * 4]
    path = download(connection, named(server), tmp_path)
    assert ranges(server) == [None, *(f"bytes={size}-" for size in (50, 50, 60, 70, 80, 90))]
    assert path.read_bytes() == server.models[12]


def test_without_progress_attempts_end(server, connection, tmp_path, model, fault):
    with pytest.raises(ServiceError, match="no-such-version"):
        download(connection, named(server), tmp_path)
    server.heard.clear()
    server.serve(12, model)
    server.faults[PATH] = [fault(body_bytes=0)] * 8
    with pytest.raises(UnreachableError):
        download(connection, named(server), tmp_path)
    assert len(server.heard) == 4


@pytest.fixture
def interrupted(server, connection, tmp_path, model, fault):
    """Break the download of version 12 off two bytes before its end; return how many came."""
    server.serve(12, model)
    size = len(server.models[12]) - 2
    server.faults[PATH] = [fault(body_bytes=size), fault(401)]
    with pytest.raises(ServiceError):
        download(connection, named(server), tmp_path)
    return size


def test_another_process_resumes(server, interrupted, tmp_path):
    with Connection(server.url) as other:
        path = download(other, named(server), tmp_path)
    assert ranges(server) == [None, f"bytes={interrupted}-", f"bytes={interrupted}-"]
    assert path.read_bytes() == server.models[12]


@pytest.mark.parametrize("version", [12, 13])
def test_pieces_of_different_files_are_not_joined(server, interrupted, connection, tmp_path, model, version):
    server.serve(version, {name: tensor + 1 for name, tensor in model.items()})
    assert download(connection, named(server, version), tmp_path).read_bytes() == server.models[version]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_that_another_process_has_changed_is_downloaded_again(server, connection, tmp_path, model):
    server.serve(12, model)
    path = download(connection, named(server), tmp_path)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert download(connection, named(server), tmp_path).read_bytes() == server.models[12]
    assert len(server.paths("GET")) == 2


def test_a_model_that_was_not_named_is_not_used(server, interrupted, connection, tmp_path, model):
    wanted = named(server)
    server.models[12] = server.models[12][:-2] + b"no"  # under the same ETag, so that the rest is sent
    for resumed in (True, False):
        with pytest.raises(GiveUpError, match="the server sent another model than it had named for version 12"):
            download(connection, wanted, tmp_path)
        assert ranges(server)[-1] == (f"bytes={interrupted}-" if resumed else None)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_announced", [True, False])
def test_a_model_that_is_larger_than_its_parameters_is_not_written(server, connection, tmp_path, model, is_announced):
    server.serve(12, model)
    most = MOST_HEADER_BYTES + 8 * 6
    server.models[12] += bytes(most + 1 - len(server.models[12]))
    server.is_chunked = not is_announced
    with pytest.raises(GiveUpError, match=rf"^the server sends {most + 1} bytes or more for version 12, but its 6 "):
        download(connection, named(server), tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= (0 if is_announced else most)
    server.models[12] = server.models[12][:-1]
    assert sha256(download(connection, named(server), tmp_path)) == server.digest(12)


def test_a_model_is_never_decompressed(server, connection, tmp_path, model):
    server.serve(12, model)
    wanted = named(server)
    server.models[12] = gzip.compress(server.models[12])
    server.model_headers["Content-Encoding"] = "gzip"
    with pytest.raises(GiveUpError, match="another model"):
        download(connection, wanted, tmp_path)
    assert server.heard[0][2]["Accept-Encoding"] == "identity"


def redirect(server, url, etag=None):
    server.raw["/v1/models/12"] = (307, {"Location": url, "ETag": etag or f'"{server.digest(12)}"'}, b"")


def test_a_model_comes_from_the_servers_store_without_the_token_and_resumes(server, connection, tmp_path, model, fault):
    server.serve(12, model)
    connection.token, connection.supports = "obc_secret", "needs_loss"
    redirect(server, f"{server.url}/v1/models/0?X-Amz-Signature=ab")
    server.models[0], server.etags[0] = server.models[12], None  # of a store, whose ETag is another
    server.faults["GET", "/v1/models/0"] = [fault(body_bytes=50), fault(403), fault(416)]
    path = download(connection, named(server), tmp_path)
    assert path.read_bytes() == server.models[12]
    heard = [(path, headers) for _, path, headers in server.heard]
    assert [path for path, _ in heard] == 4 * ["/v1/models/12", "/v1/models/0"]
    assert [headers.get("Range") for path, headers in heard if path == "/v1/models/0"] == [
        None,
        "bytes=50-",
        "bytes=50-",
        None,
    ]
    for path, headers in heard:
        is_server = path == "/v1/models/12"
        assert headers.get("Authorization") == ("Bearer obc_secret" if is_server else None)
        assert headers.get("Offbeat-Supports") == ("needs_loss, redirects" if is_server else None)
        assert "If-Range" not in headers or is_server


def test_a_redirect_of_another_program_is_refused(server, connection, tmp_path, model):
    server.serve(12, model)
    redirect(server, f"{server.url}/login", etag='"other"')
    with pytest.raises(ServiceError, match="it redirects to http"):
        download(connection, named(server), tmp_path)
    assert server.paths("GET") == ["/v1/models/12"]


def test_a_store_that_has_another_file_is_not_believed(server, connection, tmp_path, model):
    server.serve(12, model)
    server.serve(0, {name: tensor + 1 for name, tensor in model.items()})
    redirect(server, f"{server.url}/v1/models/0")
    with pytest.raises(GiveUpError, match="another model"):
        download(connection, named(server), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_server_with_tls_cannot_send_its_clients_to_a_store_without(connection):
    connection.url = "https://127.0.0.1"
    with (
        pytest.raises(OffbeatError, match=r"^the server sends its clients to a store without TLS: tell its operator$"),
        connection.stream_elsewhere("http://127.0.0.1/x", {}),
    ):
        pass
