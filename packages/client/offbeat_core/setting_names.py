"""Names of settings in error messages: a file's keys, or a function's arguments."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_names: ContextVar[Mapping[str, str] | None] = ContextVar("setting_names", default=None)


def setting(key: str) -> str:
    """Return the name by which the user knows a key such as ``stop.versions``."""
    return (_names.get() or {}).get(key, key)


@contextmanager
def settings_named(names: Mapping[str, str]) -> Generator[None]:
    """Give keys other names within the context.

    A table without a name has an empty one.
    """
    token = _names.set(names)
    try:
        yield
    finally:
        _names.reset(token)
