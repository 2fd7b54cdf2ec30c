"""Checks of an algorithm that is not built in.

They look at its declarations, return values, computations and saved state.
"""

import inspect
import json
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, get_args

import numpy as np
import torch
from offbeat_core.errors import OffbeatError, did_you_mean
from offbeat_core.user_code_errors import error_line, failure
from torch import Tensor

from offbeat.algorithms import Algorithm, Update
from offbeat.algorithms.components import Payload, WrongStepError
from offbeat.algorithms.components.buffers.aggregate import place_of
from offbeat.algorithms.components.component import Component
from offbeat.coordinator.selection import POOLS


class FaultError(ValueError):
    """A fault of an algorithm, in one line."""


_NOT_STATE = ("now", "_known", "_state")
_COMPUTED_AGAIN = "_cached"
Answer = TypeVar("Answer")


def check_declarations(algorithm: Algorithm) -> None:
    """Raise ``FaultError`` unless payload and selection exist and suit the algorithm.

    Its methods must take the arguments of the contract.
    """
    _check_signatures(algorithm)
    payload, payloads = getattr(algorithm, "payload", None), get_args(Payload)
    if payload not in payloads:
        raise FaultError(f"payload = {payload!r}: {did_you_mean(str(payload), payloads)}")
    if algorithm.corrects_gradients and payload != "delta":
        raise FaultError(f"corrects_gradients = True needs payload = 'delta', it is {payload!r}")
    selection = algorithm.selection
    if not callable(selection) and selection not in POOLS:
        raise FaultError(f"selection = {selection!r}: {did_you_mean(str(selection), POOLS)}, or a class of your own")


def _check_signatures(algorithm: Algorithm) -> None:
    kind = type(algorithm)
    for name, method in inspect.getmembers(Algorithm, inspect.isfunction):
        own = getattr(kind, name)
        if name.startswith("_") or own is method:
            continue
        names = list(inspect.signature(method).parameters)
        place = f" ({place})" if (place := place_of(inspect.unwrap(own) if callable(own) else None)) else ""
        if not callable(own):
            raise FaultError(f"{name} must be a method ({', '.join(names)}), it is {own!r}")
        try:
            inspect.signature(getattr(algorithm, name)).bind(*names[1:])
        except TypeError:
            found = ", ".join(inspect.signature(own).parameters)
            raise FaultError(f"{name} must take ({', '.join(names)}), it takes ({found}){place}") from None


def check_answer(method: str, answer: object) -> None:
    """Raise ``FaultError`` unless a method has returned True or False.

    The methods are ``receive``, ``drop`` and ``tick``.
    """
    if not isinstance(answer, bool):
        raise FaultError(f"{method} must return True or False, whether there is a new version; it returned {answer!r}")


def answered(method: str, function: Callable[..., object], *arguments: Any) -> Any:
    """Return the checked answer of ``receive``, ``drop`` or ``tick``."""
    answer = function(*arguments)
    check_answer(method, answer)
    return answer


