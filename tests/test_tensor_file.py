import json
import tracemalloc
from io import BytesIO
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file

from offbeat.tensor_file import write_tensors

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
    data = written(TENSORS, {"what": "é"})
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    assert header.pop("__metadata__") == {"what": "é"}
    for name, tensor in TENSORS.items():
        assert (8 + size + header[name]["data_offsets"][0]) % tensor.itemsize == 0


def test_a_type_without_a_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        written({"x": torch.zeros(2, dtype=torch.complex64)})


def test_without_metadata_there_are_none() -> None:
    data = written({"x": torch.zeros(2)})
    assert load(data)["x"].tolist() == [0.0, 0.0]
    assert b"__metadata__" not in data


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
