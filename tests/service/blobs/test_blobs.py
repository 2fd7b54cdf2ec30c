import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.service.blobs.blobs import BlobExistsError, Blobs, BlobsUnavailableError, NoSuchBlobError
from offbeat.service.blobs.folder_blobs import FolderBlobs
from offbeat.service.blobs.object_blobs import ObjectBlobs, object_blobs
from tests.object_store import object_store as object_store


def in_bucket(address: str, prefix: str) -> ObjectBlobs:
    return object_blobs(
        f"s3://offbeat/{prefix}",
        endpoint=address,
        access_key_id="any",
        secret_access_key="any",
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )


@pytest.fixture(params=["folder", "objects"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "folder":
        return FolderBlobs(tmp_path / "blobs")
    return in_bucket(request.getfixturevalue("object_store"), tmp_path.name.replace("_", "-").lower())


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_a_blob_is_read_as_it_was_created(blobs: Blobs) -> None:
    async def work() -> None:
        await blobs.create("r1/updates/ab", b"0123456789")
        assert await blobs.read("r1/updates/ab") == b"0123456789"
        assert await blobs.read("r1/updates/ab", 3, 5) == b"34"
        assert await blobs.read("r1/updates/ab", 8) == b"89"

    run(work)


def test_a_name_is_taken_once(blobs: Blobs) -> None:
    async def work() -> None:
        async def race(number: int) -> int | None:
            try:
                await blobs.create("r1/x", str(number).encode())
            except BlobExistsError:
                return None
            return number

        winners = [one for one in await asyncio.gather(*map(race, range(8))) if one is not None]
        assert [str(winner).encode() for winner in winners] == [await blobs.read("r1/x")]

    run(work)


def test_what_is_not_there_is_not_read_and_can_be_deleted(blobs: Blobs) -> None:
    async def work() -> None:
        with pytest.raises(NoSuchBlobError):
            await blobs.read("r1/x")
        await blobs.create("r1/x", b"a")
        await blobs.delete("r1/x")
        await blobs.delete("r1/x")
        with pytest.raises(NoSuchBlobError):
            await blobs.read("r1/x", 0, 1)

    run(work)


def test_names_are_those_below_a_folder(blobs: Blobs) -> None:
    async def work() -> None:
        for name in ("r1/updates/a", "r1/updates/b", "r1/models/c", "r10/updates/d"):
            await blobs.create(name, b"x")
        assert sorted([name async for name in blobs.names("r1")]) == ["r1/models/c", "r1/updates/a", "r1/updates/b"]
        assert [name async for name in blobs.names("r2")] == []

    run(work)


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/../b", "A", "a b", ".a"])
def test_other_names_are_refused(blobs: Blobs, name: str) -> None:
    async def work() -> None:
        with pytest.raises(ValueError, match="is not the name of a blob"):
            await blobs.create(name, b"x")

    run(work)


def test_an_object_can_be_read_by_its_url_until_it_is_deleted(object_store: str) -> None:
    async def work() -> None:
        blobs = in_bucket(object_store, "by-url")
        await blobs.create("r1/models/3", b"content")
        url = await blobs.url("r1/models/3", 60)
        assert url is not None
        assert httpx.get(url).content == b"content"

    run(work)


def test_a_store_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def work() -> None:
        with pytest.raises(BlobsUnavailableError):
            await FolderBlobs(tmp_path / "file").create("a/b", b"x")

    run(work)


def test_a_url_of_no_store_is_refused() -> None:
    with pytest.raises(OffbeatError, match=r"^store\.blobs cannot be 'nonsense': [^\n]+$"):
        object_blobs("nonsense")
