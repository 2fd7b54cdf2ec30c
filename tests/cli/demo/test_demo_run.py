"""The folder of a demo: emptied, locked, and never one of something else."""

from pathlib import Path

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.cli.demo.demo_run import empty_folder


def test_files_of_an_earlier_demo_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "demo"
    for _ in range(2):
        with empty_folder(folder):
            assert [path.name for path in folder.iterdir()] == ["demo.lock"]
            (folder / "model").write_text("old")
            (folder / "clients").mkdir()


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        empty_folder(tmp_path),
        pytest.raises(OffbeatError, match=r"another demo runs in .*: wait for its end"),
        empty_folder(tmp_path),
    ):
        pass


def test_anything_else_stays(tmp_path: Path) -> None:
    file = tmp_path / "thesis.tex"
    file.write_text("years of work")
    for folder, message in (
        (tmp_path, r"holds something other than a demo: choose another folder$"),
        (file, r"thesis\.tex is a file: choose another folder$"),
    ):
        with pytest.raises(OffbeatError, match=message), empty_folder(folder):
            pass
    assert file.read_text() == "years of work"
