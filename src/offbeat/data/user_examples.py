"""Users' examples as arrays."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError, setting
from offbeat_core.user_code_errors import failure
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from offbeat.data.dataset_checks import refuse_missing
from offbeat.model_inputs import Inputs, find_inputs, map_inputs, name_inputs

Collate = Callable[[list[Any]], Any]
"""Makes a batch of a list of examples, as a ``DataLoader``'s ``collate_fn``."""

_LABELS = ("labels", "label")  # names of the labels in examples by name


class ExampleArrays(NamedTuple):
    """Inputs and labels, float32, int64 or bool."""

    inputs: Inputs[NDArray[Any]]
    labels: NDArray[Any]


def read_examples(data: Any, part: str) -> ExampleArrays:
    """Return all examples of a part; errors begin with its name."""
    if isinstance(data, DataLoader):
        raise OffbeatError(f"{part} is a DataLoader: return its dataset, of which clients make their own minibatches")
    size = _length(data, part)
    batch = _as_batch(data)
    if batch is not None:
        return _arrays(batch, part)
    data = _one_by_one(data)
    columns: dict[str, NDArray[Any]] = {}
    for index in range(size):
        where = f"{part} example {index}"
        inputs, labels = _split(_read(data, index, part), where)
        named = {key: as_array(value, f"{where}, {key}") for key, value in name_inputs("input", inputs).items()}
        named["label"] = as_array(labels, f"{where}, label")
        if not columns:
            columns = {key: _empty(size, value, _type(key, value, where), part) for key, value in named.items()}
        if named.keys() != columns.keys():
            names = f"{where} has {_names(named)}, example 0 has {_names(columns)}"
            raise OffbeatError(f"{names}: give all examples the same names")
        for key, value in named.items():
            _put(columns[key], index, value, key, where)
    labels = columns.pop("label")
    return ExampleArrays(find_inputs("input", columns), labels)


def collate_examples(parts: Mapping[str, Any], collate: Collate) -> list[ExampleArrays]:
    """Return the examples of parts, by name, from the batch of a user's function.

    One call gets the examples of all parts, so that all inputs have one shape.
    """
    examples = [[_read(data, index, part) for index in range(_length(data, part))] for part, data in parts.items()]
    try:
        batch = collate([example for part in examples for example in part])
    except OffbeatError:
        raise
    except Exception as error:
        raise failure(f"{setting('data.collate')} failed", error, or_library=True) from error
    inputs, labels = _arrays(batch, f"the batch of {setting('data.collate')}")
    sizes = [len(part) for part in examples]
    for key, array in [*name_inputs("inputs", inputs).items(), ("labels", labels)]:
        if array.ndim == 0 or len(array) != sum(sizes):
            raise OffbeatError(
                f"{setting('data.collate')} made {key} of shape {array.shape} from {sum(sizes)} examples: the first "
                "dimension must be the examples'"
            )
    ends = np.cumsum(sizes)
    return [
        ExampleArrays(map_inputs(lambda array, rows=rows: array[rows], inputs), labels[rows])
        for rows in (slice(end - size, end) for end, size in zip(ends, sizes, strict=True))
    ]


def describe(value: object) -> str:
    """Return a value's type for a message."""
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a value of type {type(value).__name__}"


def _length(data: Any, part: str) -> int:
    try:
        size = len(data)
    except Exception as error:
        raise OffbeatError(f"{part}: {describe(data)} has no length: give a map-style data set") from error
    if size == 0:
        raise OffbeatError(f"{part}: there are no examples: give at least one")
    return size


def _as_batch(data: Any) -> Any:
    """Return data that are arrays as a batch of all examples; None for others."""
    if type(data) is TensorDataset and len(data.tensors) == 2:
        return data.tensors
    if isinstance(data, tuple | list):
        # Tensors, and arrays of numpy, pandas or pyarrow.
        arrays = len(data) == 2 and (hasattr(data[0], "__array__") or isinstance(data[0], Mapping))
        return data if arrays and hasattr(data[1], "__array__") else None
    if hasattr(data, "with_format") and hasattr(data, "column_names"):  # of Hugging Face
        return _columns(data)
    return None


def _columns(data: Any) -> Any:
    """Return the columns of a Hugging Face data set as arrays.

    None if its examples must be read one by one.
    """
    form = data.format
    if form["type"] == "custom" or form["format_kwargs"]:  # a function or a type of the user's, which numpy's replaces
        return None
    chosen = data.column_names if form["output_all_columns"] else form["columns"]
    try:
        columns = dict(data.with_format("numpy", columns=chosen)[:])
    except Exception:  # for instance where the first example of a column is None
        return None
    # Ragged columns are read one by one, to name an example.
    return None if any(np.asarray(column).dtype == object for column in columns.values()) else columns


