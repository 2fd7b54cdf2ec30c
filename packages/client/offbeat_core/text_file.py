"""Small text files that people edit."""

import codecs
from pathlib import Path

_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def read_text(path: Path) -> str:
    """Return a file's text, UTF-8, or UTF-16 if it begins with that mark.

    Editors on Windows write the mark of either. Line ends are left as they are. Raises ``OSError`` and
    ``UnicodeDecodeError``.
    """
    content = path.read_bytes()
    return content.decode(encoding_of(content))


def encoding_of(content: bytes) -> str:
    """Return the encoding of a text that begins so."""
    return next((name for mark, name in _MARKS.items() if content.startswith(mark)), "utf-8")
