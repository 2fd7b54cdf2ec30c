"""Errors of users in tests."""

from collections.abc import Callable
from typing import Any

import pytest
from offbeat_core.errors import OffbeatError


def error_line(call: Callable[..., object], *arguments: Any) -> str:
    """Return the message of the ``OffbeatError`` that a call raises, which must be one line."""
    with pytest.raises(OffbeatError) as caught:
        call(*arguments)
    line = str(caught.value)
    assert "\n" not in line
    assert "pydantic" not in line
    return line
