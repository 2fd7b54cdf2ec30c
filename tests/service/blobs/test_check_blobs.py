import asyncio
import errno
import os
from pathlib import Path

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.service.blobs.blobs import Blobs, BlobsUnavailableError
from offbeat.service.blobs.check_blobs import check
from offbeat.service.blobs.folder_blobs import FolderBlobs
from offbeat.service.blobs.open_blobs import open_blobs
from tests.fault_proxy import Fault, FaultProxy
from tests.service.blobs.conftest import REQUEST_SECONDS, OpenObjects, at


def refusal(blobs: Blobs) -> str:
    with pytest.raises(OffbeatError) as caught:
        asyncio.run(check(blobs))
    message = str(caught.value)
    assert "\n" not in message
    return message


async def names(blobs: Blobs) -> list[str]:
    return [name async for name in blobs.names("probe")]


def test_a_good_store_passes_and_nothing_remains(blobs: Blobs) -> None:
    asyncio.run(check(blobs))
    assert asyncio.run(names(blobs)) == []


def test_a_store_that_gives_a_name_twice_cannot_be_used(open_objects: OpenObjects, proxy: FaultProxy) -> None:
    blobs = open_objects(proxy.address)
    proxy.plan("PUT", Fault.UNCONDITIONAL, 100)
    message = refusal(blobs)
    assert message.startswith("cannot use s3://offbeat/")
    assert " of 4 writers could create one name, so blobs could be overwritten; take a store " in message
    assert asyncio.run(names(blobs)) == []


@pytest.mark.parametrize(("method", "what"), [("PUT", "write to"), ("GET", "read from"), ("DELETE", "delete from")])
def test_a_missing_permission_is_one_line(open_objects: OpenObjects, proxy: FaultProxy, method: str, what: str) -> None:
    proxy.plan(method, Fault.FORBIDDEN, 100)
    message = refusal(open_objects(proxy.address))
    assert message.startswith(f"cannot {what} s3://offbeat/")
    assert "the store answers 403 Forbidden (credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in " in message


def test_a_store_that_returns_other_bytes_cannot_be_used(open_objects: OpenObjects, proxy: FaultProxy) -> None:
    proxy.plan("GET", Fault.OTHER_BYTES_DOWN)
    assert refusal(open_objects(proxy.address)).startswith("cannot read from s3://offbeat/")


def test_a_missing_bucket_is_one_line(object_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, object_store)
    blobs = open_blobs("s3://nothing/a", tmp_path, 100)
    assert refusal(blobs).startswith("cannot write to s3://nothing/a: ")
    with pytest.raises(BlobsUnavailableError, match=r"^the blob r1/x: there is no such bucket$"):
        blobs.fetch("r1/x")


def test_an_absent_store_is_one_line(open_objects: OpenObjects) -> None:
    message = refusal(open_objects("http://127.0.0.1:9", seconds=REQUEST_SECONDS))
    assert message.startswith("cannot write to s3://offbeat/")
    assert ": connection refused (" in message


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)  # as on file systems without hard links
    message = refusal(FolderBlobs(tmp_path / "blobs"))
    assert message.startswith(f"cannot write to the folder {tmp_path}/blobs: the blob probe/")
    assert message.endswith(": Operation not permitted")
