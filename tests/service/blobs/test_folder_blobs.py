import asyncio
import errno
import os
import time
from pathlib import Path

import pytest

from offbeat.service.blobs import folder_blobs
from offbeat.service.blobs.blobs import BlobsUnavailableError, NoSuchBlobError
from offbeat.service.blobs.folder_blobs import FolderBlobs
from tests.service.power import Power

CONTENT = bytes(range(256)) * 10


@pytest.mark.parametrize("is_file", [False, True])
def test_an_acknowledged_blob_survives_a_loss_of_power(tmp_path: Path, is_file: bool) -> None:
    folder = tmp_path / "blobs"
    blobs = FolderBlobs(folder)
    file = tmp_path / "file"
    file.write_bytes(CONTENT)
    power = Power(folder)
    with power.on():
        asyncio.run(blobs.create("r1/x", file if is_file else CONTENT))
        power.lose(tmp_path / "after")
    assert (tmp_path / "after/r1/x").read_bytes() == CONTENT


def test_the_names_of_new_folders_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def seen(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    asyncio.run(FolderBlobs(tmp_path / "blobs").create("r1/updates/x", b"x"))
    assert {str(tmp_path / part) for part in (".", "blobs", "blobs/r1", "blobs/r1/updates")} <= {*synced}


def test_a_file_on_the_same_file_system_is_linked_without_a_copy(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")
    file = tmp_path / "file"
    file.write_bytes(CONTENT)
    inode = file.stat().st_ino
    asyncio.run(blobs.create("r1/x", file))
    assert blobs.fetch("r1/x").stat().st_ino == inode


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no second file system")
def test_a_file_on_another_file_system_is_copied(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")
    file = Path("/dev/shm") / f"blob-{os.getpid()}"
    file.write_bytes(CONTENT)
    assert file.stat().st_dev != tmp_path.stat().st_dev
    asyncio.run(blobs.create("r1/x", file))
    assert blobs.fetch("r1/x").read_bytes() == CONTENT
    assert not file.exists()
    assert [*(tmp_path / "blobs/.partial").iterdir()] == []


def test_a_failed_sync_is_no_blob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")
    asyncio.run(blobs.create("r1/other", b"x"))
    fsync = os.fsync

    def broken(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == "r1":
            raise OSError(errno.EIO, "I/O error")
        fsync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken)
        with pytest.raises(BlobsUnavailableError, match=r"^the blob r1/x: I/O error$"):
            asyncio.run(blobs.create("r1/x", CONTENT))
    asyncio.run(blobs.create("r1/x", CONTENT))


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(BlobsUnavailableError, match=r"^the blob r1/x: No space left on device$"):
        asyncio.run(blobs.create("r1/x", CONTENT))
    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == []


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BlobsUnavailableError):
        asyncio.run(FolderBlobs(tmp_path / "file").create("a/b", b"x"))


def test_a_file_that_is_deleted_during_the_look_at_it_is_no_blob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = FolderBlobs(tmp_path)
    asyncio.run(blobs.create("r1/x", CONTENT))

    def deleted(path: Path) -> None:
        path.unlink()
        path.open()

    monkeypatch.setattr(folder_blobs, "digest_of", deleted)
    with pytest.raises(NoSuchBlobError):
        blobs.fetch("r1/x", "abc")


def test_leftovers_of_a_kill_are_deleted_after_a_day(tmp_path: Path) -> None:
    partial = tmp_path / ".partial"
    partial.mkdir()
    (partial / "old").touch()
    (partial / "young").touch()
    os.utime(partial / "old", (0, time.time() - 90_000))
    FolderBlobs(tmp_path)
    assert [path.name for path in partial.iterdir()] == ["young"]
