"""The exception for users' mistakes."""

import difflib
from collections.abc import Iterable


class OffbeatError(Exception):
    """A mistake that the user can correct; its message is one line with the problem and the remedy."""


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Return a sentence that suggests the closest allowed word, if one is similar, and lists all of them."""
    words = sorted(allowed)
    matches = difflib.get_close_matches(word, words, n=1)
    hint = f"did you mean {matches[0]!r}? " if matches else ""
    return f"{hint}Allowed: {', '.join(words)}"
