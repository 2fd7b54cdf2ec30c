"""The one exception that users see."""

import difflib
from collections.abc import Iterable


class OffbeatError(Exception):
    """An error that the user can fix; one line says what is wrong and what to do."""


class GiveUpError(OffbeatError):
    """A reason to give up one visit; the client takes part in the run further on."""


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Return a hint with the nearest allowed word, if one is near, and all of them."""
    words = sorted(allowed)
    near = difflib.get_close_matches(word, words, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}Allowed: {', '.join(words)}"
