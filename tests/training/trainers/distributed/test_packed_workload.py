import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType

import cloudpickle
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.training import models
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.distributed.packed_workload import pack_code, unpack_code
from tests.training.conftest import made


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a module from a user's file outside of the search path."""
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


def test_shared_memory_of_parameters_is_written_once():
    model = made(lambda: FlatModel(models.mlp((1, 8, 8), 10, [100] * 10)))
    code = pack_code(model.module, cross_entropy)
    assert model.vector.nbytes < code.nbytes < 1.3 * model.vector.nbytes
    module, loss = unpack_code(code)
    assert loss is cross_entropy
    assert torch.equal(FlatModel(module).vector, model.vector)


def test_the_loss_still_refers_to_the_module():
    module = made(lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    module[1].weight = module[0].weight
    other, loss = unpack_code(pack_code(module, lambda *_: module[0].weight.sum()))
    assert other[1].weight is other[0].weight
    with torch.no_grad():
        other[0].weight.fill_(3.0)
    assert loss(torch.zeros(1), torch.zeros(1)).item() == 12.0


def test_the_users_files_are_not_needed_again(own, monkeypatch):
    module = made(own.Net)
    own.SCALE = 10.0
    code = pack_code(module, own.loss)
    monkeypatch.delitem(sys.modules, "my_net")
    other, loss = unpack_code(code)
    ones = torch.ones(1, 3)
    assert torch.equal(other(ones), module(ones))
    assert loss(torch.zeros(1), torch.zeros(1)).item() == 10.0
    assert loss is not own.loss


def test_installed_code_is_imported(tmp_path, monkeypatch):
    installed = loaded(tmp_path / "site-packages" / "my_installed_net.py", monkeypatch)
    code = pack_code(made(installed.Net), installed.loss)
    assert type(unpack_code(code)[0]) is installed.Net
    assert unpack_code(code)[1] is installed.loss
    monkeypatch.delitem(sys.modules, "my_installed_net")
    with pytest.raises(
        OffbeatError,
        match=r"^trainer = 'processes': the model or the loss cannot be sent to another process "
        r"\(ModuleNotFoundError: No module named 'my_installed_net'\): use 'loop'$",
    ):
        unpack_code(code)


def test_torch_and_offbeat_are_imported():
    module = made(lambda: nn.Sequential(models.lstm(5, 2), nn.Linear(2, 2)))
    other, loss = unpack_code(pack_code(module, models.mlp))
    assert loss is models.mlp
    assert [type(layer) for layer in other.modules()] == [type(layer) for layer in module.modules()]


def test_the_registry_of_cloudpickle_is_restored(own, monkeypatch):
    monkeypatch.setitem(sys.modules, "second_name", own)
    monkeypatch.setitem(sys.modules, "no_module", object())
    cloudpickle.register_pickle_by_value(pytest)
    try:
        pack_code(made(own.Net), own.loss)
        assert cloudpickle.list_registry_pickle_by_value() == {"pytest"}
        cloudpickle.register_pickle_by_value(own)
        pack_code(made(own.Net), own.loss)
        assert cloudpickle.list_registry_pickle_by_value() == {"pytest", "my_net"}
        cloudpickle.unregister_pickle_by_value(own)
    finally:
        cloudpickle.unregister_pickle_by_value(pytest)


def test_code_that_cannot_be_sent_is_refused_in_one_line():
    lock = threading.Lock()

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        with lock:
            return cross_entropy(outputs, labels)

    with pytest.raises(OffbeatError) as caught:
        pack_code(nn.Linear(1, 1, device="meta"), loss)
    assert str(caught.value) == (
        "trainer = 'processes': the model or the loss cannot be sent to another process "
        "(TypeError: cannot pickle '_thread.lock' object): use 'loop'"
    )
    assert cloudpickle.list_registry_pickle_by_value() == set()
