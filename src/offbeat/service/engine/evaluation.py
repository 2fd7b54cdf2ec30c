"""Evaluating versions in a process of its own, so that no client waits for it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from offbeat.service.logs import event
from offbeat.service.refusal import Refusal
from offbeat.service.store.model_files import ModelFiles

_SUFFIX = ".evaluated"
_PATIENCE_SECONDS = 1.0  # until the disk is asked again


class Evaluations:
    """Has each n-th version measured, one after the other; what comes of it is a line of ``evaluations.jsonl``.

    Args:
        folder: The store's.
        models: Where versions are.
        durable: Waits until the log's records that a version is made of are on disk; before, nobody hears of it.
        every_versions: n.
        command: A program that reads paths of models from its standard input, a line each, and answers each by a line
            of JSON.

    Attributes:
        last: What was measured last, None if nothing was.
    """

    def __init__(
        self,
        folder: Path,
        models: ModelFiles,
        durable: Callable[[], Awaitable[None]],
        every_versions: int,
        command: Sequence[str],
    ) -> None:
        self.last: dict[str, Any] | None = None
        self._folder = folder
        self._models = models
        self._durable = durable
        self._every = every_versions
        self._command = command
        self._waiting: asyncio.Queue[tuple[int, Path]] = asyncio.Queue()

    def wants(self, version: int) -> bool:
        """Return whether a version is to be measured."""
        return version % self._every == 0

    def add(self, version: int) -> None:
        """Have a version measured, which is in ``models`` now, but perhaps not for long."""
        path = self._folder / f".{version}{_SUFFIX}"
        with suppress(FileExistsError):
            self._models.link(version, path)
        self._waiting.put_nowait((version, path))

    async def run(self) -> None:
        """Measure what comes, for ever."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            while True:
                version, path = await self._waiting.get()
                await self._until_durable()
                process.stdin.write(f"{path}\n".encode())
                line = await process.stdout.readline()
                path.unlink(missing_ok=True)
                if not line:
                    # Clients need not suffer for it.
                    event("evaluation_failed", version=version, exit_code=await process.wait())
                    return
                self.last = {"version": version, **json.loads(line)}
                with (self._folder / "evaluations.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(self.last) + "\n")
                event("evaluated", **self.last)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _until_durable(self) -> None:
        while True:
            try:
                return await self._durable()
            except Refusal:  # the disk is full
                await asyncio.sleep(_PATIENCE_SECONDS)


def discard_links(folder: Path) -> None:
    """Delete what an earlier server had not measured."""
    for path in folder.glob(f".*{_SUFFIX}"):
        path.unlink()
