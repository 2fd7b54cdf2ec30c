"""The downloaded model, and the vector that comes beside it."""

import hashlib
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from safetensors import SafetensorError, safe_open

DOWN = ".down"
"""The vector beside the model; parameters never have such a name, since module names are not empty."""


def read_model(path: Path, length: int) -> dict[str, NDArray[np.float32]]:
    """Return the model's d parameters by name, in the order of the vector.

    The arrays are the file's pages: only pages that are written to are copied, and the file never changes. A file that
    is not such a model is removed, so that it is downloaded again.
    """
    with _mapped(path) as (tensors, metadata):
        layout: list[tuple[str, list[int]]] = json.loads(metadata["layout"])
        model = {name: tensors[name] for name, _ in layout}
        for name, shape in layout:
            if list(model[name].shape) != shape:
                raise ValueError(f"{name} does not have the shape {tuple(shape)}")
        if sum(array.size for array in model.values()) != length:
            raise ValueError(f"it does not have {length} parameters")
    return model


def read_down(path: Path, length: int) -> NDArray[np.float32]:
    """Return the vector beside the model, float32 ``(d,)``, like ``read_model``."""
    with _mapped(path) as (tensors, _):
        down = tensors[DOWN]
        if down.shape != (length,):
            raise ValueError(f"{DOWN} does not have the shape {(length,)}")
    return down


def model_digest(model: Mapping[str, NDArray[np.float32]]) -> bytes:
    """Return the SHA-256 of a model.

    It is of names and shapes, as JSON, and then of the little-endian parameters. Both are in the order of names, so the
    order in which a server sends them does not matter.
    """
    names = sorted(model)
    layout = [[name, list(model[name].shape)] for name in names]
    digest = hashlib.sha256(json.dumps(layout, separators=(",", ":")).encode())
    for name in names:
        digest.update(np.ascontiguousarray(model[name], "<f4").data)
    return digest.digest()


@contextmanager
def _mapped(path: Path) -> Generator[tuple[dict[str, NDArray[np.float32]], dict[str, str]]]:
    """Give the file's float32 tensors by name, and its metadata."""
    try:
        with safe_open(path, framework="numpy"):
            pass  # checks the header: tensors lie one after the other, and within the file
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(size))
        metadata: dict[str, str] = header.pop("__metadata__", {})
        data = np.asarray(np.memmap(path, np.uint8, "c", 8 + size))
        yield {name: _tensor(data, name, entry) for name, entry in header.items()}, metadata
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, AttributeError) as error:
        path.unlink(missing_ok=True)
        raise OffbeatError(f"the downloaded model {path} is broken ({error}): join again") from None


def _tensor(data: NDArray[np.uint8], name: str, entry: dict[str, Any]) -> NDArray[np.float32]:
    if entry["dtype"] != "F32":
        raise ValueError(f"{name} is not float32")
    begin, end = entry["data_offsets"]
    # A header of another writer may leave the numbers unaligned; then they are copied.
    return np.require(data[begin:end].view("<f4").reshape(entry["shape"]), requirements=["A"])
