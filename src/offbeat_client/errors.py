"""The one exception that users see."""

import difflib
from collections.abc import Iterable


class OffbeatError(Exception):
    """An error that the user can fix.

    Its message is one line that says what is wrong and what to do.
    """


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Return a sentence with the nearest allowed word and a list of all of them.

    The nearest word is left out if none is near.
    """
    words = sorted(allowed)
    near = difflib.get_close_matches(word, words, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}Allowed: {', '.join(words)}"
