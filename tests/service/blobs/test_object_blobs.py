"""An object store that fails: behind a proxy, late, refusing, closing connections, changing bytes."""

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from offbeat.service.blobs.blobs import BlobExistsError, BlobsUnavailableError, BrokenBlobError
from tests.fault_proxy import Fault, FaultProxy
from tests.service.blobs.conftest import MEBIBYTE, REQUEST_SECONDS, OpenObjects, digest

CONTENT = bytes(range(256)) * 40
REPEATED = [Fault.UNAVAILABLE, Fault.LATE, Fault.LATE_ANSWER, Fault.LOST_REQUEST, Fault.LOST_ANSWER]


def puts(proxy: FaultProxy) -> int:
    return sum(request.startswith("PUT") for request in proxy.requests)


@pytest.mark.parametrize("fault", REPEATED)
@pytest.mark.parametrize("is_file", [False, True])
def test_an_upload_that_fails_once_is_settled(
    open_objects: OpenObjects, proxy: FaultProxy, tmp_path: Path, fault: Fault, is_file: bool
) -> None:
    blobs = open_objects(proxy.address, seconds=REQUEST_SECONDS)
    file = tmp_path / "file"
    file.write_bytes(CONTENT)
    proxy.plan("PUT", fault)
    asyncio.run(blobs.create("r1/x", file if is_file else CONTENT))
    assert puts(proxy) == (1 if fault in (Fault.LATE_ANSWER, Fault.LOST_ANSWER) else 2)
    blobs.forget("r1/x")
    assert blobs.fetch("r1/x", digest(CONTENT)).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.UNAVAILABLE, "the store answers 503 Service Unavailable"),
        (Fault.LATE, "no answer in time"),
        (Fault.LOST_REQUEST, "the connection was closed before the answer"),
    ],
)
def test_an_upload_that_always_fails_ends_in_one_line_in_time(
    open_objects: OpenObjects, proxy: FaultProxy, tmp_path: Path, fault: Fault, reason: str
) -> None:
    blobs = open_objects(proxy.address, seconds=REQUEST_SECONDS)
    file = tmp_path / "file"
    file.write_bytes(CONTENT)
    proxy.plan("PUT", fault, 100)
    began = time.monotonic()
    with pytest.raises(BlobsUnavailableError, match=f"^the blob r1/x: {reason}$"):
        asyncio.run(blobs.create("r1/x", file))
    assert time.monotonic() - began < 12 * REQUEST_SECONDS + 3
    assert puts(proxy) == 3
    assert file.read_bytes() == CONTENT


@pytest.mark.parametrize("fault", [Fault.LATE_ANSWER, Fault.LOST_ANSWER])
def test_an_outcome_that_cannot_be_read_back_is_unavailable_or_found_later(
    open_objects: OpenObjects, proxy: FaultProxy, fault: Fault
) -> None:
    blobs = open_objects(proxy.address, seconds=REQUEST_SECONDS)
    proxy.plan("PUT", fault)
    proxy.plan("GET", Fault.UNAVAILABLE, 3)  # the first reading back, with its repetitions
    asyncio.run(blobs.create("r1/x", CONTENT))  # the second upload finds the name taken, by the first
    assert puts(proxy) == 2

    proxy.plan("PUT", fault)
    proxy.plan("GET", Fault.FORBIDDEN, 100)
    with pytest.raises(BlobsUnavailableError, match=r"^the blob r1/y: the store answers 403 Forbidden$"):
        asyncio.run(blobs.create("r1/y", CONTENT))


@pytest.mark.parametrize("size", [len(CONTENT), 9 * MEBIBYTE])
@pytest.mark.parametrize("difference", ["last byte", "longer", "shorter"])
def test_an_unknown_outcome_with_other_content_under_the_name_is_no_success(
    open_objects: OpenObjects, proxy: FaultProxy, size: int, difference: str
) -> None:
    blobs = open_objects(proxy.address, seconds=REQUEST_SECONDS)
    content = os.urandom(size)
    others = {"last byte": content[:-1] + bytes([content[-1] ^ 1]), "longer": content + b"x", "shorter": content[:-1]}
    other = others[difference]
    asyncio.run(blobs.create("r1/x", other))
    proxy.plan("PUT", Fault.LOST_ANSWER)
    with pytest.raises(BlobExistsError):
        asyncio.run(blobs.create("r1/x", content))
    assert blobs.fetch("r1/x").read_bytes() == other


