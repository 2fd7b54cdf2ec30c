"""Files of a run that several servers share, in blobs in a folder."""

import asyncio
import hashlib
import json

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.service.blobs.blobs import BlobsUnavailableError
from offbeat.service.blobs.folder_blobs import FolderBlobs
from offbeat.service.log.log import Change
from offbeat.service.store.disk import UnreachableFilesError, is_temporary
from offbeat.service.store.shared_files import SharedFiles, files_of


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def servers(tmp_path):
    """The shared files of two servers, each with a folder of its own."""
    made = []
    for name in ("one", "two"):
        for below in ("partial", "updates", "checkpoints", "models"):
            (tmp_path / name / below).mkdir(parents=True)
        made.append(SharedFiles(FolderBlobs(tmp_path / "blobs"), "1f", tmp_path / name))
    return made


def test_a_file_that_one_server_uploads_is_there_for_another_and_stays_where_it_is(servers, tmp_path):
    path = tmp_path / "one" / "updates" / "0-0-1"
    path.write_bytes(b"body")
    for _ in range(2):  # a repetition changes nothing
        asyncio.run(servers[0].upload(path, "updates/0-0-1"))
    assert path.read_bytes() == b"body"
    assert (tmp_path / "blobs" / "1f" / "updates" / "0-0-1").exists()
    got = tmp_path / "two" / "updates" / "0-0-1"
    servers[1].download("updates/0-0-1", sha256(b"body"), got)
    assert got.read_bytes() == b"body"
    got.unlink()  # it is another name of the blob's file
    got.write_bytes(b"bo")  # as a loss of power may leave it
    servers[1].download("updates/0-0-1", sha256(b"body"), got)
    assert got.read_bytes() == b"body"
    asyncio.run(servers[0].delete(["updates/0-0-1"]))
    servers[1].download("updates/0-0-1", sha256(b"body"), got)  # it is there already
    assert list((tmp_path / "two" / "partial").iterdir()) == []


@pytest.mark.parametrize("content", [None, b"other"])
def test_a_file_that_is_gone_or_broken_sends_the_server_to_a_new_start(content, servers, tmp_path):
    if content is not None:
        path = tmp_path / "one" / "x"
        path.write_bytes(content)
        asyncio.run(servers[0].upload(path, "updates/x"))
    with pytest.raises(OffbeatError, match=r"cannot follow the run's log: .*; start this server again"):
        servers[1].download("updates/x", sha256(b"body"), tmp_path / "two" / "updates" / "x")
    assert list((tmp_path / "two" / "updates").iterdir()) == []


def test_a_checkpoint_comes_with_its_models(servers, tmp_path):
    checkpoint, model = tmp_path / "one/checkpoints/7.safetensors", tmp_path / "one/models/3.safetensors"
    checkpoint.write_bytes(b"state")
    model.write_bytes(b"model")
    change = asyncio.run(servers[0].upload_checkpoint(7, checkpoint, {3: (model, sha256(b"model"))}))
    assert isinstance(change, Change)
    values = json.loads(json.dumps(change.arguments))
    servers[1].download_checkpoint(values)
    assert (tmp_path / "two/checkpoints/7.safetensors").read_bytes() == b"state"
    assert (tmp_path / "two/models/3.safetensors").read_bytes() == b"model"
    names = {path.relative_to(tmp_path / "blobs/1f").as_posix() for path in (tmp_path / "blobs/1f").rglob("*-*")}
    assert files_of(values) == names


def test_a_store_that_cannot_be_reached_is_an_error_that_passes(servers, monkeypatch, tmp_path):
    async def fail(*_):
        raise BlobsUnavailableError("503")

    monkeypatch.setattr(FolderBlobs, "create", fail)
    path = tmp_path / "one" / "x"
    path.write_bytes(b"x")
    with pytest.raises(UnreachableFilesError, match=r"blobs: 503") as caught:
        asyncio.run(servers[0].upload(path, "updates/x"))
    assert is_temporary(caught.value)
    assert list((tmp_path / "one" / "partial").iterdir()) == []


def test_a_file_whose_digest_is_blake3_is_checked(servers, tmp_path):
    blake3 = pytest.importorskip("blake3").blake3
    path, got = tmp_path / "one" / "x", tmp_path / "two" / "updates" / "x"
    path.write_bytes(b"body")
    asyncio.run(servers[0].upload(path, "updates/x"))
    with pytest.raises(OffbeatError, match=r"cannot follow the run's log: .* has the digest blake3:"):
        servers[1].download("updates/x", f"blake3:{blake3(b'other').hexdigest()}", got)
    got.write_bytes(b"bo")
    servers[1].download("updates/x", f"blake3:{blake3(b'body').hexdigest()}", got)
    assert got.read_bytes() == b"body"


def test_a_model_that_is_broken_or_cannot_be_reached_now_is_asked_for_again(servers, tmp_path, monkeypatch):
    digest = sha256(b"model")
    path = tmp_path / "one" / "models" / "3.safetensors"
    path.write_bytes(b"other")
    with pytest.raises(FileNotFoundError):
        servers[1].model(3, digest)
    asyncio.run(servers[0].upload(path, f"models/3-{digest[:16]}"))
    with pytest.raises(UnreachableFilesError):
        servers[1].model(3, digest)
    asyncio.run(servers[0].delete([f"models/3-{digest[:16]}"]))
    path.write_bytes(b"model")
    asyncio.run(servers[0].upload(path, f"models/3-{digest[:16]}"))
    assert servers[1].model(3, digest).read_bytes() == b"model"

    def fail(*_):
        raise BlobsUnavailableError("no connection")

    monkeypatch.setattr(servers[1].blobs, "fetch", fail)
    with pytest.raises(UnreachableFilesError, match="no connection"):
        servers[1].model(3, digest)
