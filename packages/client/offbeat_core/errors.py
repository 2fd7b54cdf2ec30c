"""The one exception that users see."""

import difflib
from collections.abc import Iterable, Sequence

from offbeat_core.other_names import hint_for_other_name


class OffbeatError(Exception):
    """An error that the user can fix; one line says what is wrong and what to do."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The errors, each of one line."""
        return (str(self),)


class MistakesError(OffbeatError):
    """Several mistakes at once, each of one line."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))

    @property
    def lines(self) -> tuple[str, ...]:
        """The errors, each of one line."""
        return tuple(str(self).split("\n"))


class GiveUpError(OffbeatError):
    """A reason to give up one visit; the client takes part in the run further on."""


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Return a hint with the nearest allowed word, if one is near, and all of them."""
    words = sorted(allowed)
    hint = hint_for_other_name(word, words)
    if hint is None:
        near = difflib.get_close_matches(word, words, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}Allowed: {', '.join(words)}"
