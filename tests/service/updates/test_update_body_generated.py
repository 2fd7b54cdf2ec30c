"""Generated bodies: each is refused, or read as another reader reads it."""

from collections.abc import Callable

import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from offbeat.compression import Encoded, decode
from offbeat.service.refusal import Refusal
from offbeat.service.updates.update_body import StoredUpdate
from tests.service.updates.conftest import (
    COMPRESSIONS,
    GOOD,
    LENGTH,
    VECTOR,
    Store,
    check_body,
    refused,
    safetensors_file,
)


@st.composite
def mutations(draw: st.DrawFn, body: bytes) -> bytes:
    """Draw the body with a few slices of it replaced by other bytes, mostly in the header."""
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(0, len(body)))
        last = min(len(body), first + draw(st.integers(0, 8)))
        body = (
            body[:first] + draw(st.binary(max_size=8) | st.sampled_from([b"0", b"9", b" ", b'"', b","])) + body[last:]
        )
    return body


def same_as(read: Callable[[bytes], Tensor], stored: StoredUpdate) -> None:
    """Check that the body is refused, or is the vector that ``read`` makes of it."""
    try:
        check_body(stored, None)
    except Refusal:
        assert refused(stored) in {"malformed-update", "wrong-plan", "wrong-shape", "wrong-type", "not-finite"}
        return
    vector = stored.resolve()
    body = stored.path.read_bytes()
    assert torch.equal(vector, read(body))
    assert vector.isfinite().all()


def by_safetensors(body: bytes) -> Tensor:
    tensors = safetensors.torch.load(body)
    assert tensors.keys() == {"update"}
    return tensors["update"].float()


many = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
METADATA = safetensors.torch.save({"update": VECTOR.bfloat16()}, {"a": "b"})


@many
@given(st.binary() | mutations(GOOD) | mutations(METADATA))
def test_any_dense_body_is_refused_or_read_as_safetensors_does(store: Store, body: bytes) -> None:
    same_as(by_safetensors, store(body))


numbers = st.integers(-2, 30) | st.floats() | st.booleans() | st.text(max_size=2) | st.integers()
parts = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "BF16", "F16", "f32"]) | numbers,
        "shape": st.just([LENGTH]) | st.lists(numbers, max_size=3) | numbers,
        "data_offsets": st.sampled_from([[0, 20], [0, 10]]) | st.lists(numbers, max_size=3) | numbers,
        "more": numbers,
    },
)
headers = st.fixed_dictionaries({}, optional={"update": parts, "__metadata__": parts, "weights": parts})


@many
@given(headers, st.binary(max_size=30) | st.sampled_from([bytes(10), bytes(20)]))
def test_any_header_is_refused_or_read_as_safetensors_does(store: Store, header: object, data: bytes) -> None:
    same_as(by_safetensors, store(safetensors_file(header, data)))


@many
@given(st.data())
def test_any_compressed_body_is_refused_or_read_as_the_compressor_does(store: Store, data: st.DataObject) -> None:
    compression = data.draw(st.sampled_from(sorted(COMPRESSIONS, key=str)))
    body = COMPRESSIONS[compression].encode(VECTOR, 3).to_bytes()
    stored = store(data.draw(mutations(body) | st.binary()), compression)
    same_as(lambda body: decode(Encoded.from_bytes(body, LENGTH)), stored)
