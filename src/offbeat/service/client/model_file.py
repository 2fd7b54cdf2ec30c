"""The model as it was downloaded, and what came beside it."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from offbeat.algorithms.components.update import check_shape
from offbeat.errors import OffbeatError
from offbeat.service.store.model_files import DOWN


def read_model(path: Path, length: int) -> dict[str, Tensor]:
    """Return the model's d parameters by name, in the order in which they make up the vector.

    The tensors are the file's pages, copied where they are changed: reading it again gives the model as it was.

    Raises:
        OffbeatError: The file is not such a model; it is removed, so that it is downloaded anew.
    """
    with _reading(path) as file:
        layout: list[tuple[str, list[int]]] = json.loads((file.metadata() or {})["layout"])
        model: dict[str, Tensor] = {name: file.get_tensor(name) for name, _ in layout}
        for name, shape in layout:
            if list(model[name].shape) != shape or str(model[name].dtype) != "torch.float32":
                raise ValueError(f"{name} is not float32 of shape {tuple(shape)}")
        if sum(tensor.numel() for tensor in model.values()) != length:
            raise ValueError(f"it has not {length} parameters")
    return model


def read_down(path: Path, length: int) -> Tensor:
    """Return what came beside the model, float32 ``(d,)``.

    Raises:
        OffbeatError: The file does not hold it; the file is removed, so that it is downloaded anew.
    """
    with _reading(path) as file:
        down: Tensor = file.get_tensor(DOWN)
        check_shape(down, length)
    return down


@contextmanager
def _reading(path: Path) -> Generator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError, LookupError, TypeError, ValueError) as error:
        path.unlink(missing_ok=True)
        raise OffbeatError(f"the downloaded model {path} is broken ({error}): join again") from None
