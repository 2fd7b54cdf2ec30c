import json
import struct
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from offbeat.algorithms.components import Compression, LocalPlan
from offbeat.compression import decode, qsgd, random_k, sign, top_k, wire_bytes
from offbeat.service.refusal import Refusal
from offbeat.service.updates import body_form, update_body
from offbeat.service.updates.update_body import BufferedUpdate, StoredUpdate, largest_body
from tests.service.conftest import body_of
from tests.service.updates.conftest import (
    COMPRESSIONS,
    GOOD,
    LENGTH,
    TOP_K,
    VECTOR,
    Store,
    check_body,
    info,
    refused,
    safetensors_file,
)

# What is right.


@pytest.mark.parametrize("mapped", [0, 2**20])
@pytest.mark.parametrize("padding", [0, 1, 2, 8])  # so that the entries are not aligned
@pytest.mark.parametrize(("kind", "dtype"), [("F32", torch.float32), ("BF16", torch.bfloat16)])
def test_a_dense_update_comes_back(
    store: Store, kind: str, dtype: torch.dtype, padding: int, mapped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update_body, "_MAPPED", mapped)
    header = json.dumps({"update": info(kind, data_offsets=[0, dtype.itemsize * LENGTH])}).encode()
    data = VECTOR.to(dtype).view(torch.uint8).numpy().tobytes()
    stored = store(safetensors_file(header + b" " * padding, data))
    check_body(stored, None)
    vector = stored.resolve()
    assert vector.dtype == torch.float32
    assert vector.data_ptr() % 4 == 0
    assert torch.equal(vector, VECTOR)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_compressed_update_comes_back(store: Store, compression: Compression) -> None:
    encoded = COMPRESSIONS[compression].encode(VECTOR, 3)
    stored = store(encoded.to_bytes(), compression)
    check_body(stored, None)
    assert torch.equal(stored.resolve(), decode(encoded))


def test_other_writers_metadata_and_padding_are_read(store: Store) -> None:
    body = safetensors.torch.save({"update": VECTOR}, {"made by": "ward-3"})
    assert torch.equal(store(body).resolve(), VECTOR)
    check_body(store(safetensors_file(json.dumps({"update": info()}).encode() + b"  ")), None)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says what is mapped")
def test_float32_is_mapped_for_as_long_as_it_is_used(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_body, "_MAPPED", 0)
    stored = store(body_of(VECTOR))
    maps = Path("/proc/self/maps")
    assert str(stored.path) not in maps.read_text()
    vector = stored.resolve()
    assert str(stored.path) in maps.read_text()
    part = vector[1:]
    del vector
    assert torch.equal(part, VECTOR[1:])
    del part
    assert str(stored.path) not in maps.read_text()


def test_the_file_stays_as_it_is(store: Store) -> None:
    stored = store(body_of(VECTOR))
    stored.resolve().zero_()
    assert torch.equal(stored.resolve(), VECTOR)


# How much.


def test_the_largest_header_is_accepted_and_fits(store: Store) -> None:
    plan = LocalPlan(steps=1, batch_size=1, lr=0.1)
    largest = safetensors_file(json.dumps({"update": info()}).encode().ljust(4096))
    assert len(largest) == largest_body(LENGTH, plan.compression)
    check_body(store(largest), None)
    assert refused(store(safetensors_file(json.dumps({"update": info()}).encode().ljust(4097)))) == "malformed-update"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_compressed_body_has_one_size(compression: Compression) -> None:
    plan = LocalPlan(steps=1, batch_size=1, lr=0.1, compression=compression)
    compressor = COMPRESSIONS[compression]
    assert largest_body(1000, plan.compression) == wire_bytes(compressor, 1000)
    assert largest_body(LENGTH, plan.compression) == len(compressor.encode(VECTOR, 0).to_bytes())


