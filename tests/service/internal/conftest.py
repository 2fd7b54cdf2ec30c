"""Event loops that report whatever went wrong in a callback."""

import asyncio
import gc
import tempfile
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest
import uvloop

Play = Callable[[Coroutine[Any, Any, None]], None]

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def play(request: pytest.FixtureRequest) -> Play:
    """Run a coroutine; nothing may be reported to the event loop, such as an exception that nobody took."""

    def run(work: Coroutine[Any, Any, None]) -> None:
        problems: list[Any] = []

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
            async with asyncio.timeout(30):
                await work
                await asyncio.sleep(0.01)  # until closed connections are gone

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(main())
        gc.collect(1)
        assert problems == []

    return run


@pytest.fixture
def path() -> Generator[Path]:
    """A path for a socket; those of pytest are too long."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "leader"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a second pass in a fiftieth of one."""
    import offbeat.service.internal.channel as channel
    import offbeat.service.internal.front_endpoint as front_endpoint
    import offbeat.service.internal.leader_connection as leader_connection

    monkeypatch.setattr(channel, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(front_endpoint, "_GREETING_SECONDS", 0.1)
    for name in ("_ANSWER_SECONDS", "_PATIENCE_SECONDS", "_SWEEP_SECONDS"):
        monkeypatch.setattr(leader_connection, name, getattr(leader_connection, name) / 50)
    monkeypatch.setattr(leader_connection, "_PAUSES", (0.01, 0.02))
