from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from offbeat.service.server.admin import export_model
from offbeat.training.flat_model import FlatModel
from offbeat.worlds.initial_model import read_initial_model
from tests.error_line import error_line
from tests.service.conftest import running

VECTOR = torch.arange(6, dtype=torch.float32)


@pytest.fixture
def model() -> FlatModel:
    return FlatModel(nn.Linear(2, 2))


def test_the_vector_is_that_of_the_exported_model(tmp_path: Path, model: FlatModel) -> None:
    with running(tmp_path / "server", model=VECTOR):
        pass
    export_model(tmp_path / "server", tmp_path / "exported")
    before = model.vector.clone()
    assert torch.equal(read_initial_model(tmp_path / "exported", model), VECTOR)
    assert torch.equal(model.vector, before)


@pytest.mark.parametrize("form", [FlatModel.named, FlatModel.saved], ids=["of a server", "of a run"])
def test_layers_may_share_a_parameter(tmp_path: Path, form: Callable[..., dict[str, torch.Tensor]]) -> None:
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    module[1].weight = module[0].weight
    model = FlatModel(module)
    save_file(form(model, VECTOR[:4]), tmp_path / "file")
    assert torch.equal(read_initial_model(tmp_path / "file", model), VECTOR[:4])
    module.load_state_dict(load_file(tmp_path / "file"), strict=form is FlatModel.saved)
    assert torch.equal(module[1].weight.flatten(), VECTOR[:4])


@pytest.mark.parametrize(
    "tensors",
    [
        {"weight": torch.zeros(2, 2)},
        {"weight": torch.zeros(2, 3), "bias": torch.zeros(2)},
        {"weight": torch.zeros(2, 2, dtype=torch.float64), "bias": torch.zeros(2)},
        {"weight": torch.zeros(2, 2), "bias": torch.zeros(2), "more": torch.zeros(1)},
    ],
)
def test_another_models_file_is_one_line(tmp_path: Path, model: FlatModel, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, tmp_path / "file")
    line = error_line(read_initial_model, tmp_path / "file", model)
    assert line == (
        f"service.initial_model = {tmp_path / 'file'} does not hold this model's parameters: take a file that "
        "offbeat server export wrote"
    )


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, model: FlatModel) -> None:
    path = tmp_path / "file"
    assert error_line(read_initial_model, path, model).startswith(
        f"cannot read service.initial_model = {path}: No such"
    )
    path.write_bytes(b"12345678")
    assert error_line(read_initial_model, path, model).startswith(f"cannot read service.initial_model = {path}: ")