def _one_by_one(data: Any) -> Any:
    """Return data whose examples are pairs or dicts of values.

    An example of a Hugging Face data set in the format of tables is a table.
    """
    is_table = hasattr(data, "with_format") and data.format["type"] in ("arrow", "pandas", "polars")
    return data.with_format(None, data.format["columns"]) if is_table else data


def _read(data: Any, index: int, part: str) -> Any:
    try:
        return data[index]
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise OffbeatError(f"{part} example {index} cannot be read: {reason}") from error


def _split(batch: Any, where: str) -> tuple[Inputs[Any], Any]:
    """Return the inputs and the labels of an example or a batch."""
    if isinstance(batch, Mapping):
        label = next((name for name in _LABELS if name in batch), None)
        inputs = {name: value for name, value in batch.items() if name != label}
        if label is None or not inputs:
            raise OffbeatError(f"{where} has {', '.join(map(str, batch))}: give inputs, and labels as 'labels'")
        return inputs, batch[label]
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise OffbeatError(f"{where} is {describe(batch)}: give the pair (input, label), or a dict with 'labels'")
    inputs, labels = batch
    return dict(inputs) if isinstance(inputs, Mapping) else inputs, labels


def _arrays(batch: Any, where: str) -> ExampleArrays:
    inputs, labels = _split(batch, where)
    named = {key: as_array(value, f"{where}, {key}", True) for key, value in name_inputs("input", inputs).items()}
    arrays = {key: _cast(value, _type(key, value, where)) for key, value in named.items()}
    labels = as_array(labels, f"{where}, labels", True)
    return ExampleArrays(find_inputs("input", arrays), _cast(labels, _type("label", labels, where)))


def _empty(size: int, value: NDArray[Any], dtype: np.dtype[Any], part: str) -> NDArray[Any]:
    try:
        return np.empty((size, *value.shape), dtype)
    except (MemoryError, ValueError) as error:  # a ValueError where the number of bytes does not fit into 64 bits
        raise OffbeatError(
            f"{part}: {size:,} examples of shape {value.shape} do not fit into memory: see data larger than memory in "
            "the documentation"
        ) from error


def _put(values: NDArray[Any], index: int, value: NDArray[Any], key: str, where: str) -> None:
    if value.shape != values.shape[1:]:
        raise OffbeatError(
            f"{where}: the {key} has shape {value.shape}, that of example 0 {values.shape[1:]}: use one shape, or name "
            f"a function that pads them in {setting('data.collate')}"
        )
    if _type(key, value, where) != values.dtype:
        for array, place in ((value, where), (values[0], f"{where.rpartition(' ')[0]} 0")):
            if array.dtype.kind == "f" and np.isnan(array).any():
                raise OffbeatError(f"{place}, {key}: has NaN: remove the example, or replace the value")
        raise OffbeatError(f"{where}: the {key} is {value.dtype}, not {values.dtype} like that of example 0")
    values[index] = _cast(value, values.dtype)


def _cast(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # The checks find the infinity that a value too large becomes.
        return values.astype(dtype, copy=False)


def as_array(value: Any, where: str, is_batch: bool = False) -> NDArray[Any]:
    """Return a user's value as an array; ``OffbeatError`` if values are missing.

    In a batch, the first dimension is the examples'.
    """
    try:
        if isinstance(value, Tensor):
            value = value.detach().cpu()
            # numpy has no bfloat16.
            return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
        array = np.asanyarray(value)  # not asarray, which takes masked values as they are
    except (TypeError, ValueError, RuntimeError) as error:
        raise OffbeatError(
            f"{where}: {describe(value)} is not an array: give a tensor, a numpy array or a number"
        ) from error
    refuse_missing(array, where, is_batch=is_batch)
    return np.asarray(array)


def _type(key: str, values: NDArray[Any], where: str) -> np.dtype[Any]:
    """Return the type of the values of a key in memory.

    The key is ``label``, ``input`` or ``input.NAME``.
    """
    if values.dtype.kind == "f":
        return np.dtype(np.float32)
    if key == "label":
        if values.dtype.kind in "iub":
            return values.dtype if values.dtype.kind == "b" else np.dtype(np.int64)
        raise OffbeatError(f"{where}: labels are {values.dtype}: make classes int64, targets float32")
    if values.dtype.name in ("int32", "int64"):
        return np.dtype(np.int64)
    if key != "input":
        if values.dtype.kind == "b":
            return values.dtype
        raise OffbeatError(f"{where}: the {key} is {values.dtype}: make it floats, int64 or bool, or leave it out")
    raise OffbeatError(f"{where}: inputs are {values.dtype}: make images and other numbers floats, token numbers int64")


def _names(keys: Sequence[str] | Mapping[str, Any]) -> str:
    return ", ".join(key for key in keys if key != "label")