def test_a_large_body_is_checked_in_little_memory(tmp_path: Path) -> None:
    length = 2**25
    header = json.dumps({"update": info(shape=[length], data_offsets=[0, 4 * length])}).encode()
    path = tmp_path / "sparse"
    path.write_bytes(safetensors_file(header, b""))
    size = 8 + len(header) + 4 * length
    with path.open("r+b") as file:
        file.truncate(size)
    tracemalloc.start()
    check_body(StoredUpdate(path, size, length, None, ""), 1.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16e6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_body_in_memory_is_checked_too(dtype: torch.dtype) -> None:
    body = bytearray(body_of(VECTOR.to(dtype)))
    check_body(BufferedUpdate(body, LENGTH, None, ""), 100.0)
    with pytest.raises(Refusal, match="norm"):
        check_body(BufferedUpdate(body, LENGTH, None, ""), 1e-3)


@pytest.mark.parametrize("is_masked", [False, True])
def test_an_algorithm_that_changes_its_vector_does_not_change_the_body_for_the_log(is_masked: bool) -> None:
    body = bytes(4 * LENGTH) if is_masked else GOOD
    kept = bytes(bytearray(body))  # other memory
    BufferedUpdate(body, LENGTH, None, "", is_masked).resolve().fill_(7)
    assert body == kept


def test_a_header_is_parsed_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = store(GOOD)
    check_body(BufferedUpdate(bytearray(GOOD), LENGTH, None, ""), None)
    monkeypatch.delattr(body_form, "_tensor_info")
    assert torch.equal(stored.resolve(), VECTOR)
    with pytest.raises(NameError):
        store(GOOD, length=LENGTH + 1).resolve()


# What is wrong.

MALFORMED = {
    "empty": b"",
    "short": b"\0" * 7,
    "no header": b"\0" * 8,
    "text": b"hello, not an update",
    "header beyond the end": struct.pack("<Q", 100) + b"{}",
    "huge header": struct.pack("<Q", 2**64 - 1) + b"{}",
    "no JSON": safetensors_file(b"{'update'"),
    "no UTF-8": safetensors_file(b'{"\xff": 1}'),
    "no object": safetensors_file([1]),
    "space first": safetensors_file(b" " + json.dumps({"update": info()}).encode()),
    "deep": safetensors_file(b'{"update":' + b"[" * 4000),
    "deep metadata": safetensors_file(b'{"__metadata__":' * 200),
    "long number": safetensors_file(b'{"update":{"shape":[' + b"9" * 4000 + b"]}}"),
    "NaN": safetensors_file(b'{"update": NaN}'),
    "no tensor": safetensors_file({}),
    "other name": safetensors_file({"weights": info()}),
    "two tensors": safetensors_file({"update": info(), "more": info()}),
    "twice": safetensors_file(b'{"update": 1, "update": ' + json.dumps(info()).encode() + b"}"),
    "a list": safetensors_file({"update": [info()]}),
    "metadata": safetensors_file({"update": info(), "__metadata__": {"a": 1}}),
    "metadata is a list": safetensors_file({"update": info(), "__metadata__": []}),
    "no shape": safetensors_file({"update": {"dtype": "F32", "data_offsets": [0, 20]}}),
    "one thing more": safetensors_file({"update": info() | {"more": 1}}),
    "type is a number": safetensors_file({"update": info(dtype=32)}),
    "type is a list": safetensors_file({"update": info(dtype=["F32"])}),
    "shape is a number": safetensors_file({"update": info(shape=LENGTH)}),
    "shape of floats": safetensors_file({"update": info(shape=[5.0])}),
    "shape of booleans": safetensors_file({"update": info(shape=[True])}),
    "negative shape": safetensors_file({"update": info(shape=[-5])}),
    "offsets of floats": safetensors_file({"update": info(data_offsets=[0.0, 20.0])}),
    "offset false": safetensors_file({"update": info(data_offsets=[False, 20])}),
    "negative offset": safetensors_file({"update": info(data_offsets=[-20, 0])}),
    "offsets beyond the end": safetensors_file({"update": info(data_offsets=[0, 40])}),
    "offsets in the middle": safetensors_file({"update": info(data_offsets=[4, 24])}, bytes(24)),
    "three offsets": safetensors_file({"update": info(data_offsets=[0, 20, 20])}),
    "too few bytes": GOOD[:-1],
    "trailing bytes": GOOD + b"\0",
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_updates_are_refused(store: Store, case: str) -> None:
    assert refused(store(MALFORMED[case])) == "malformed-update"
    with pytest.raises(Refusal):
        store(MALFORMED[case]).resolve()


@pytest.mark.parametrize(
    ("header", "data", "kind"),
    [
        (info(shape=[10], data_offsets=[0, 40]), bytes(40), "wrong-shape"),
        (info(shape=[1, LENGTH]), bytes(20), "wrong-shape"),
        (info(shape=[]), bytes(20), "wrong-shape"),
        (info(shape=[10**3000]), bytes(20), "wrong-shape"),
        (info("F64", data_offsets=[0, 40]), bytes(40), "wrong-type"),
        (info("F16", data_offsets=[0, 10]), bytes(10), "wrong-type"),
        (info("\ud800\n" * 200), bytes(20), "wrong-type"),
        (info("BF16"), bytes(20), "malformed-update"),
    ],
)
def test_wrong_shapes_and_types_are_refused(store: Store, header: object, data: bytes, kind: str) -> None:
    assert refused(store(safetensors_file({"update": header}, data))) == kind


def test_a_wrong_shape_is_reported_as_in_the_protocol(store: Store) -> None:
    with pytest.raises(Refusal, match=r"^the update must be of shape \(5,\), got shape \(10,\)$"):
        check_body(store(body_of(torch.zeros(10))), None)


@pytest.mark.parametrize("place", range(LENGTH))
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_update_that_is_not_finite_is_refused(
    store: Store, dtype: torch.dtype, value: float, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update_body, "_CHUNK", 2)
    vector = VECTOR.clone()
    vector[place] = value
    assert refused(store(body_of(vector.to(dtype)))) == "not-finite"


@pytest.mark.parametrize("chunk", [1, 2, 5, 2**20])
@pytest.mark.parametrize("scale", [1.0, 1e30])
def test_the_norm_is_that_of_the_whole_vector(
    store: Store, scale: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update_body, "_CHUNK", chunk)
    stored = store(body_of(VECTOR * scale))
    norm = torch.linalg.vector_norm(VECTOR.double()).item() * scale
    check_body(stored, None)
    check_body(stored, norm * 1.0001)
    assert refused(stored, norm * 0.9999) == "norm-too-large"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_norm_of_a_compressed_update_is_checked(store: Store, compression: Compression) -> None:
    encoded = COMPRESSIONS[compression].encode(VECTOR, 3)
    stored = store(encoded.to_bytes(), compression)
    norm = torch.linalg.vector_norm(decode(encoded)).item()
    check_body(stored, norm * 1.0001)
    assert refused(stored, norm * 0.9999) == "norm-too-large"


def test_another_compression_than_the_plans_is_refused(store: Store) -> None:
    compressed = top_k(0.4).encode(VECTOR, 0).to_bytes()
    assert refused(store(compressed)) == "wrong-plan"
    assert refused(store(GOOD, TOP_K)) == "wrong-plan"
    for other in (top_k(0.5), qsgd(4), random_k(0.4), sign()):
        assert refused(store(other.encode(VECTOR, 0).to_bytes(), TOP_K)) == "wrong-plan"


def test_malformed_compressed_updates_are_refused(store: Store) -> None:
    body = top_k(0.4).encode(VECTOR, 0).to_bytes()
    not_a_number = body[:-4] + struct.pack("<f", float("nan"))
    for wrong in (b"", body[:3], body[:10], body[:20], body[:-1], body + b"\0", b"x" + body[1:], not_a_number):
        assert refused(store(wrong, TOP_K)) == "malformed-update"
    assert refused(store(top_k(0.4).encode(torch.zeros(9), 0).to_bytes(), TOP_K)) == "wrong-shape"


def test_a_file_that_is_gone_or_short_is_not_the_clients_fault(store: Store) -> None:
    stored = store(GOOD)
    stored.path.write_bytes(stored.path.read_bytes()[:-15])
    with pytest.raises(OSError, match="ends before byte"):
        check_body(stored, None)
    stored.path.unlink()
    with pytest.raises(FileNotFoundError):
        check_body(stored, None)


@pytest.mark.parametrize("length", [1_000, 200_000])  # read, and mapped
def test_a_file_that_was_cut_short_is_an_error_of_the_disk(tmp_path: Path, length: int) -> None:
    path, body = tmp_path / "update", body_of(torch.ones(length))
    path.write_bytes(body[:-1])
    stored = StoredUpdate(path, len(body), length, None, "")
    with pytest.raises(OSError, match=f"update ends before byte {len(body)}"):
        stored.resolve()
    with pytest.raises(OSError, match="update ends before byte"):
        check_body(stored, 1.0)


@pytest.mark.parametrize("length", [3, 100_000])  # read, and mapped
def test_a_masked_body_is_a_promise_of_its_words(length, store):
    words = torch.arange(length, dtype=torch.int32) * 123_457 - 2**31
    body = words.numpy().astype("<i4").tobytes()
    stored = replace(store(body, length=length), is_masked=True)
    found = stored.resolve()
    assert found.dtype == torch.int32
    assert torch.equal(found, words)