def attempt(action: str, function: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
    """Call a function and return its value; a ``FaultError`` if it raises."""
    try:
        return function(*arguments, **options)
    except (FaultError, WrongStepError):
        raise
    except Exception as error:
        raise FaultError(method_failure(error) or str(failure(f"{action} failed", error))) from error


@contextmanager
def errors_named(run: str) -> Generator[None]:
    """Raise errors of an algorithm's own methods as a line that names ``run``."""
    try:
        yield
    except OffbeatError:
        raise
    except WrongStepError as error:
        raise OffbeatError(f"{run}: {error}") from None
    except Exception as error:
        line = method_failure(error)
        if line is None:
            raise
        raise OffbeatError(f"{run}: {line}") from error


def method_failure(error: Exception) -> str | None:
    """Return a line about an error in a method of an algorithm that is not built in.

    It names the method, also that of a component, the error, file and line; None for an error from elsewhere.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        is_offbeats = str(frame.f_globals.get("__name__")).startswith("offbeat.") or code.co_filename.startswith("<")
        if is_offbeats or not isinstance(owner, Algorithm | Component):
            continue
        method = code.co_name if isinstance(owner, Algorithm) else f"{type(owner).__name__}.{code.co_name}"
        line = str(failure(f"{method} failed", error, or_library=True))
        if isinstance(error, AttributeError) and isinstance(error.obj, Update):
            return f"{line}: {did_you_mean(str(error.name), Update._fields)}"
        return line
    return None


def check_model(model: object, length: int) -> None:
    """Raise ``FaultError`` unless the model is a float32 vector ``(length,)``."""
    if not isinstance(model, Tensor):
        raise FaultError(f"the model must be a tensor, it is of type {type(model).__name__}")
    if model.dtype != torch.float32 or model.shape != (length,):
        raise FaultError(
            f"the step must return float32 of shape ({length},), it returned {str(model.dtype).removeprefix('torch.')} "
            f"of shape {tuple(model.shape)}"
        )


def check_down(algorithm: Algorithm, length: int) -> None:
    """Raise ``FaultError`` unless ``down`` returns a vector ``(length,)`` or None.

    It must return the vector if clients correct gradients, else None.
    """
    down: Any = attempt("down", algorithm.down)
    if not algorithm.corrects_gradients:
        if down is not None:
            raise FaultError("down returned a vector that clients do not use: set corrects_gradients = True")
    elif not isinstance(down, Tensor) or down.dtype != torch.float32 or down.shape != (length,):
        found = f"{down.dtype} of shape {tuple(down.shape)}" if isinstance(down, Tensor) else type(down).__name__
        raise FaultError(f"down must return float32 of shape ({length},), it returned {found.removeprefix('torch.')}")


def check_restart(algorithm: Algorithm, fresh: Algorithm) -> None:
    """Compare an algorithm with a fresh one that has loaded its state.

    The state is saved and loaded as with a checkpoint. Where the algorithm saves its state by itself, its attributes
    are compared as well. Attributes whose names begin with ``_cached`` are computed again, and need not be saved.

    Raises:
        FaultError: They differ, or the state cannot be saved or loaded; names the attribute.
    """
    state = algorithm.state_dict()
    try:
        fresh.load_state_dict(_as_from_checkpoint(state))
        loaded = fresh.state_dict()
    except Exception as error:
        why = method_failure(error) or error_line(error)
        raise FaultError(f"its state cannot be saved and loaded: {why}") from error
    expected = _as_from_checkpoint(state)
    loaded = _as_from_checkpoint(loaded)
    wrong = next(differing_entries(expected, loaded), None)
    if wrong is not None:
        raise FaultError(f"a restart changes {wrong!r}: load_state_dict must restore what state_dict has saved")
    if _saves_by_itself(type(algorithm)):
        forgotten = next(differing_attributes(algorithm, fresh), None)
        if forgotten is not None:
            raise FaultError(
                f"a restart forgets the attribute {forgotten!r}: save it in state_dict and restore it in "
                f"load_state_dict; if it can be computed again, let its name begin with {_COMPUTED_AGAIN}"
            )


def differing_attributes(one: object, other: object, prefix: str = "") -> Iterator[str]:
    """Yield the names of the attributes that differ."""
    others: dict[str, Any] = vars(other)
    for name, value in vars(one).items():
        if name in _NOT_STATE or name.startswith(_COMPUTED_AGAIN):
            continue
        if not _same(value, others.get(name)):
            yield f"{prefix}{name}"


def differing_parts(one: Algorithm, other: Algorithm) -> list[str]:
    """Return the attributes that differ, of the algorithms and of their components."""
    found = [name for name in differing_attributes(one, other) if name != "_model"]
    for name, part in vars(one).items():
        twin = vars(other).get(name)
        if hasattr(part, "state_dict") and hasattr(part, "__dict__") and hasattr(twin, "__dict__"):
            found += differing_attributes(part, twin, f"{name}.")
    return found


def differing_entries(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of two state dicts whose values differ."""
    return (key for key in sorted({*one, *other}) if not _same(one.get(key), other.get(key)))


def check_failed_start(algorithm: Algorithm, model: Tensor, clients: int) -> None:
    """Start a running algorithm anew; a refused start must not change anything.

    Raises:
        FaultError: The start raised ``ValueError`` and yet changed something.
    """
    before = algorithm.state_dict()
    try:
        algorithm.start(model, clients)
    except ValueError:
        try:
            changed = next(differing_entries(before, algorithm.state_dict()), None)
        except Exception as error:  # whatever half a start leads to
            changed = error_line(error)
        if changed is not None:
            raise FaultError(
                f"start is not atomic: it failed, but changed the state ({changed}); raise before anything changes"
            ) from None


def _saves_by_itself(kind: type[Algorithm]) -> bool:
    return kind.state_dict is not Algorithm.state_dict or kind.load_state_dict is not Algorithm.load_state_dict


def _as_from_checkpoint(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state as a checkpoint restores it: its plain values have been JSON."""
    plain = {key: value for key, value in state.items() if not isinstance(value, Tensor)}
    tensors = {key: value.clone() for key, value in state.items() if isinstance(value, Tensor)}
    return {**json.loads(json.dumps(plain)), **tensors}


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; values that cannot be compared are."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and same_bits(one, other)
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return type(one) is type(other) and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    states = [getattr(value, "state_dict", None) for value in (one, other)]
    if callable(states[0]) and callable(states[1]):
        return _same(states[0](), states[1]())
    if isinstance(one, (bool, int, float, str, set, frozenset)) or isinstance(other, (bool, int, float, str)):
        return one == other or (one != one and other != other)
    if hasattr(one, "__iter__") and hasattr(one, "__len__") and hasattr(other, "__len__"):
        return len(one) == len(other) and all(_same(*pair) for pair in zip(one, other, strict=True))
    return True


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal bit for bit."""
    is_alike = one.dtype == other.dtype and one.shape == other.shape
    return is_alike and one.numpy(force=True).tobytes() == other.numpy(force=True).tobytes()
