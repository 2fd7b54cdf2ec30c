"""Text from others for the terminal."""


def visible(text: str) -> str:
    """Return a text with escapes of the characters that could change the terminal."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
