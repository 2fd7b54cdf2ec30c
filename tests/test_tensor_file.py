import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from safetensors.torch import load_file, save_file

from offbeat import checkpoint_values, tensor_file
from offbeat.tensor_file import read_checkpoint, write_checkpoint, write_tensors
from tests.error_line import error_line

TENSORS = {
    "flags": torch.tensor([True, False, True]),
    "floats": torch.tensor([[0.1, -0.0], [float("nan"), float("inf")]]),
    "one": torch.tensor(1 / 3, dtype=torch.float64),
    "half": torch.tensor([0.5, -3.0], dtype=torch.bfloat16),
    "numbers": torch.tensor([2**62, -1]),
    "small": torch.tensor([2**31 - 1], dtype=torch.int32),
    "bytes": torch.arange(5, dtype=torch.uint8),
    "nothing": torch.empty(0, 3),
    "across": torch.arange(6.0).reshape(2, 3).T,
    "every other": torch.arange(6.0)[::2],
}


def written(tensors, metadata=None) -> bytes:
    file = BytesIO()
    write_tensors(file, tensors, metadata)
    return file.getvalue()


def test_the_library_reads_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(written(TENSORS, {"format": "3"}))
    back = load_file(tmp_path / "x")
    assert back.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert back[name].dtype == tensor.dtype
        assert back[name].shape == tensor.shape
        assert back[name].contiguous().view(-1).view(torch.uint8).tolist() == (
            tensor.contiguous().view(-1).view(torch.uint8).tolist()
        )


def test_entries_begin_where_whoever_maps_the_file_needs_them() -> None:
    assert b"__metadata__" not in written(TENSORS)
    data = written(TENSORS, {"what": "é"})
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    assert header.pop("__metadata__") == {"what": "é"}
    for name, tensor in TENSORS.items():
        assert (8 + size + header[name]["data_offsets"][0]) % tensor.itemsize == 0


def test_a_type_without_a_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        written({"x": torch.zeros(2, dtype=torch.complex64)})


def test_nothing_is_copied(tmp_path: Path) -> None:
    large = torch.ones(2_000_000)
    tracemalloc.start()
    try:
        with (tmp_path / "x").open("wb") as file:
            write_tensors(file, {"x": large, "y": large[1:]})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 1_000_000


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


def test_if_it_cannot_be_written_the_last_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path / "x", {"now": 1})

    def half(file: BinaryIO, *_: Any) -> None:
        file.write(b"half of it")
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(tensor_file, "write_tensors", half)
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
from offbeat.tensor_file import write_checkpoint
number = 0
while True:
    number += 1
    state = {{"number": number, "model": torch.full((2_000_000,), float(number))}}
    write_checkpoint(Path({str(tmp_path / "x")!r}), state)
    print(number, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as writing:
        assert writing.stdout is not None
        writing.stdout.readline()
        time.sleep(0.01)
        writing.send_signal(signal.SIGKILL)
    state = read_checkpoint(tmp_path / "x")
    assert torch.equal(state["model"], torch.full((2_000_000,), float(state["number"])))


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
        save_file(tensors, path, {"format": checkpoint_values.FORMAT})
        assert error_line(read_checkpoint, path) == f"{path} is broken: run again with --fresh"


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 2500])
def test_long_lists_come_back_in_their_order(size: int, tmp_path: Path) -> None:
    rows = [[number, None, "ü"] for number in range(size)]
    write_checkpoint(tmp_path / "x", {"rows": rows, "in": {"a": {}, "b": tuple(rows), "c": ()}})
    assert read_checkpoint(tmp_path / "x") == {"rows": rows, "in": {"a": {}, "b": rows, "c": []}}
