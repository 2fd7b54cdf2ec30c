import os
from pathlib import Path
from typing import BinaryIO

import pytest

from offbeat import files
from offbeat.files import rename_durably, replace_durably, sync_file, sync_folder


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been synced, by its name, and renamed."""
    done: list[str] = []
    replace = Path.replace

    def record(descriptor: int) -> None:
        done.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")

    def rename(path: Path, target: Path) -> Path:
        done.append(f"rename {path.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fdatasync", record)
    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(Path, "replace", rename)
    return done


def content(file: BinaryIO) -> None:
    file.write(b"new")


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads the names of descriptors from /proc")
class TestOrder:
    def test_content_then_name_then_folder(self, steps: list[str], tmp_path: Path) -> None:
        replace_durably(tmp_path / "x", content)
        assert steps == ["sync .x.partial", "rename .x.partial", f"sync {tmp_path.name}"]
        assert (tmp_path / "x").read_text() == "new"

    def test_a_rename_waits_for_the_content(self, steps: list[str], tmp_path: Path) -> None:
        (tmp_path / "new").write_text("new")
        rename_durably(tmp_path / "new", tmp_path / "x")
        assert steps == ["sync new", "rename new"]

    def test_files_by_path_and_descriptor_and_folders(self, steps: list[str], tmp_path: Path) -> None:
        with (tmp_path / "x").open("wb") as file:
            sync_file(file.fileno())
        sync_file(tmp_path / "x")
        sync_folder(tmp_path)
        assert steps == ["sync x", "sync x", f"sync {tmp_path.name}"]

    def test_a_system_without_fdatasync(
        self, steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(os, "fdatasync")
        (tmp_path / "x").touch()
        sync_file(tmp_path / "x")
        assert steps == ["sync x"]


@pytest.mark.parametrize("step", ["write", "sync", "rename"])
def test_a_failure_leaves_the_old_content_and_nothing_else(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_text("old")

    def fail(*_: object) -> None:
        raise OSError("no space")

    if step == "sync":
        monkeypatch.setattr(files, "sync_file", fail)
    elif step == "rename":
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        replace_durably(tmp_path / "x", fail if step == "write" else content)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"x": "old"}


@pytest.mark.skipif(os.name == "nt", reason="has no permissions")
def test_permissions_are_those_asked_for_whatever_was_left_there(tmp_path: Path) -> None:
    (tmp_path / ".x.partial").touch(0o644)
    replace_durably(tmp_path / "x", content, mode=0o600)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600
