import hashlib
import json
import struct
import tracemalloc

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError
from offbeat_core.model_file import model_digest, read_down, read_model
from safetensors.numpy import save_file


def test_parameters_come_in_the_order_of_the_vector(model_file, model):
    read = read_model(model_file, 6)
    assert list(read) == ["weight", "bias"]
    assert all(np.array_equal(read[name], model[name]) for name in model)


def test_the_digest_is_over_names_shapes_and_parameters_in_the_order_of_names(model_file):
    content = b'[["bias",[2]],["weight",[2,2]]]' + struct.pack("<6f", 5, 6, 1, 2, 3, 4)
    model = read_model(model_file, 6)
    assert model_digest(model) == hashlib.sha256(content).digest()
    assert model_digest(dict(reversed(model.items()))) == model_digest(model)  # another order is the same model
    transposed = np.array([[1, 3], [2, 4]], np.float32).T
    assert model_digest(model | {"weight": transposed}) == model_digest(model)
    others = [{"weight": model["weight"].reshape(4, 1)}, {"bias": model["weight"][0], "weight": model["weight"]}]
    assert model_digest(model) not in [model_digest(model | other) for other in others]


@pytest.mark.parametrize("read", [lambda path: read_model(path, 6)["weight"], lambda path: read_down(path, 6)])
def test_the_file_keeps_the_arrays_that_training_changes(model_file, read):
    before = read(model_file).tolist()
    changed = read(model_file)
    changed += 1
    assert read(model_file).tolist() == before != changed.tolist()


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


GOOD = {"a": np.zeros(6, np.float32), ".down": np.zeros(6, np.float32)}
LAYOUT = [["a", [6]]]


@pytest.mark.parametrize(
    ("read", "tensors", "layout"),
    [
        (read_model, GOOD, None),
        (read_model, GOOD, [["b", [6]]]),
        (read_model, GOOD, [["a", [2, 3]]]),
        (read_model, GOOD, [3]),
        (read_model, GOOD, {"a": 6}),
        (read_model, {"a": np.zeros(5, np.float32)}, [["a", [5]]]),
        (read_model, {"a": np.zeros(6)}, LAYOUT),
        (read_down, {"a": GOOD["a"]}, LAYOUT),
        (read_down, {**GOOD, ".down": np.zeros(5, np.float32)}, LAYOUT),
        (read_down, {**GOOD, ".down": np.zeros((2, 3), np.float32)}, LAYOUT),
    ],
)
def test_a_file_of_other_tensors_is_removed(tmp_path, read, tensors, layout):
    path = tmp_path / "x"
    save_file(tensors, path, None if layout is None else {"layout": json.dumps(layout)})
    with pytest.raises(OffbeatError, match=r"is broken .*join again"):
        read(path, 6)
    assert not path.exists()


def test_a_file_without_tensors_is_removed(tmp_path):
    (tmp_path / "x").write_bytes(b"<html>")
    with pytest.raises(OffbeatError, match="is broken"):
        read_model(tmp_path / "x", 6)
    assert not (tmp_path / "x").exists()
