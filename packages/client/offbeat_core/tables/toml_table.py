"""TOML files as unchecked tables."""

import tomllib
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError
from offbeat_core.files import read_text


def read_table(path: Path) -> dict[str, Any]:
    """Return a TOML file as an unchecked table."""
    try:
        return tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise OffbeatError(f"no such file: {path}") from None
    except OSError as error:
        raise OffbeatError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OffbeatError(f"cannot read {path}: it is not UTF-8") from None
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, or thousands of brackets
        raise OffbeatError(f"{path} is not valid TOML: {error}") from None
