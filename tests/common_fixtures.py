"""Settings and fixtures of all tests, also of studies/tests."""

import gc
import math
import os
import sys
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from offbeat_core.errors import MistakesError, OffbeatError
from offbeat_core.serving.console_log import log
from torch import Tensor

from tests.effort import cases

if TYPE_CHECKING:
    from tests.e2e.server_process import Launcher

# As runs do; more threads than idle cores make these small models many times slower. Processes of tests inherit it.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Nothing of what the collection of tests makes is garbage, and each look for some takes as long as there is much.
gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage again."""
    gc.freeze()
    gc.enable()


# A busy machine does not make a test fail; and in CI a commit passes or fails the same way each time.
settings.register_profile(
    "offbeat", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ,
    max_examples=cases(100),
)  # fmt: skip
settings.load_profile("offbeat")


@pytest.fixture(autouse=True)
def logs_as_before() -> Generator[None]:
    """Put the service's log back: commands write it to a standard error that ends with their test."""
    level, handlers, propagates = log.level, list(log.handlers), log.propagate
    yield
    log.setLevel(level)
    log.handlers[:] = handlers
    log.propagate = propagates


@pytest.fixture(scope="session", autouse=True)
def errors_of_one_line() -> Generator[None]:
    """Check of each error that a user would see that it is one line, or one for each of several mistakes."""

    def begin(error: OffbeatError, *arguments: object) -> None:
        Exception.__init__(error, *arguments)
        if not isinstance(error, MistakesError):
            assert "\n" not in str(error), f"an error of several lines: {error}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OffbeatError, "__init__", begin)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_process_a_run() -> Generator[None]:
    """Runs in this process start no others for training: the tests keep all cores busy already."""
    from offbeat.training.trainers import trainer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "_PATIENCE_SECONDS", math.inf)
        yield


@pytest.fixture(scope="session")
def launcher() -> Generator["Launcher"]:
    """Starts servers and clients as processes of their own."""
    from tests.e2e.server_process import Launcher

    with Launcher() as made:
        yield made


@pytest.fixture(scope="module")
def forked_workers() -> Generator[None]:
    """Let the workers of the trainer of several processes be forks, which need not import PyTorch."""
    from tests import forked_workers as forks

    with forks.forked_workers():
        yield


@pytest.fixture(scope="session")
def tiny_toml() -> str:
    """The text of a small experiment's file."""
    return (Path(__file__).parent / "tiny.toml").read_text(encoding="utf-8")


@pytest.fixture
def run_main(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command line within this process; it returns exit code, output and errors."""
    from offbeat.cli.main import main  # not for the many tests that need no command line

    def run(command: Any, name: str, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        with pytest.raises(SystemExit) as caught:
            main(command, name)
        code = caught.value.code
        return (code if isinstance(code, int) else 0 if code is None else 1), *capsys.readouterr()

    return run


@pytest.fixture
def offbeat(run_main: Callable[..., tuple[int, str, str]]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs ``offbeat`` within this process; it returns exit code, output and errors."""
    from offbeat.cli.main import app

    return partial(run_main, app, "offbeat")


def _bits(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.dtype, tuple(value.shape), value.numpy().tobytes()
    return type(value), value


@pytest.fixture(scope="session")
def same_state() -> Callable[[dict[str, Any], dict[str, Any]], bool]:
    """Return a function that says whether two state dicts are equal bit for bit."""

    def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
        return {key: _bits(value) for key, value in one.items()} == {key: _bits(value) for key, value in other.items()}

    return same
