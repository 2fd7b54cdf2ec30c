"""Errors of a Python function in the words of its arguments."""

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from offbeat_core.errors import OffbeatError, did_you_mean

_P = ParamSpec("_P")
_Result = TypeVar("_Result")

# Keys of an experiment's file that are arguments of another name.
_ARGUMENTS = (
    (r"\bevaluate: (set exactly one of )(every_seconds and )(every_versions)", r"\1evaluate_\2evaluate_\3"),
    (r"\bevaluate\.(every_seconds|every_versions|on_clients)\b", r"evaluate_\1"),
    (r"\bstop: set\b", "set"),
    (r"\bstop\.(virtual_seconds|versions|updates|target|patience)\b", r"\1"),
    (r"\bstop\.metric\b", "stop_metric"),
    (r"\b(?:data|model|evaluate)\.(augmentation|collate|loss|batch_norm|metrics)\b", r"\1"),
    (r"\bdata\.name\b", "data"),
    (r"\bseeds\.0\b", "seed"),
    (r"^((?:data|loss|metrics) = .*), or an import path such as my_code.py:name$", r"\1, or pass your own"),
)


def in_terms_of_arguments(function: Callable[_P, _Result]) -> Callable[_P, _Result]:
    """Let a function's errors name its arguments; a misspelt one gets a hint."""
    names = inspect.signature(function).parameters

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _Result:
        for name in kwargs:
            if name not in names:
                raise OffbeatError(f"unknown argument {name}: {did_you_mean(name, names)}")
        try:
            return function(*args, **kwargs)
        except OffbeatError as error:
            message = str(error)
            for key, argument in _ARGUMENTS:
                message = re.sub(key, argument, message, flags=re.MULTILINE)
            error.args = (message,)
            raise

    return call