@pytest.mark.parametrize("method", ["PUT", "GET", "DELETE"])
def test_a_refusal_is_one_line_and_not_repeated(open_objects: OpenObjects, proxy: FaultProxy, method: str) -> None:
    blobs = open_objects(proxy.address, seconds=REQUEST_SECONDS)
    proxy.plan(method, Fault.FORBIDDEN, 100)

    async def work() -> None:
        if method == "PUT":
            await blobs.create("r1/x", CONTENT)
        elif method == "GET":
            await asyncio.to_thread(blobs.fetch, "r1/x")
        else:
            await blobs.delete("r1/x")

    with pytest.raises(BlobsUnavailableError, match=r"^the blob r1/x: the store answers 403 Forbidden$"):
        asyncio.run(work())
    assert len(proxy.requests) == 1


@pytest.mark.parametrize("fault", [*REPEATED, Fault.SHORT_ANSWER])
def test_a_download_that_fails_at_first_succeeds(open_objects: OpenObjects, proxy: FaultProxy, fault: Fault) -> None:
    blobs = open_objects(proxy.address, seconds=REQUEST_SECONDS)
    asyncio.run(blobs.create("r1/x", CONTENT))
    proxy.plan("GET", fault, 2 if fault in (Fault.UNAVAILABLE, Fault.LOST_REQUEST, Fault.LOST_ANSWER) else 1)
    assert blobs.fetch("r1/x", digest(CONTENT)).read_bytes() == CONTENT


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.LATE, Fault.SHORT_ANSWER])
def test_a_download_that_always_fails_ends_in_time_without_a_copy(
    open_objects: OpenObjects, proxy: FaultProxy, tmp_path: Path, fault: Fault
) -> None:
    blobs = open_objects(proxy.address, seconds=REQUEST_SECONDS)
    asyncio.run(blobs.create("r1/x", CONTENT))
    proxy.plan("GET", fault, 100)
    began = time.monotonic()
    with pytest.raises(BlobsUnavailableError, match=r"^the blob r1/x: [^\n]{1,300}$"):
        blobs.fetch("r1/x")
    assert time.monotonic() - began < 3 * REQUEST_SECONDS + 1
    assert [*(tmp_path / "local/.cache").iterdir()] == []


@pytest.mark.parametrize("part", [1, 2])
def test_other_bytes_in_a_download_are_found_and_not_kept(
    open_objects: OpenObjects, proxy: FaultProxy, tmp_path: Path, part: int
) -> None:
    blobs = open_objects(proxy.address)
    content = os.urandom(9 * MEBIBYTE)
    asyncio.run(blobs.create("r1/x", content))
    proxy.plan("GET", Fault.NONE, part - 1)
    proxy.plan("GET", Fault.OTHER_BYTES_DOWN)
    with pytest.raises(BrokenBlobError):
        blobs.fetch("r1/x", digest(content))
    assert [*(tmp_path / "local/.cache").iterdir()] == []
    assert blobs.fetch("r1/x", digest(content)).read_bytes() == content


def test_other_bytes_in_an_upload_are_refused_by_the_store_or_found(
    open_objects: OpenObjects, proxy: FaultProxy
) -> None:
    blobs = open_objects(proxy.address)
    proxy.plan("PUT", Fault.OTHER_BYTES_UP, 100)
    try:
        asyncio.run(blobs.create("r1/x", CONTENT))
    except BlobsUnavailableError:
        return
    with pytest.raises(BrokenBlobError):
        blobs.fetch("r1/x", digest(CONTENT))


