from collections.abc import Callable, Generator

import pytest

from tests.e2e.server_process import Launcher


@pytest.fixture(scope="session")
def servers() -> Generator[Launcher]:
    """Starts servers, one at a time, whose clients without work come back after 0.2 seconds."""
    with Launcher("server_launcher.py", "0.2") as launcher:
        yield launcher


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Return a function that shows a line, whether the test passes or not."""

    def show(line: str) -> None:
        with capsys.disabled():
            print(f"\n  {line}")

    return show
