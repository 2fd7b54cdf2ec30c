import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from safetensors.torch import save_file

from offbeat import checkpoint
from offbeat.checkpoint import read_checkpoint, write_checkpoint
from tests.error_line import error_line

STATE: dict[str, Any] = {
    "model": torch.tensor([0.1, -2.0, float("nan"), float("inf")]),
    "numbers": torch.arange(6).reshape(2, 3),
    "flags": torch.tensor([True, False]),
    "nothing": torch.empty(0),
    "one": torch.tensor(0.1, dtype=torch.float64),
    "now": 1 / 3,
    "end": float("inf"),
    "large": 2**63,
    "none": None,
    "rows": [(1, 2.5), [None, "é"]],
    "table": {"a": {"b": 1}},
}


def test_a_state_comes_back(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "x", STATE)
    back = read_checkpoint(tmp_path / "x")
    assert back.keys() == STATE.keys()
    for key, value in STATE.items():
        if isinstance(value, torch.Tensor):
            assert back[key].dtype == value.dtype
            assert torch.equal(back[key].nan_to_num(nan=7.0), value.nan_to_num(nan=7.0))
    plain = {key: value for key, value in back.items() if not isinstance(value, torch.Tensor)}
    assert plain == {
        "now": 1 / 3,
        "end": float("inf"),
        "large": 2**63,
        "none": None,
        "rows": [[1, 2.5], [None, "é"]],  # tuples are lists afterwards
        "table": {"a": {"b": 1}},
    }


@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_if_it_cannot_be_written_the_last_one_stays(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "x", {"now": 1})

    def half(file: BinaryIO, *_: Any) -> None:
        file.write(b"half of it")
        raise OSError("no space")

    def fail(*_: Any) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patch:
        if moment == "write":
            patch.setattr(checkpoint, "write_tensors", half)
        elif moment == "fsync":
            patch.setattr(os, "fdatasync", fail, raising=False)
        else:
            patch.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="no space"):
            write_checkpoint(tmp_path / "x", {"now": 2})
    assert read_checkpoint(tmp_path / "x") == {"now": 1}
    write_checkpoint(tmp_path / "x", {"now": 3})
    assert read_checkpoint(tmp_path / "x") == {"now": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.skipif(os.name == "nt", reason="sends SIGKILL")
def test_a_kill_while_it_is_written_leaves_a_whole_one(tmp_path: Path) -> None:
    script = f"""
import sys, torch
from pathlib import Path
from offbeat.checkpoint import write_checkpoint
number = 0
while True:
    number += 1
    state = {{"number": number, "model": torch.full((2_000_000,), float(number))}}
    write_checkpoint(Path({str(tmp_path / "x")!r}), state)
    print(number, flush=True)
"""
    for wait in (0.0, 0.02):
        (tmp_path / "x").unlink(missing_ok=True)
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as writing:
            assert writing.stdout is not None
            writing.stdout.readline()
            time.sleep(wait)
            writing.send_signal(signal.SIGKILL)
        state = read_checkpoint(tmp_path / "x")
        assert state["model"].tolist() == [float(state["number"])] * 2_000_000


class TestRefused:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        write_checkpoint(tmp_path / "x", STATE)
        return tmp_path / "x"

    @pytest.mark.parametrize("size", [0, 8, 100, -1])
    def test_a_truncated_one(self, size: int, path: Path) -> None:
        path.write_bytes(path.read_bytes()[:size])
        assert error_line(read_checkpoint, path) == f"{path} is broken: run again with --fresh"

    @pytest.mark.parametrize("content", [b"\xff" * 300, b"{}", b"\x02\0\0\0\0\0\0\0{}garbage", b"PAR1" * 9])
    def test_something_else(self, content: bytes, path: Path) -> None:
        path.write_bytes(content)
        assert "run again with --fresh" in error_line(read_checkpoint, path)

    def test_a_missing_one_and_a_folder(self, tmp_path: Path) -> None:
        assert "is broken" in error_line(read_checkpoint, tmp_path / "nowhere")
        assert "is broken" in error_line(read_checkpoint, tmp_path)

    @pytest.mark.parametrize("metadata", [None, {"format": "2"}])
    def test_one_of_another_format(self, metadata: dict[str, str] | None, path: Path) -> None:
        save_file({"model": torch.zeros(3)}, path, metadata)
        line = error_line(read_checkpoint, path)
        found = metadata["format"] if metadata else None
        assert f"{path} is a checkpoint of format {found}, this version of Offbeat reads format 1" in line
        assert "run again with --fresh" in line

    @pytest.mark.parametrize("plain", [None, b"{", b"\xff", b"[1]"])
    def test_one_whose_plain_values_are_broken(self, plain: bytes | None, path: Path) -> None:
        tensors = {"model": torch.zeros(3)}
        if plain is not None:
            tensors["plain values"] = torch.frombuffer(bytearray(plain), dtype=torch.uint8)
        save_file(tensors, path, {"format": checkpoint.FORMAT})
        assert error_line(read_checkpoint, path) == f"{path} is broken: run again with --fresh"
