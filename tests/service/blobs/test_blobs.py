"""The contract of all stores of blobs."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from offbeat.service.blobs.blobs import BlobExistsError, Blobs, BrokenBlobError, NoSuchBlobError, checked_blob
from tests.service.blobs.conftest import MEBIBYTE, digest


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def read(blobs: Blobs, name: str) -> bytes:
    return blobs.fetch(name).read_bytes()


@pytest.mark.parametrize("size", [1, 20 * MEBIBYTE + 5])
@pytest.mark.parametrize("is_file", [False, True])
def test_a_blob_is_fetched_as_it_was_created(blobs: Blobs, tmp_path: Path, size: int, is_file: bool) -> None:
    content = os.urandom(size)
    file = tmp_path / "file"
    file.write_bytes(content)

    async def work() -> None:
        await blobs.create("r1/updates/ab", file if is_file else content)
        assert file.exists() is not is_file
        blobs.forget("r1/updates/ab")
        assert read(blobs, "r1/updates/ab") == content
        assert blobs.fetch("r1/updates/ab", digest(content)) == blobs.fetch("r1/updates/ab")

    run(work)


@pytest.mark.parametrize("size", [1, 12 * MEBIBYTE])
@pytest.mark.parametrize("is_file", [False, True])
def test_of_racing_writers_one_creates_the_name(blobs: Blobs, tmp_path: Path, size: int, is_file: bool) -> None:
    async def work() -> None:
        async def race(number: int) -> int | None:
            content = bytes([number]) * size
            file = tmp_path / str(number)
            if is_file:
                file.write_bytes(content)
            try:
                await blobs.create("r1/x", file if is_file else content)
            except BlobExistsError:
                assert not is_file or file.read_bytes() == content
                return None
            return number

        winners = [one for one in await asyncio.gather(*map(race, range(6))) if one is not None]
        blobs.forget("r1/x")
        assert len(winners) == 1
        assert read(blobs, "r1/x") == bytes(winners) * size

    run(work)


def test_a_blob_is_neither_replaced_by_other_content_nor_created_again(blobs: Blobs) -> None:
    async def work() -> None:
        await blobs.create("r1/x", b"a")
        for content in (b"a", b"b"):
            with pytest.raises(BlobExistsError):
                await blobs.create("r1/x", content)
        assert read(blobs, "r1/x") == b"a"

    run(work)


def test_what_is_not_there_is_not_fetched_and_can_be_deleted(blobs: Blobs) -> None:
    async def work() -> None:
        with pytest.raises(NoSuchBlobError):
            blobs.fetch("r1/x")
        await blobs.create("r1/x", b"a")
        assert read(blobs, "r1/x") == b"a"
        await blobs.delete("r1/x")
        await blobs.delete("r1/x")
        with pytest.raises(NoSuchBlobError):
            blobs.fetch("r1/x")

    run(work)


def test_a_blob_of_another_digest_is_broken(blobs: Blobs) -> None:
    async def work() -> None:
        await blobs.create("r1/x", b"a")
        with pytest.raises(BrokenBlobError, match=r"^the blob r1/x has the digest [0-9a-f]{64} instead of abc$"):
            blobs.fetch("r1/x", "abc")
        assert blobs.fetch("r1/x", digest(b"a")).read_bytes() == b"a"

    run(work)


def test_a_blob_that_is_deleted_before_it_is_opened_is_not_there(blobs: Blobs) -> None:
    async def work() -> None:
        await blobs.create("r1/x", b"a")
        with pytest.raises(NoSuchBlobError), checked_blob(blobs, "r1/x", digest(b"a")) as file:  # noqa: PT012
            await blobs.delete("r1/x")
            file.open()
        await blobs.create("r1/x", b"a")
        with pytest.raises(FileNotFoundError), checked_blob(blobs, "r1/x", digest(b"a")) as file:
            file.with_name("other").open()

    run(work)


def test_a_forgotten_copy_is_not_a_deleted_blob(blobs: Blobs) -> None:
    async def work() -> None:
        await blobs.create("r1/x", b"a")
        blobs.fetch("r1/x")
        blobs.forget("r1/x")
        blobs.forget("r1/x")
        assert read(blobs, "r1/x") == b"a"

    run(work)


def test_names_are_those_below_a_folder(blobs: Blobs) -> None:
    async def work() -> None:
        for name in ("r1/updates/a", "r1/updates/b", "r1/models/c", "r10/updates/d"):
            await blobs.create(name, b"x")
        assert sorted([name async for name in blobs.names("r1")]) == ["r1/models/c", "r1/updates/a", "r1/updates/b"]
        assert [name async for name in blobs.names("r2")] == []

    run(work)


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/../b", "A", "a b", ".a", "a_b", "a" * 201])
def test_other_names_are_refused(blobs: Blobs, name: str) -> None:
    async def work() -> None:
        with pytest.raises(ValueError, match="is not the name of a blob"):
            await blobs.create(name, b"x")
        with pytest.raises(ValueError, match="is not the name of a blob"):
            blobs.fetch(name)

    run(work)


@pytest.mark.parametrize("is_file", [False, True])
def test_an_empty_blob_is_refused(blobs: Blobs, tmp_path: Path, is_file: bool) -> None:
    (tmp_path / "file").touch()

    async def work() -> None:
        with pytest.raises(ValueError, match="cannot be empty"):
            await blobs.create("r1/x", tmp_path / "file" if is_file else b"")

    run(work)