def test_a_late_upload_is_abandoned(open_objects: OpenObjects, proxy: FaultProxy) -> None:
    blobs = open_objects(proxy.address, seconds=REQUEST_SECONDS)
    proxy.plan("PUT", Fault.LATE)
    asyncio.run(blobs.create("r1/x", CONTENT))
    assert proxy.left == 1


def test_a_store_that_is_not_there_is_unavailable(open_objects: OpenObjects) -> None:
    blobs = open_objects("http://127.0.0.1:9", seconds=REQUEST_SECONDS)
    with pytest.raises(BlobsUnavailableError, match=r"^the blob r1/x: connection refused$"):
        asyncio.run(blobs.create("r1/x", CONTENT))
    with pytest.raises(BlobsUnavailableError, match=r"^the blob r1/x: connection refused$"):
        blobs.fetch("r1/x")


def test_a_file_becomes_the_local_copy(open_objects: OpenObjects, proxy: FaultProxy, tmp_path: Path) -> None:
    blobs = open_objects(proxy.address)
    file = tmp_path / "file"
    file.write_bytes(CONTENT)
    asyncio.run(blobs.create("r1/x", file))
    assert blobs.fetch("r1/x", digest(CONTENT)).read_bytes() == CONTENT
    assert [request.partition(" ")[0] for request in proxy.requests] == ["PUT"]


def test_a_local_copy_of_another_digest_is_deleted(open_objects: OpenObjects, proxy: FaultProxy) -> None:
    blobs = open_objects(proxy.address)
    asyncio.run(blobs.create("r1/x", CONTENT))
    path = blobs.fetch("r1/x")
    with pytest.raises(BrokenBlobError):
        blobs.fetch("r1/x", "other")
    assert not path.exists()


def test_threads_that_want_the_same_blob_download_it_once(open_objects: OpenObjects, proxy: FaultProxy) -> None:
    blobs = open_objects(proxy.address)
    asyncio.run(blobs.create("r1/x", CONTENT))
    start = threading.Barrier(8)

    def fetch() -> Path:
        start.wait(10)
        return blobs.fetch("r1/x", digest(CONTENT))

    with ThreadPoolExecutor(8) as pool:
        paths = {one.result() for one in [pool.submit(fetch) for _ in range(8)]}
    assert len(paths) == 1
    assert sum(request.startswith("GET") for request in proxy.requests) == 1


def test_a_large_file_is_neither_read_nor_downloaded_into_memory(
    open_objects: OpenObjects, object_store: str, tmp_path: Path
) -> None:
    blobs = open_objects(object_store)
    file = tmp_path / "file"
    with file.open("wb") as opened:
        opened.truncate(96 * MEBIBYTE)
        opened.write(os.urandom(MEBIBYTE))
    asyncio.run(blobs.create("r1/warm", b"x"))

    def private_bytes() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

    before, most, is_over = private_bytes(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not is_over.wait(0.005):
            most = max(most, private_bytes())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        asyncio.run(blobs.create("r1/x", file))
        blobs.forget("r1/x")
        assert blobs.fetch("r1/x").stat().st_size == 96 * MEBIBYTE
    finally:
        is_over.set()
        watching.join()
        asyncio.run(blobs.delete("r1/x"))
    assert most - before < 48 * MEBIBYTE


def test_an_object_can_be_read_by_its_url_until_it_is_deleted(open_objects: OpenObjects, object_store: str) -> None:
    async def work() -> None:
        blobs = open_objects(object_store)
        await blobs.create("r1/models/3", CONTENT)
        url = await blobs.url("r1/models/3", 60)
        assert url is not None
        assert httpx.get(url, verify=False).content == CONTENT
        await blobs.delete("r1/models/3")
        assert httpx.get(url, verify=False).status_code == httpx.codes.NOT_FOUND

    asyncio.run(work())


def test_a_full_disk_here_is_one_line(
    open_objects: OpenObjects, object_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = open_objects(object_store)
    asyncio.run(blobs.create("r1/x", CONTENT))
    (tmp_path / "local/.cache").rmdir()
    with pytest.raises(BlobsUnavailableError, match=r"^the local copy of the blob r1/x: No such file or directory$"):
        blobs.fetch("r1/x")
