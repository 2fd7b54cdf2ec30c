"""``run_client`` for clients that train torch tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_client import client_run
from offbeat_client.http.connection import Backoff
from offbeat_client.visit import Client, Fit, Fitted, Visit
from torch import Tensor

Arrays = dict[str, NDArray[np.float32]]


def run_client(
    url: str,
    make_client: Callable[..., Client[Tensor] | Fit[Tensor]],
    folder: Path,
    *,
    enrolment_token: str | None = None,
    name: str | None = None,
    ca: Path | None = None,
    visits: int | None = None,
    stay: bool = False,
    backoff: Backoff | None = None,
    terms: Path | None = None,
    privacy_key: Path | None = None,
) -> int:
    """Take part in a run until it is over; models are torch tensors by parameter name.

    Models and offsets are float32 on the CPU, and ``fit`` may return tensors of any type on any device. For the rest
    see ``offbeat_client.run_client``.

    Examples:
        >>> def make_client(client):
        ...     return LocalSGD(module, "cross_entropy", (inputs[client], labels[client]))
        >>> counted = run_client(
        ...     "https://host:8443", make_client, Path("aachen"), enrolment_token=token
        ... )  # doctest: +SKIP
    """

    @wraps(make_client)
    def make(*arguments: Any) -> Any:
        return with_arrays(make_client(*arguments))

    return client_run.run_client(
        url,
        make,
        folder,
        enrolment_token=enrolment_token,
        name=name,
        ca=ca,
        visits=visits,
        stay=stay,
        backoff=backoff,
        terms=terms,
        privacy_key=privacy_key,
    )


@dataclass(frozen=True, slots=True)
class ArrayClient:
    """A client for numpy arrays that calls a user's client for tensors, uncopied."""

    tensor_fit: Fit[Tensor]
    examples: Any
    corrects_gradients: Any
    evaluate: Any = None

    def fit(self, model: Arrays, visit: Visit[NDArray[np.float32]]) -> Any:
        """Return the unchecked result of the user's ``fit``, with arrays for tensors."""
        offset = None if visit.offset is None else _tensors(visit.offset)
        tensor_visit = cast("Visit[Tensor]", replace(visit, offset=offset))
        result: Any = self.tensor_fit(_tensors(model), tensor_visit)
        if isinstance(result, Fitted):
            fitted = cast("Fitted[Any]", result)
            return replace(fitted, model=_arrays(fitted.model, model))
        if isinstance(result, tuple) and len(cast("tuple[Any, ...]", result)) == 2:
            return _arrays(result[0], model), result[1]
        return result


def with_arrays(made: Any) -> Any:
    """Return a client for arrays from one for tensors; other values unchanged."""
    fit: Any = getattr(made, "fit", made)
    if not callable(fit):
        return made
    examples, corrects = getattr(made, "examples", None), getattr(made, "corrects_gradients", False)
    evaluate: Any = getattr(made, "evaluate", None)
    if callable(evaluate):
        tensor_evaluate = evaluate
        evaluate = lambda model: tensor_evaluate(_tensors(model))  # noqa: E731
    return ArrayClient(cast("Fit[Tensor]", fit), examples, corrects, evaluate)


def _tensors(arrays: Arrays) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _arrays(trained: Any, model: Arrays) -> Any:
    """Return trained parameters as float32 arrays; other values unchanged."""
    if not isinstance(trained, Mapping):
        return trained
    named = cast("Mapping[str, Any]", trained)
    return {
        name: (value if value.is_complex() else value.to(torch.float32)).numpy(force=True)
        if isinstance(value, Tensor)
        else value
        for name, value in named.items()
        if name in model
    }
