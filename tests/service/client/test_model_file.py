import json

import pytest
import torch
from safetensors.torch import save_file

from offbeat.errors import OffbeatError
from offbeat.service.client.model_file import read_down, read_model


def test_parameters_come_in_the_order_of_the_vector(model_file, model):
    read = read_model(model_file, 6)
    assert list(read) == ["weight", "bias"]
    assert all(torch.equal(read[name], model[name]) for name in model)


def test_what_training_changes_is_not_changed_in_the_file(model_file, model):
    read_model(model_file, 6)["weight"].add_(1)
    assert torch.equal(read_model(model_file, 6)["weight"], model["weight"])


@pytest.mark.parametrize(
    ("tensors", "layout"),
    [
        ({"a": torch.zeros(6)}, None),
        ({"a": torch.zeros(6)}, [["b", [6]]]),
        ({"a": torch.zeros(6)}, [["a", [2, 3]]]),
        ({"a": torch.zeros(5)}, [["a", [5]]]),
        ({"a": torch.zeros(6, dtype=torch.float64)}, [["a", [6]]]),
        ({"a": torch.zeros(6)}, [3]),
        ({"a": torch.zeros(6)}, {"a": 6}),
    ],
)
def test_what_is_no_such_model_is_removed(tmp_path, tensors, layout):
    path = tmp_path / "x"
    save_file(tensors, path, None if layout is None else {"layout": json.dumps(layout)})
    with pytest.raises(OffbeatError, match=r"is broken .*join again"):
        read_model(path, 6)
    assert not path.exists()


def test_what_came_beside_the_model_is_read_anew_each_time(tmp_path):
    path = tmp_path / "x"
    save_file({".down": torch.arange(6.0), "a": torch.ones(6)}, path, {"layout": json.dumps([["a", [6]]])})
    read_down(path, 6).add_(1)
    assert read_down(path, 6).tolist() == [0, 1, 2, 3, 4, 5]
    assert list(read_model(path, 6)) == ["a"]


@pytest.mark.parametrize(
    "tensors", [{}, {".down": torch.zeros(5)}, {".down": torch.zeros(2, 3)}, {".down": torch.zeros(6).double()}]
)
def test_a_file_without_what_should_come_beside_the_model_is_removed(tmp_path, tensors):
    path = tmp_path / "x"
    save_file({"a": torch.zeros(6), **tensors}, path, {"layout": json.dumps([["a", [6]]])})
    with pytest.raises(OffbeatError, match=r"is broken .*join again"):
        read_down(path, 6)
    assert not path.exists()


def test_what_is_no_file_of_tensors_is_removed(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"<html>")
    with pytest.raises(OffbeatError, match="is broken"):
        read_model(path, 6)
    assert not path.exists()
