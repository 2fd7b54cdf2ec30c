import mmap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from offbeat.service.blobs import local_copies
from offbeat.service.blobs.local_copies import LocalCopies


def download_of(content: bytes) -> Callable[[Path], str]:
    def download(path: Path) -> str:
        path.write_bytes(content)
        return "digest"

    return download


def no_download(path: Path) -> str:
    raise AssertionError


def is_held(copies: LocalCopies, name: str) -> bool:
    try:
        copies.get(name, no_download)
    except AssertionError:
        return False
    return True


@pytest.fixture
def _without_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_copies, "_KEPT_SECONDS", 0)


@pytest.mark.usefixtures("_without_grace")
def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path / "cache", limit=30)
    for name in ("a", "b", "c"):
        copies.get(name, download_of(b"x" * 10))
    copies.get("a", no_download)
    copies.get("d", download_of(b"x" * 10))
    assert [name for name in "abcd" if is_held(copies, name)] == ["a", "c", "d"]
    assert sum(path.stat().st_size for path in (tmp_path / "cache").iterdir()) == 30


def test_a_copy_just_asked_for_stays(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path / "cache", limit=10)
    first = copies.get("a", download_of(b"x" * 10))
    copies.get("b", download_of(b"x" * 10))
    assert first.path.read_bytes() == b"x" * 10


@pytest.mark.usefixtures("_without_grace")
def test_a_mapped_copy_stays_readable(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path / "cache", limit=10)
    with copies.get("a", download_of(b"x" * 10)).path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    copies.get("b", download_of(b"y" * 10))
    assert not is_held(copies, "a")
    assert mapped[:] == b"x" * 10


def test_threads_that_want_the_same_download_it_once(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path / "cache", limit=100)
    calls: list[Path] = []
    may_end = threading.Event()

    def download(path: Path) -> str:
        calls.append(path)
        may_end.wait(10)
        path.write_bytes(b"x")
        return "digest"

    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(copies.get, "a", download) for _ in range(8)]
        may_end.wait(0.2)
        may_end.set()
        paths = {one.result().path for one in waiting}
    assert len(calls) == len(paths) == 1


def test_a_failed_download_fails_for_all_that_wait_and_is_tried_again_later(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path / "cache", limit=100)
    may_end = threading.Event()

    def failing(path: Path) -> str:
        path.write_bytes(b"half")
        may_end.wait(10)
        raise OSError("broken")

    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(copies.get, "a", failing) for _ in range(4)]
        may_end.wait(0.2)
        may_end.set()
        assert [str(one.exception()) for one in waiting] == ["broken"] * 4
    assert [*(tmp_path / "cache").iterdir()] == []
    assert copies.get("a", download_of(b"x")).path.read_bytes() == b"x"


def test_copies_of_a_former_process_are_not_used(tmp_path: Path) -> None:
    LocalCopies(tmp_path / "cache", limit=100).get("a", download_of(b"torn?"))
    assert not is_held(LocalCopies(tmp_path / "cache", limit=100), "a")
    assert [*(tmp_path / "cache").iterdir()] == []


def test_a_copy_that_somebody_deleted_is_downloaded_again(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path / "cache", limit=100)
    copies.get("a", download_of(b"x")).path.unlink()
    assert copies.get("a", download_of(b"x")).path.read_bytes() == b"x"


def test_names_with_folders_do_not_meet(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path / "cache", limit=100)
    copies.get("a/b", download_of(b"x"))
    copies.get("a-b", download_of(b"y"))
    assert copies.get("a/b", no_download).path.read_bytes() == b"x"
