import importlib.util
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import ModuleType

import cloudpickle
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.errors import OffbeatError
from offbeat.training import models
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.shared_memory import Rows, SharedMemory, packed, share, unpacked

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
    def test_who_maps_the_same_file_sees_the_same(self, kind: str, tmp_path: Path) -> None:
        memory = share(TENSORS)
        other = SharedMemory(os.dup(memory.fd), memory.places)
        for name, tensor in TENSORS.items():
            assert torch.equal(other[name], tensor)
            assert other[name].dtype == tensor.dtype
        other["int64"][1] = 99
        assert memory["int64"].tolist() == [-2, 99, 0]
        assert torch.equal(memory["uint8"], TENSORS["uint8"])
        assert list(tmp_path.iterdir()) == []
        memory.close()
        other.close()

    def test_tensors_outlive_the_file(self) -> None:
        memory = share({"numbers": torch.arange(4.0)})
        numbers = memory["numbers"]
        memory.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(memory.fd)
        del memory
        assert numbers.tolist() == [0, 1, 2, 3]

    def test_room_costs_nothing_until_it_is_used(self, kind: str) -> None:
        memory = share({"room": torch.empty(50, 2**20, device="meta"), "numbers": torch.arange(3)})
        status = os.fstat(memory.fd)
        assert status.st_size >= 200 * 2**20
        assert status.st_blocks * 512 < 2**20
        memory["room"][49] = 3.0
        assert memory["numbers"].tolist() == [0, 1, 2]
        memory.close()

    def test_everything_is_aligned_as_torch_has_it(self) -> None:
        memory = share(TENSORS)
        assert all(memory[name].data_ptr() % 64 == 0 for name in TENSORS)
        memory.close()

    def test_where_there_is_no_memory_no_file_is_left_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
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
    def test_the_same_vector_is_copied_once(self) -> None:
        table = torch.zeros(3, 2)
        rows, vector = Rows(table), torch.tensor([1.0, 2.0])
        row = rows.take(vector)
        assert table[row].tolist() == [1, 2]
        table[row] = 5.0
        assert rows.take(vector) == row
        assert table[row].tolist() == [5, 5]
        assert rows.take(vector.clone()) != row

    def test_a_row_is_free_when_all_have_released_it(self) -> None:
        rows = Rows(table := torch.zeros(2, 1))
        first, second, third = torch.ones(1), torch.full((1,), 2.0), torch.full((1,), 3.0)
        row = rows.take(first)
        rows.take(first)
        rows.take(second)
        rows.release(row)
        with pytest.raises(ValueError, match="is not in list"):
            rows.take(third)
        rows.release(row)
        assert rows.take(third) == row
        assert sorted(table.flatten().tolist()) == [2, 3]

    def test_what_was_released_is_there_until_its_row_is_needed(self) -> None:
        rows = Rows(torch.zeros(2, 1))
        vector = torch.ones(1)
        row = rows.take(vector)
        rows.release(row)
        assert rows.take(vector) == row
        rows.take(torch.zeros(1))
        assert rows.take(vector) == row


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a module of the user's own, from a file that no search for modules finds."""
    return loaded(tmp_path / "my_net.py", monkeypatch)


def loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "from torch import nn\n"
        "SCALE = 2.0\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self):\n"
        "        super().__init__(3, 1)\n"
        "    def forward(self, inputs):\n"
        "        return super().forward(inputs) * SCALE\n"
        "def loss(outputs, labels):\n"
        "    return outputs.mean() + SCALE\n"
    )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module


def made(module: ModuleType) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        return module.Net()


class TestPacked:
    def test_what_parameters_share_is_written_once(self) -> None:
        with torch.random.fork_rng(devices=[]):
            model = FlatModel(models.mlp((1, 8, 8), 10, [100] * 10))
        code = packed(model.module, cross_entropy)
        assert model.vector.nbytes < code.nbytes < 1.3 * model.vector.nbytes
        module, loss = unpacked(code)
        assert loss is cross_entropy
        assert torch.equal(FlatModel(module).vector, model.vector)

    def test_module_and_loss_still_know_each_other(self) -> None:
        with torch.random.fork_rng(devices=[]):
            module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        module[1].weight = module[0].weight
        other, loss = unpacked(packed(module, lambda *_: module[0].weight.sum()))
        assert other[1].weight is other[0].weight
        with torch.no_grad():
            other[0].weight.fill_(3.0)
        assert loss(torch.zeros(1), torch.zeros(1)).item() == 12.0

    def test_the_users_own_files_are_not_needed_again(self, own: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        module = made(own)
        own.SCALE = 10.0
        code = packed(module, own.loss)
        monkeypatch.delitem(sys.modules, "my_net")
        other, loss = unpacked(code)
        ones = torch.ones(1, 3)
        assert torch.equal(other(ones), module(ones))
        assert loss(torch.zeros(1), torch.zeros(1)).item() == 10.0
        assert loss is not own.loss

    def test_what_is_installed_is_taken_from_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        installed = loaded(tmp_path / "site-packages" / "my_installed_net.py", monkeypatch)
        code = packed(made(installed), installed.loss)
        assert type(unpacked(code)[0]) is installed.Net
        assert unpacked(code)[1] is installed.loss
        monkeypatch.delitem(sys.modules, "my_installed_net")
        with pytest.raises(
            OffbeatError,
            match=r"^trainer = 'processes': the model or the loss cannot be sent to another process "
            r"\(ModuleNotFoundError: No module named 'my_installed_net'\): take 'loop'$",
        ):
            unpacked(code)

    def test_so_are_torch_and_offbeat(self) -> None:
        with torch.random.fork_rng(devices=[]):
            module = nn.Sequential(models.lstm(5, 2), nn.Linear(2, 2))
        other, loss = unpacked(packed(module, models.mlp))
        assert loss is models.mlp
        assert [type(layer) for layer in other.modules()] == [type(layer) for layer in module.modules()]

    def test_the_registry_is_left_as_it_was(self, own: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "second_name", own)
        monkeypatch.setitem(sys.modules, "no_module", object())
        cloudpickle.register_pickle_by_value(pytest)
        try:
            packed(made(own), own.loss)
            assert cloudpickle.list_registry_pickle_by_value() == {"pytest"}
            cloudpickle.register_pickle_by_value(own)
            packed(made(own), own.loss)
            assert cloudpickle.list_registry_pickle_by_value() == {"pytest", "my_net"}
            cloudpickle.unregister_pickle_by_value(own)
        finally:
            cloudpickle.unregister_pickle_by_value(pytest)

    def test_what_cannot_be_sent_is_one_line(self) -> None:
        lock = threading.Lock()

        def loss(outputs: Tensor, labels: Tensor) -> Tensor:
            with lock:
                return cross_entropy(outputs, labels)

        with pytest.raises(OffbeatError) as caught:
            packed(nn.Linear(1, 1, device="meta"), loss)
        assert str(caught.value) == (
            "trainer = 'processes': the model or the loss cannot be sent to another process "
            "(TypeError: cannot pickle '_thread.lock' object): take 'loop'"
        )
        assert cloudpickle.list_registry_pickle_by_value() == set()
