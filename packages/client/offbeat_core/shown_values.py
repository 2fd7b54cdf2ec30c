"""Values in messages."""

import re

_LONGEST = 80  # characters of a value or a key


def cut(text: str) -> str:
    """Return the text, shortened if it is long."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def short(value: object) -> str:
    """Return a value for a message, in one line, shortened if it is long."""
    return cut(re.sub(r"\s*\n\s*", " ", repr(value)))  # an array's has several
