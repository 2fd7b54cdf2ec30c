"""The check of names that clients and admins choose, and that others read."""

from typing import Annotated

from pydantic import AfterValidator, Field

LARGEST_NAME = 100
"""Characters of a name, at most."""

_JOINERS = "\u200c\u200d\ufe0e\ufe0f"  # needed by some scripts and emoji
# They count as letters or marks, but have no form.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))


def check_name(name: str) -> str:
    """Return a name; ``ValueError`` if it could hide, or change the text around it.

    Refused are control characters, those that change the direction of text, and invisible ones. Joiners and the styles
    of emoji are allowed after a character that is not ASCII.
    """
    before = ""
    for character in name:
        is_hidden = character in _BLANKS or any(ord(character) in numbers for numbers in _SELECTORS)
        if (is_hidden or not character.isprintable()) and not _joins(before, character):
            raise ValueError(f"a name has visible characters only, not U+{ord(character):04X}")
        before = character
    return name


def _joins(before: str, character: str) -> bool:
    follows_letter = before.isprintable() and not before.isascii()
    return character in _JOINERS and follows_letter and (before not in _JOINERS or character == "\u200d")


Name = Annotated[str, Field(max_length=LARGEST_NAME), AfterValidator(check_name)]
"""A name; empty for none."""
