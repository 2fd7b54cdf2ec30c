from collections.abc import Callable

import pytest


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Return a function that shows a line, whether the test passes or not."""

    def show(line: str) -> None:
        with capsys.disabled():
            print(f"\n  {line}")

    return show
