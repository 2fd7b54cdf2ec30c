import os
import tempfile
from pathlib import Path

import pytest
import torch

from offbeat.training.trainers.distributed.shared_memory import RowTable, SharedMemory, share

TENSORS = {
    "float32": torch.arange(6.0).reshape(2, 3),
    "uint8": torch.arange(5, dtype=torch.uint8),
    "int64": torch.arange(-2, 1),
    "bool": torch.tensor([True, False, True]),
    "bfloat16": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "not contiguous": torch.arange(12.0).reshape(3, 4).T,
    "one number": torch.tensor(2.5),
    "nothing": torch.empty(0, 3),
    "last": torch.tensor([7]),
}


@pytest.fixture(params=["memfd", "temporary file"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    if request.param == "temporary file":
        monkeypatch.delattr(os, "memfd_create", raising=False)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    elif not hasattr(os, "memfd_create"):
        pytest.skip("only on Linux")
    return request.param


class TestSharedMemory:
    def test_two_maps_of_one_file_have_the_same_tensors(self, kind, tmp_path):
        memory = share(TENSORS)
        other = SharedMemory(os.dup(memory.fd), memory.locations)
        for name, tensor in TENSORS.items():
            assert torch.equal(other[name], tensor)
            assert other[name].dtype == tensor.dtype
        other["int64"][1] = 99
        assert memory["int64"].tolist() == [-2, 99, 0]
        assert torch.equal(memory["uint8"], TENSORS["uint8"])
        assert list(tmp_path.iterdir()) == []
        memory.close()
        other.close()

    def test_tensors_outlive_the_file(self):
        memory = share({"numbers": torch.arange(4.0)})
        numbers = memory["numbers"]
        memory.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(memory.fd)
        del memory
        assert numbers.tolist() == [0, 1, 2, 3]

    def test_reserved_space_takes_no_memory_until_it_is_used(self, kind):
        memory = share({"room": torch.empty(50, 2**20, device="meta"), "numbers": torch.arange(3)})
        status = os.fstat(memory.fd)
        assert status.st_size >= 200 * 2**20
        assert status.st_blocks * 512 < 2**20
        memory["room"][49] = 3.0
        assert memory["numbers"].tolist() == [0, 1, 2]
        memory.close()

    def test_everything_is_aligned_as_torch_has_it(self):
        memory = share(TENSORS)
        assert all(memory[name].data_ptr() % 64 == 0 for name in TENSORS)
        memory.close()

    def test_no_file_stays_open_without_enough_memory(self, monkeypatch):
        opened = []

        def fail(fd: int, size: int) -> None:
            opened.append(fd)
            raise OSError("no room")

        monkeypatch.setattr(os, "ftruncate", fail)
        with pytest.raises(OSError, match="no room"):
            share(TENSORS)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(opened[0])


class TestRows:
    def test_the_same_vector_is_copied_once(self):
        table = torch.zeros(3, 2)
        rows, vector = RowTable(table), torch.tensor([1.0, 2.0])
        row = rows.take(vector)
        assert table[row].tolist() == [1, 2]
        table[row] = 5.0
        assert rows.take(vector) == row
        assert table[row].tolist() == [5, 5]
        assert rows.take(vector.clone()) != row

    def test_a_row_is_free_when_all_have_released_it(self):
        rows = RowTable(table := torch.zeros(2, 1))
        first, second, third = torch.ones(1), torch.full((1,), 2.0), torch.full((1,), 3.0)
        row = rows.take(first)
        rows.take(first)
        rows.take(second)
        rows.release(row)
        with pytest.raises(KeyError):
            rows.take(third)
        rows.release(row)
        assert rows.take(third) == row
        assert sorted(table.flatten().tolist()) == [2, 3]

    def test_a_released_vector_stays_until_its_row_is_needed(self):
        rows = RowTable(torch.zeros(2, 1))
        vector = torch.ones(1)
        row = rows.take(vector)
        rows.release(row)
        assert rows.take(vector) == row
        rows.take(torch.zeros(1))
        assert rows.take(vector) == row
