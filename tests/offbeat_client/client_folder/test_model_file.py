import json
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import save_file

from offbeat_client.client_folder.model_file import read_down, read_model
from offbeat_client.errors import OffbeatError


def test_parameters_come_in_the_order_of_the_vector(model_file, model):
    read = read_model(model_file, 6)
    assert list(read) == ["weight", "bias"]
    assert all(np.array_equal(read[name], model[name]) for name in model)


def test_the_file_keeps_the_model_that_training_changes(model_file, model):
    weight = read_model(model_file, 6)["weight"]
    weight += 1
    assert np.array_equal(read_model(model_file, 6)["weight"], model["weight"])


def test_reading_copies_nothing(tmp_path):
    path, length = tmp_path / "x", 2**20
    tensors = {".down": np.ones(length, np.float32), "a": np.ones(length, np.float32)}
    save_file(tensors, path, {"layout": json.dumps([["a", [length]]])})
    tracemalloc.start()
    try:
        model, down = read_model(path, length), read_down(path, length)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < length
    assert model["a"].sum() == down.sum() == length


@pytest.mark.parametrize(
    ("tensors", "layout"),
    [
        ({"a": np.zeros(6, np.float32)}, None),
        ({"a": np.zeros(6, np.float32)}, [["b", [6]]]),
        ({"a": np.zeros(6, np.float32)}, [["a", [2, 3]]]),
        ({"a": np.zeros(5, np.float32)}, [["a", [5]]]),
        ({"a": np.zeros(6, dtype=np.float64)}, [["a", [6]]]),
        ({"a": np.zeros(6, np.float32)}, [3]),
        ({"a": np.zeros(6, np.float32)}, {"a": 6}),
    ],
)
def test_another_file_of_tensors_is_removed(tmp_path, tensors, layout):
    path = tmp_path / "x"
    save_file(tensors, path, None if layout is None else {"layout": json.dumps(layout)})
    with pytest.raises(OffbeatError, match=r"is broken .*join again"):
        read_model(path, 6)
    assert not path.exists()


def test_the_file_keeps_the_vector_that_training_changes(tmp_path):
    path = tmp_path / "x"
    save_file(
        {".down": np.arange(6.0, dtype=np.float32), "a": np.ones(6, np.float32)},
        path,
        {"layout": json.dumps([["a", [6]]])},
    )
    down = read_down(path, 6)
    down += 1
    assert read_down(path, 6).tolist() == [0, 1, 2, 3, 4, 5]
    assert list(read_model(path, 6)) == ["a"]


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {".down": np.zeros(5, np.float32)},
        {".down": np.zeros((2, 3), np.float32)},
        {".down": np.zeros(6)},
    ],
)
def test_a_file_without_the_vector_beside_the_model_is_removed(tmp_path, tensors):
    path = tmp_path / "x"
    save_file({"a": np.zeros(6, np.float32), **tensors}, path, {"layout": json.dumps([["a", [6]]])})
    with pytest.raises(OffbeatError, match=r"is broken .*join again"):
        read_down(path, 6)
    assert not path.exists()


def test_a_file_without_tensors_is_removed(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"<html>")
    with pytest.raises(OffbeatError, match="is broken"):
        read_model(path, 6)
    assert not path.exists()
