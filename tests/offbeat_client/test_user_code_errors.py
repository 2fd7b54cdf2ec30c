import json
from collections.abc import Callable
from pathlib import Path

import pytest

from offbeat_client.errors import OffbeatError, did_you_mean
from offbeat_client.user_code_errors import failure, said


def raised(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of any kind
        call()
    # From there on the code is not the user's, but pytest's and this function's.
    assert caught.value.__traceback__ is not None
    error = caught.value.with_traceback(caught.value.__traceback__.tb_next)
    assert isinstance(error, Exception)
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError(), "ValueError"),
        (ValueError("\n one\ntwo"), "ValueError: one"),
        (SystemExit(3), "SystemExit: 3"),
        (SyntaxError("invalid syntax", ("net.py", 2, 1, "", 2, 1)), "SyntaxError: invalid syntax"),
    ],
)
def test_an_error_is_described_in_one_line(error: BaseException, text: str) -> None:
    assert said(error) == text


def test_the_place_is_the_users_last_line() -> None:
    def own() -> None:
        json.loads("{")

    line = own.__code__.co_firstlineno + 1
    found = failure("it failed", raised(own))
    assert isinstance(found, OffbeatError)
    assert str(found).startswith("it failed: JSONDecodeError: Expecting property name")
    assert str(found).endswith(f" ({Path(__file__)}:{line})")
    assert str(failure("it failed", raised(own), or_library=True)) == str(found)


def test_a_librarys_line_is_named_only_if_it_is_asked_for() -> None:
    error = raised(lambda: json.loads("{"))
    assert error.__traceback__ is not None
    error = error.with_traceback(error.__traceback__.tb_next)  # without the lambda, which is the user's
    assert str(failure("it failed", error)).endswith("(char 1)")
    assert "decoder.py:" in str(failure("it failed", error, or_library=True))


@pytest.mark.parametrize("or_library", [False, True])
def test_without_a_line_that_the_user_knows_no_place_is_named(or_library: bool) -> None:
    assert str(failure("it failed", ValueError(), or_library=or_library)) == "it failed: ValueError"
    error = raised(lambda: did_you_mean(3, []))  # pyright: ignore[reportArgumentType]
    assert error.__traceback__ is not None
    inside = error.with_traceback(error.__traceback__.tb_next)
    assert str(failure("it failed", inside)) == f"it failed: {said(inside)}"


def test_a_syntax_error_is_where_it_is_written() -> None:
    written = SyntaxError("invalid syntax", ("net.py", 2, 1, "", 2, 1))
    assert str(failure("it failed", written)) == "it failed: SyntaxError: invalid syntax (net.py:2)"

    def own() -> None:
        compile("1 +", "<string>", "eval")

    line = own.__code__.co_firstlineno + 1
    assert str(failure("it failed", raised(own))).endswith(f" ({Path(__file__)}:{line})")
