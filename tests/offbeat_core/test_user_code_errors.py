import json
from collections.abc import Callable
from pathlib import Path

import pytest
from offbeat_core.errors import OffbeatError, did_you_mean
from offbeat_core.user_code_errors import error_line, failure, user_code


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
        (ValueError("\n one\ntwo"), "ValueError: one"),
        (SystemExit(3), "SystemExit: 3"),
        (SyntaxError("invalid syntax", ("net.py", 2, 1, "", 2, 1)), "SyntaxError: invalid syntax"),
    ],
)
def test_an_error_is_one_line(error: BaseException, text: str) -> None:
    assert error_line(error) == text


def test_the_place_is_the_users_last_line() -> None:
    def own() -> None:
        json.loads("{")

    line = own.__code__.co_firstlineno + 1
    found = failure("it failed", raised(own))
    assert isinstance(found, OffbeatError)
    assert str(found).startswith("it failed: JSONDecodeError: Expecting property name")
    assert str(found).endswith(f" ({Path(__file__)}:{line})")
    assert str(failure("it failed", raised(own), or_library=True)) == str(found)


@pytest.mark.parametrize("or_library", [False, True])
def test_no_place_is_named_without_a_line_of_the_users(or_library: bool) -> None:
    assert str(failure("it failed", ValueError(), or_library=or_library)) == "it failed: ValueError"
    inside = raised(lambda: did_you_mean(3, []))  # pyright: ignore[reportArgumentType]
    library = raised(lambda: json.loads("{"))
    for error in (inside, library):  # without the lambda, which is the user's
        assert error.__traceback__ is not None
        error.__traceback__ = error.__traceback__.tb_next
    assert str(failure("it failed", inside)) == f"it failed: {error_line(inside)}"
    assert ("decoder.py:" in str(failure("it failed", library, or_library=or_library))) is or_library


def test_the_place_of_a_syntax_error() -> None:
    written = SyntaxError("invalid syntax", ("net.py", 2, 1, "", 2, 1))
    assert str(failure("it failed", written)) == "it failed: SyntaxError: invalid syntax (net.py:2)"

    def own() -> None:
        compile("1 +", "<string>", "eval")

    line = own.__code__.co_firstlineno + 1
    assert str(failure("it failed", raised(own))).endswith(f" ({Path(__file__)}:{line})")


def test_user_code_wraps_errors_but_not_users_mistakes() -> None:
    def own() -> None:
        with user_code("the metric f1 failed"):
            json.loads("{")

    line = own.__code__.co_firstlineno + 2
    error = raised(own)
    assert isinstance(error, OffbeatError)
    assert str(error).startswith("the metric f1 failed: JSONDecodeError: ")
    assert str(error).endswith(f" ({Path(__file__)}:{line})")
    assert isinstance(error.__cause__, json.JSONDecodeError)
    with pytest.raises(OffbeatError, match=r"^as it is$"), user_code("it failed"):
        raise OffbeatError("as it is")
