"""Bodies of updates, and files that hold them."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from offbeat.algorithms.components import Compression
from offbeat.compression import qsgd, random_k, sign, top_k
from offbeat.service.refusal import Refusal
from offbeat.service.updates.update_body import Body, StoredUpdate, check_norm, norm_of
from tests.service.conftest import body_of

LENGTH = 5
VECTOR = torch.tensor([1.5, -2.0, 0.0, 4.0, -0.25])
TOP_K = Compression("top_k", (("share", 0.4),))
COMPRESSIONS = {
    TOP_K: top_k(0.4),
    Compression("random_k", (("share", 0.4), ("scaled", False))): random_k(0.4, False),
    Compression("qsgd", (("bits", 4),)): qsgd(4),
    Compression("sign"): sign(),
}

Store = Callable[..., StoredUpdate]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a function that puts a body into a file."""

    def put(body: bytes, compression: Compression | None = None, *, length: int = LENGTH) -> StoredUpdate:
        path = tmp_path / "body"
        path.unlink(missing_ok=True)  # another vector may still be mapped from it
        path.write_bytes(body)
        return StoredUpdate(path, len(body), length, compression, "")

    return put


def safetensors_file(header: object, data: bytes = bytes(4 * LENGTH)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def info(dtype: object = "F32", shape: object = (LENGTH,), data_offsets: object = (0, 4 * LENGTH)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": data_offsets}


def check_body(body: Body, max_norm: float | None) -> None:
    """Check a body's form, that its values are finite, and its norm."""
    check_norm(norm_of(body), max_norm)


def refused(stored: StoredUpdate, max_norm: float | None = None) -> str:
    with pytest.raises(Refusal) as caught:
        check_body(stored, max_norm)
    assert len(caught.value.detail.splitlines()) == 1
    assert len(caught.value.detail) < 250
    return caught.value.kind


GOOD = body_of(VECTOR)
